"""Query log records as JSON for the queue, the bucket and stdout, and their detection in log lines.

Records are ASCII only: SQS rejects some characters and PostgreSQL others. NUL and unpaired surrogates become
U+FFFD, everything else is escaped. A record in a log line is trusted only at the line's start, where the
query function prints it: other lines may contain text of a user.
"""

import json
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, Final, Literal
from urllib.parse import quote
from uuid import UUID

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
)

from vectorforge.db.repositories.query_log_repo import QueryLog, storable
from vectorforge.db.tenant_database import checked_tenant
from vectorforge.errors import InvalidInputError
from vectorforge.pipeline.types import LoggedOutcome

RECORD_TYPE: Final = "vectorforge.query_log"
POINTER_TYPE: Final = "vectorforge.query_log_pointer"
VERSION: Final = 1
MAX_RECORD_BYTES = 8 * 1024 * 1024
"""Largest record, as ASCII; longer texts are cut. A batch of ten stays far below the limit of jsonb."""

_MAX_CHUNK_IDS = 1000  # of QuerySettings.max_top_k
_CUT = "\n[{} characters left out by the query log]"


def _storable(value: object) -> object:
    return storable(value) if isinstance(value, str) else value


_Text = Annotated[str, BeforeValidator(_storable)]
_Milliseconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]
_Count = Annotated[int, Field(ge=0, le=2**31 - 1)]
_ChunkIds = Annotated[list[UUID], Field(max_length=_MAX_CHUNK_IDS)]
_Moment = Annotated[
    AwareDatetime, Field(ge=datetime(2000, 1, 1, tzinfo=UTC), lt=datetime(2101, 1, 1, tzinfo=UTC))
]
"""Range of plausible times that every client can display; PostgreSQL's go from 4713 BC to 294276 AD."""
_TenantId = Annotated[str, AfterValidator(checked_tenant)]


class _Message(BaseModel):
    # Fields of a newer version are ignored: an incompatible change increments VERSION.
    model_config = ConfigDict(frozen=True, extra="ignore", hide_input_in_errors=True)

    version: Literal[1] = VERSION
    tenant_id: _TenantId
    id: UUID


class QueryLogRecord(_Message):
    """Record with its tenant, validated against every limit of the table."""

    type: Literal["vectorforge.query_log"] = RECORD_TYPE
    collection_id: UUID
    query_text: _Text
    retrieved_chunk_ids: _ChunkIds
    used_chunk_ids: _ChunkIds
    generated_response: _Text
    outcome: LoggedOutcome
    latency_ms: _Milliseconds
    retrieval_ms: _Milliseconds | None = None
    generation_ms: _Milliseconds | None = None
    provider: _Text | None = None
    model: _Text | None = None
    prompt_tokens: _Count | None = None
    completion_tokens: _Count | None = None
    error_code: _Text | None = None
    error_stage: _Text | None = None
    created_at: _Moment
    preset: _Text | None = None
    variant: _Text | None = None
    conversation_id: UUID | None = None
    cached: bool = False
    degraded: Annotated[list[_Text], Field(max_length=20)] = Field(default_factory=list)
    quality: dict[str, float | bool] | None = None
    context_ms: _Milliseconds | None = None
    first_token_ms: _Milliseconds | None = None
    cost_usd: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None

    def query_log(self) -> QueryLog:
        """Return the record without its tenant."""
        values = {name: getattr(self, name) for name in QueryLog.__dataclass_fields__}
        return QueryLog(**{**values, "degraded": tuple(self.degraded)})


class QueryLogPointer(_Message):
    """Pointer to a record in the overflow bucket, which only the reader's settings name."""

    type: Literal["vectorforge.query_log_pointer"] = POINTER_TYPE
    key: str = Field(min_length=1, max_length=1024)


Fields = dict[str, Any]
"""A record before it becomes text: JSON types only."""


def record_fields(tenant_id: str, log: QueryLog) -> Fields:
    """Return the record of a tenant; without a time it gets the current one."""
    fields: Fields = {name: getattr(log, name) for name in QueryLog.__dataclass_fields__}
    fields = {name: storable(value) if isinstance(value, str) else value for name, value in fields.items()}
    return {
        "type": RECORD_TYPE,
        "version": VERSION,
        "tenant_id": tenant_id,
        **fields,
        "id": str(log.id),
        "collection_id": str(log.collection_id),
        "retrieved_chunk_ids": [str(chunk_id) for chunk_id in log.retrieved_chunk_ids],
        "used_chunk_ids": [str(chunk_id) for chunk_id in log.used_chunk_ids],
        "created_at": (log.created_at or datetime.now(UTC)).isoformat(),
        "conversation_id": str(log.conversation_id) if log.conversation_id else None,
        "degraded": list(log.degraded),
        "quality": dict(log.quality) if log.quality else None,
    }


def pointer_fields(record: Mapping[str, Any]) -> Fields:
    """Return the message for a record that is too large for the queue."""
    stage = "started" if record["outcome"] == "started" else "ended"
    day = record["created_at"][:10]
    key = f"query-logs/{quote(record['tenant_id'], safe='')}/{day}/{record['id']}-{stage}.json"
    common = {name: record[name] for name in ("version", "tenant_id", "id")}
    return {"type": POINTER_TYPE, **common, "key": key}


def to_json(fields: Mapping[str, Any]) -> str:
    """Return the fields as one line of ASCII. Raises ``ValueError`` for infinite numbers and NaN."""
    return json.dumps(fields, ensure_ascii=True, allow_nan=False, separators=(",", ":"))


def cut_to(record: Mapping[str, Any], max_bytes: int) -> str:
    """Return the record as one line of ASCII of at most ``max_bytes``; shortened texts end with a count.

    Args:
        record: From ``record_fields``.
        max_bytes: At least 100,000, more than a record with full lists and empty texts.
    """
    texts = {name: value for name, value in record.items() if isinstance(value, str)}
    left_out = dict.fromkeys(("query_text", "generated_response"), 0)
    line = to_json(record)
    while len(line) > max_bytes and any(texts[name] for name in left_out):
        name = max(left_out, key=lambda name: len(json.dumps(texts[name])))
        size = len(json.dumps(texts[name]))
        length = int(len(texts[name]) * max(0, size - (len(line) - max_bytes) - len(_CUT) - 10) / size)
        left_out[name] += len(texts[name]) - length
        texts[name] = texts[name][:length]
        marked = {n: texts[n] + _CUT.format(count) for n, count in left_out.items() if count}
        line = to_json({**record, **marked})
    return line


def parse_message(text: str | bytes) -> QueryLogRecord | QueryLogPointer:
    """Parse a record, or the pointer to one.

    Raises:
        InvalidInputError: It is neither; the text names the invalid fields, never their values.
    """
    try:
        fields = json.loads(text)
    except (ValueError, RecursionError) as exc:
        raise InvalidInputError("The message is not JSON.") from exc
    kind = fields.get("type") if isinstance(fields, dict) else None
    if kind not in (RECORD_TYPE, POINTER_TYPE):
        raise InvalidInputError("The message is not a query log.")
    try:
        return (QueryLogRecord if kind == RECORD_TYPE else QueryLogPointer).model_validate(fields)
    except ValidationError as exc:
        details = exc.errors(include_input=False, include_context=False, include_url=False)
        places = (f"{'.'.join(map(str, error['loc']))}: {error['type']}" for error in details[:10])
        raise InvalidInputError(f"The query log is not usable: {'; '.join(places)}.") from exc


_NAMED = re.compile(re.escape(RECORD_TYPE) + r"\b")  # "_" continues the word: excludes pointers
_TYPE = r'"type"\s*:\s*"' + re.escape(RECORD_TYPE) + '"'
_PRINTED = re.compile(r"\s*(?=\{\s*" + _TYPE + ")")
_PREFIX = re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+(?:Z|[+-]\d\d:?\d\d)?\s+(?:\d{4}/\d\d/\d\d/\S+\s+)?")
"""Time, and the name of the stream, as `aws logs tail` and exports to S3 put them before a line."""
_BROKEN_UP = re.compile(r"\s*" + _TYPE)
"""A line of a record that some tool has formatted over several."""
_MESSAGE = re.compile(r'\s*"(?:@?message|value)"\s*:\s*(?=")')
"""A line of a formatted document of log events."""
_CUT_OFF = re.compile(r'"@?message"\s*:\s*"\s*\{\s*' + _TYPE.replace('"', r"\\\""))
_CSV_TYPE = re.compile(r'""type""\s*:\s*""' + re.escape(RECORD_TYPE) + '""')
_CSV_CELL = re.compile(r'(?:"([^"]*(?:""[^"]*)*)(?:"|$)|([^",]*))(?:,|\s*$)')

_MAX_NESTING = 3
"""A line inside a message inside a message: a log forwarded by another log."""
_EVENT = re.compile(
    r"@?(message|timestamp|ingestionTime|id|eventId|log|logGroup|logGroupName|logStream|logStreamName|ptr)"
)
"""Keys of a log event in CloudWatch's form; an object with another key is the function's own log line."""
_LISTS = ("events", "logEvents", "results")
_MAX_DEPTH = 6

_DECODER = json.JSONDecoder()


def find_records(line: str, *, nesting: int = 0) -> Iterator[str]:
    """The records in a line, as JSON; broken ones too, so that they can be counted.

    A record stands in the line as it was printed, after CloudWatch's prefix, or as the text of a "message"
    ("@message" in Logs Insights), of which a line may have many, or in a cell of CSV.

    Args:
        line: One line of a log, of an export or of a JSON document.
        nesting: How many messages the line was inside of.
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
        if _CUT_OFF.search(line) and not _is_json(line[start:]):
            yield line


def names_records(line: str) -> bool:
    """Return True if the line names the type of a record, valid or not."""
    return _NAMED.search(line) is not None


def _printed_records(line: str, start: int) -> Iterator[str]:
    """The records as they were printed, one behind the other."""
    while printed := _PRINTED.match(line, start):
        try:
            _, start = _DECODER.raw_decode(line, printed.end())
        except (ValueError, RecursionError):
            start = len(line)
        yield line[printed.end() : start]


def _messages(line: str, start: int) -> Iterator[str]:
    """The texts of the log events in a line."""
    formatted = _MESSAGE.match(line)
    if formatted:
        text = _decoded(line, formatted.end())
        if text is None:
            yield line[formatted.end() :].strip().removeprefix('"').replace('\\"', '"')  # it was cut off
        elif isinstance(text[0], str):
            yield text[0]
    elif _CSV_TYPE.search(line):
        yield from _cells(line)
    else:
        while (found := _decoded(line, start)) is not None:
            yield from _event_messages(found[0], _MAX_DEPTH)
            start = found[1]


def _cells(line: str) -> Iterator[str]:
    """The quoted cells of a line of CSV, unquoted; the last one may end on the next line."""
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


def _is_json(text: str) -> bool:
    return _decoded(text, 0) is not None
