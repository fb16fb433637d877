"""The vectorforge command.

Nothing heavy is imported before a command runs, so that ``vectorforge --help`` is fast.
"""

import gc
import sys


def main() -> None:
    """Run the command line and exit with its code; see ``vectorforge --help`` for the codes."""
    gc.disable()  # imports create no garbage, and collecting it takes 10 % of a start
    try:
        from vectorforge.cli.app import run
    except ModuleNotFoundError as exc:
        from vectorforge.extras import not_installed

        sys.stderr.write(f"error: {not_installed(exc)}\n")
        raise SystemExit(2) from None
    finally:
        gc.enable()
    raise SystemExit(run())
