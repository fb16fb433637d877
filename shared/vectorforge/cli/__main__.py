"""``python -m vectorforge.cli``."""

from vectorforge.cli import main

main()
