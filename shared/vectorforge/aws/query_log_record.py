"""Query log records as JSON for the queue, the bucket and stdout.

Records are ASCII only: SQS rejects some characters and PostgreSQL others. NUL and unpaired surrogates become
U+FFFD, everything else is escaped.
"""

import json
from collections.abc import Mapping
from dataclasses import replace
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

from vectorforge.db.repositories.query_log_repo import QueryLog, json_fields
from vectorforge.db.tenant_database import checked_tenant, storable_text
from vectorforge.errors import InvalidInputError
from vectorforge.telemetry import SpanName
from vectorforge.types import LoggedOutcome

RECORD_TYPE: Final = "vectorforge.query_log"
POINTER_TYPE: Final = "vectorforge.query_log_pointer"
VERSION: Final = 1
MAX_RECORD_BYTES = 8 * 1024 * 1024
"""Largest record, as ASCII; longer texts are cut. A batch of ten stays far below the limit of jsonb."""

_MAX_CHUNK_IDS = 1000  # of QuerySettings.max_top_k
_CUT = "\n[{} characters left out by the query log]"


def _storable(value: object) -> object:
    return storable_text(value) if isinstance(value, str) else value


_Text = Annotated[str, BeforeValidator(_storable)]
_Milliseconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]
_Count = Annotated[int, Field(ge=0, le=2**31 - 1)]
_ChunkIds = Annotated[list[UUID], Field(max_length=_MAX_CHUNK_IDS)]
_Moment = Annotated[
    AwareDatetime, Field(ge=datetime(2000, 1, 1, tzinfo=UTC), lt=datetime(2101, 1, 1, tzinfo=UTC))
]
"""Range of plausible times that every client can display; PostgreSQL's go from 4713 BC to 294276 AD."""
_TraceId = Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]
_SpanId = Annotated[str, Field(pattern=r"^[0-9a-f]{16}$")]
_Nanoseconds = Annotated[int, Field(ge=0, lt=2**63)]
_Span = tuple[SpanName, _SpanId, _Nanoseconds, _Nanoseconds, Annotated[_Text, Field(max_length=200)] | None]


class _Message(BaseModel):
    # Fields of a newer version are ignored: an incompatible change increments VERSION.
    model_config = ConfigDict(frozen=True, extra="ignore", hide_input_in_errors=True, defer_build=True)

    version: Literal[1] = VERSION
    tenant_id: Annotated[str, AfterValidator(checked_tenant)]
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
    request: Annotated[dict[str, _Text | int | float | None], Field(max_length=20)] | None = None
    steps: Annotated[list[dict[str, float | str | None]], Field(max_length=20)] | None = None
    trace: tuple[_TraceId, _SpanId | None, Annotated[list[_Span], Field(max_length=20)]] | None = None

    def query_log(self) -> QueryLog:
        """Return the record without its tenant."""
        values = {name: getattr(self, name) for name in QueryLog.__dataclass_fields__}
        return QueryLog(**{**values, "degraded": tuple(self.degraded), "steps": tuple(self.steps or ())})


class QueryLogPointer(_Message):
    """Pointer to a record in the overflow bucket, which only the reader's settings name."""

    type: Literal["vectorforge.query_log_pointer"] = POINTER_TYPE
    key: str = Field(min_length=1, max_length=1024)


Fields = dict[str, Any]
"""Record as JSON types."""


def record_fields(tenant_id: str, log: QueryLog) -> Fields:
    """Return the record of a tenant; without a time it gets the current one."""
    if log.created_at is None:
        log = replace(log, created_at=datetime.now(UTC))
    return {"type": RECORD_TYPE, "version": VERSION, "tenant_id": tenant_id, **json_fields(log)}


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
