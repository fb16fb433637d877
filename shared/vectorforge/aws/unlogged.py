"""Calls of botocore whose log lines would hold secrets, at DEBUG."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_silent: ContextVar[bool] = ContextVar("a call whose log lines hold secrets", default=False)


@contextmanager
def unlogged(*loggers: str) -> Iterator[None]:
    """Drop what these loggers say in here, at every level; other threads and tasks keep their lines.

    Args:
        loggers: Names, such as "botocore.parsers".
    """
    for name in loggers:
        logging.getLogger(name).addFilter(_passes)  # adding it again does nothing
    token = _silent.set(True)
    try:
        yield
    finally:
        _silent.reset(token)


def _passes(record: logging.LogRecord) -> bool:
    return not _silent.get()
