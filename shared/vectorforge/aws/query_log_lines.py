"""Detection of query log records in the lines of a function's log, in CloudWatch's formats.

A record is trusted only at the start of a line, where the query function prints it: other lines may contain
text of a user, who must not be able to write query logs.
"""

import json
import re
from collections.abc import Iterator
from typing import Any

from vectorforge.aws.query_log_record import RECORD_TYPE

_NAMED = re.compile(re.escape(RECORD_TYPE) + r"\b")  # "_" continues the word: excludes pointers
_TYPE = r'"type"\s*:\s*"' + re.escape(RECORD_TYPE) + '"'
_PRINTED = re.compile(r"\s*(?=\{\s*" + _TYPE + ")")
_PREFIX = re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+(?:Z|[+-]\d\d:?\d\d)?\s+(?:\d{4}/\d\d/\d\d/\S+\s+)?")
"""Time and stream name, the prefix of `aws logs tail` and of exports to S3."""
_BROKEN_UP = re.compile(r"\s*" + _TYPE)
"""Line of a record formatted over several lines."""
_MESSAGE = re.compile(r'\s*"(?:@?message|value)"\s*:\s*(?=")')
"""Line of a formatted document of log events."""
_CUT_OFF = re.compile(r'"@?message"\s*:\s*"\s*\{\s*' + _TYPE.replace('"', r"\\\""))
_CSV_TYPE = re.compile(r'""type""\s*:\s*""' + re.escape(RECORD_TYPE) + '""')
_CSV_CELL = re.compile(r'(?:"([^"]*(?:""[^"]*)*)(?:"|$)|([^",]*))(?:,|\s*$)')

_MAX_NESTING = 3
"""Depth of messages inside messages: logs forwarded by other logs."""
_EVENT = re.compile(
    r"@?(message|timestamp|ingestionTime|id|eventId|log|logGroup|logGroupName|logStream|logStreamName|ptr)"
)
"""Keys of a log event in CloudWatch's form; an object with another key is the function's own log line."""
_LISTS = ("events", "logEvents", "results")
_MAX_DEPTH = 6

_DECODER = json.JSONDecoder()


def find_records(line: str, *, nesting: int = 0) -> Iterator[str]:
    """Yield the records in a line, as JSON, including broken ones so that they can be counted.

    A record is in the line as printed, after CloudWatch's prefix, or in the text of one of its messages
    ("@message" in Logs Insights), or in a cell of CSV.
    """
    if not names_records(line):
        return
    prefix = _PREFIX.match(line)
    start = prefix.end() if prefix else 0
    if _PRINTED.match(line, start):
        yield from _printed_records(line, start)
    elif _BROKEN_UP.match(line):
        yield line
    elif nesting < _MAX_NESTING:
        for text in _messages(line, start):
            yield from find_records(text, nesting=nesting + 1)
        if _CUT_OFF.search(line) and _decoded(line, start) is None:
            yield line


def names_records(line: str) -> bool:
    """Return True if the line names the type of a record, valid or not."""
    return _NAMED.search(line) is not None


def _printed_records(line: str, start: int) -> Iterator[str]:
    """Yield consecutive records as printed."""
    while printed := _PRINTED.match(line, start):
        try:
            _, start = _DECODER.raw_decode(line, printed.end())
        except (ValueError, RecursionError):
            start = len(line)
        yield line[printed.end() : start]


def _messages(line: str, start: int) -> Iterator[str]:
    """Yield the texts of the log events in a line."""
    formatted = _MESSAGE.match(line)
    if formatted:
        text = _decoded(line, formatted.end())
        if text is None:
            yield line[formatted.end() :].strip().removeprefix('"').replace('\\"', '"')  # truncated
        elif isinstance(text[0], str):
            yield text[0]
    elif _CSV_TYPE.search(line):
        yield from _cells(line)
    else:
        while (decoded := _decoded(line, start)) is not None:
            yield from _event_messages(decoded[0], _MAX_DEPTH)
            start = decoded[1]


def _cells(line: str) -> Iterator[str]:
    """Yield the quoted cells of a line of CSV, unquoted; the last one may continue on the next line."""
    start = 0
    while start < len(line) and (cell := _CSV_CELL.match(line, start)):
        if cell[1] is not None:
            yield cell[1].replace('""', '"')
        start = max(cell.end(), start + 1)


def _event_messages(value: Any, depth: int) -> Iterator[str]:
    if depth and isinstance(value, list):
        for item in value:
            yield from _event_messages(item, depth - 1)
    elif depth and isinstance(value, dict):
        if all(map(_EVENT.fullmatch, value)):
            yield from (text for name in ("message", "@message") if isinstance(text := value.get(name), str))
        elif value.get("field") == "@message":  # from get-query-results of Logs Insights
            yield from (text for text in [value.get("value")] if isinstance(text, str))
        elif "level" not in value:
            for name in _LISTS:
                yield from _event_messages(value.get(name), depth - 1)


def _decoded(line: str, start: int) -> tuple[Any, int] | None:
    """Return a JSON value and its end, or None if there is no complete value."""
    while start < len(line) and line[start].isspace():
        start += 1
    try:
        return _DECODER.raw_decode(line, start)
    except (ValueError, RecursionError):
        return None
