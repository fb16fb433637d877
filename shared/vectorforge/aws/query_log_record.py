"""A query log on its way: the JSON that goes through the queue, into the bucket and onto stdout.

It is ASCII only. SQS refuses some characters and PostgreSQL others, and a record must not be lost because of
what was asked: NUL and halves of surrogate pairs become U+FFFD, everything else is escaped.
"""

import json
from collections.abc import Mapping
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
from vectorforge.db.types import checked_tenant
from vectorforge.errors import InvalidInputError
from vectorforge.pipeline.types import LoggedOutcome

RECORD_TYPE: Final = "vectorforge.query_log"
POINTER_TYPE: Final = "vectorforge.query_log_pointer"
VERSION: Final = 1
MAX_RECORD_BYTES = 8 * 1024 * 1024
"""Largest record, as ASCII; longer texts are cut. A batch of ten stays far below what jsonb can hold."""

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
"""A clock that is set, and a time that every client can show: PostgreSQL's go from 4713 BC to 294276 AD."""
_TenantId = Annotated[str, AfterValidator(checked_tenant)]


class _Message(BaseModel):
    # Fields of a newer version are passed over: a change that must be understood raises VERSION.
    model_config = ConfigDict(frozen=True, extra="ignore", hide_input_in_errors=True)

    version: Literal[1] = VERSION
    tenant_id: _TenantId
    id: UUID


class QueryLogRecord(_Message):
    """One record with its tenant, held to every limit that the table has."""

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
        """The record without its tenant."""
        values = {name: getattr(self, name) for name in QueryLog.__dataclass_fields__}
        return QueryLog(**{**values, "degraded": tuple(self.degraded)})


class QueryLogPointer(_Message):
    """Says that the record lies in the overflow bucket; which one that is, only the reader's settings say."""

    type: Literal["vectorforge.query_log_pointer"] = POINTER_TYPE
    key: str = Field(min_length=1, max_length=1024)


Fields = dict[str, Any]
"""A record before it becomes text: JSON types only."""


def record_fields(tenant_id: str, log: QueryLog) -> Fields:
    """The record of a tenant; without a time of its own it gets the present one."""
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
    """What goes through the queue for a record that is too large for it."""
    stage = "started" if record["outcome"] == "started" else "ended"
    day = record["created_at"][:10]
    key = f"query-logs/{quote(record['tenant_id'], safe='')}/{day}/{record['id']}-{stage}.json"
    common = {name: record[name] for name in ("version", "tenant_id", "id")}
    return {"type": POINTER_TYPE, **common, "key": key}


def to_json(fields: Mapping[str, Any]) -> str:
    """The fields as one line of ASCII.

    Raises:
        ValueError: A number is infinite or none.
    """
    return json.dumps(fields, ensure_ascii=True, allow_nan=False, separators=(",", ":"))


def cut_to(record: Mapping[str, Any], max_bytes: int) -> str:
    """The record as one line of ASCII of at most so many bytes; what is cut off a text is counted at its end.

    Args:
        record: From ``record_fields``.
        max_bytes: At least 100,000, which a record with every list full and every text empty stays below.
    """
    texts = {name: value for name, value in record.items() if isinstance(value, str)}
    left_out = dict.fromkeys(("query_text", "generated_response"), 0)
    line = to_json(record)
    while len(line) > max_bytes and any(texts[name] for name in left_out):
        name = max(left_out, key=lambda name: len(json.dumps(texts[name])))
        size = len(json.dumps(texts[name]))
        kept = int(len(texts[name]) * max(0, size - (len(line) - max_bytes) - len(_CUT) - 10) / size)
        left_out[name] += len(texts[name]) - kept
        texts[name] = texts[name][:kept]
        marked = {n: texts[n] + _CUT.format(count) for n, count in left_out.items() if count}
        line = to_json({**record, **marked})
    return line


def parse_message(text: str | bytes) -> QueryLogRecord | QueryLogPointer:
    """A record, or the pointer to one.

    Raises:
        InvalidInputError: It is neither; the text names fields and what is wrong, never what they hold.
    """
    try:
        fields = json.loads(text)
    except (ValueError, RecursionError) as exc:
        raise InvalidInputError("The message is not JSON.") from exc
    kind = fields.get("type") if isinstance(fields, dict) else None
    if kind not in (RECORD_TYPE, POINTER_TYPE):
        raise InvalidInputError("The message is no query log.")
    try:
        return (QueryLogRecord if kind == RECORD_TYPE else QueryLogPointer).model_validate(fields)
    except ValidationError as exc:
        found = exc.errors(include_input=False, include_context=False, include_url=False)
        places = (f"{'.'.join(map(str, error['loc']))}: {error['type']}" for error in found[:10])
        raise InvalidInputError(f"The query log is not usable: {'; '.join(places)}.") from exc
