"""The query function in a process where every library logs at the lowest level, to stdout."""

import logging
import sys

logging.basicConfig(level=logging.DEBUG, stream=sys.stdout, force=True)

from functions.query.handler import handler  # noqa: E402

__all__ = ["handler"]
