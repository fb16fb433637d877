"""Finding query logs in the lines of a function's log, in the forms that CloudWatch gives them."""

import json
import re
from collections.abc import Iterator

from vectorforge.aws.query_log_record import RECORD_TYPE

_TYPE = re.compile(r'"type"\s*:\s*"' + re.escape(RECORD_TYPE) + '"')
_PRINTED = re.compile(r"\{\s*" + _TYPE.pattern)
_MESSAGE = re.compile(r'"@?message"\s*:\s*(?=")')
_MAX_NESTING = 3
"""A line inside a message inside a message: a log forwarded by another log."""

_DECODER = json.JSONDecoder()


def find_records(line: str, *, nesting: int = 0) -> Iterator[str]:
    """The records in a line, as JSON; broken ones too, so that they can be counted.

    A record stands in the line as it was printed, after whatever prefix, or as the text of a "message" (of
    "@message" in Logs Insights), of which a line may have many.

    Args:
        line: One line of a log, of an export or of a JSON document.
        nesting: How many messages the line was inside of.
    """
    if RECORD_TYPE not in line:
        return
    if _TYPE.search(line):
        yield from _printed_records(line)
        return
    for message in _MESSAGE.finditer(line) if nesting < _MAX_NESTING else ():
        try:
            text, _ = _DECODER.raw_decode(line, message.end())
        except ValueError:  # the line was cut off
            yield line[message.end() :]
            continue
        for inner in text.splitlines():
            yield from find_records(inner, nesting=nesting + 1)


def _printed_records(line: str) -> Iterator[str]:
    """The records as they were printed, one behind the other; what is none after all is given as it is."""
    start = _PRINTED.search(line)
    if start is None:
        yield line  # formatted over several lines by some tool
    while start is not None:
        try:
            _, end = _DECODER.raw_decode(line, start.start())
        except (ValueError, RecursionError):
            end = len(line)
        yield line[start.start() : end]
        start = _PRINTED.search(line, end)
