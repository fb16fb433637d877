"""The query function in a process where every library says all that it has to say, on standard output."""

import logging
import sys

logging.basicConfig(level=logging.DEBUG, stream=sys.stdout, force=True)

from functions.query.handler import handler  # noqa: E402

__all__ = ["handler"]
