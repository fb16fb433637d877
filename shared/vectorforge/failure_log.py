"""Logging of failures nobody foresaw: where they happened, never what they said."""

import logging
import traceback
from collections.abc import Iterator

_MAX_EXCEPTIONS = 20
_MAX_FRAMES = 50


def log_unexpected(logger: logging.Logger, what: str, error: BaseException) -> None:
    """Log type and place of an exception and of its causes.

    Their texts are left out: a driver's or a vendor's may hold keys, URLs or rows. ``logger.exception``
    would print them.

    Args:
        logger: Of the module that caught it.
        what: What failed, in words of ours, e.g. "Request 17 failed".
        error: The exception; of its causes at most 20 are logged, the innermost 50 frames of each.
    """
    logger.error("%s: %s", what, describe(error))


def describe(error: BaseException) -> str:
    """Type and place of an exception and of its causes, in lines; bounded as ``log_unexpected`` says."""
    lines: list[str] = []
    for number, exception in enumerate(_with_causes(error)):
        if number == _MAX_EXCEPTIONS:
            break
        lines.append(f"{type(exception).__module__}.{type(exception).__qualname__}")
        frames = traceback.extract_tb(exception.__traceback__, limit=-_MAX_FRAMES)
        lines.extend(f"  {frame.filename}:{frame.lineno} {frame.name}" for frame in frames)
    return "\n".join(lines)


def _with_causes(error: BaseException) -> Iterator[BaseException]:
    """The exception, then what it was raised from; for a group also its members. None twice."""
    waiting, seen = [error], set[int]()
    while waiting:
        current = waiting.pop(0)
        if id(current) in seen:
            continue
        seen.add(id(current))
        yield current
        if isinstance(current, BaseExceptionGroup):
            waiting.extend(current.exceptions)
        cause = current.__cause__ or (None if current.__suppress_context__ else current.__context__)
        if cause is not None:
            waiting.append(cause)
