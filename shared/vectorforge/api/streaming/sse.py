"""Native server-sent events of a query: their data, encoding and OpenAPI description.

Order: ``meta``, ``plan`` and ``search`` for each step of a search with ``effort`` or ``intents``,
``sources``, ``degraded`` if the full answer is not available, then ``token`` and ``citation`` mixed,
``usage``, and last exactly one of ``done`` or ``error``. A stream without one was cut off. A ``citation``
follows the end of its sentence, which its verdict requires: after the label's own tokens, in the order of the
labels, and before ``usage``.

``json_event`` encodes every token of every surface. FastAPI's ``format_sse_event`` scans three times for line
ends that JSON cannot have, and ``json.dumps`` creates an encoder per call: 5.3 instead of 0.5 µs a token, or
1 ms of the 7 ms CPU of a query with 200 tokens.
https://html.spec.whatwg.org/multipage/server-sent-events.html
"""

import json
from collections.abc import Mapping
from typing import Any, Protocol
from uuid import UUID

from fastapi.sse import KEEPALIVE_COMMENT
from pydantic import BaseModel, Field

from vectorforge.api.answers import (
    AnswerDetails,
    CitationBody,
    DocRagQuality,
    Latency,
    Quality,
    RetrievalStats,
    SourceBody,
    StepBody,
    Structured,
    numbered_sources,
)
from vectorforge.api.error_schemas import Problem
from vectorforge.api.problems import problem_of
from vectorforge.api.schemas import Body
from vectorforge.pipeline.step_types import StepEvent
from vectorforge.pipeline.types import (
    CitationEvent,
    Degradation,
    DegradedEvent,
    DoneEvent,
    ErrorEvent,
    MetaEvent,
    QueryEvent,
    SourcesEvent,
    TokenEvent,
    ToolCallEvent,
    UsageEvent,
)


class MetaData(Body):
    """Event ``meta``: ids and the answering model."""

    request_id: UUID = Field(description="Also the id of the query's log record.")
    collection_id: UUID
    provider: str | None
    model: str | None
    extractive: bool
    query_truncated: bool
    cached: bool
    variant: str | None
    conversation_id: UUID | None
    rewritten_query: str | None


class PlanData(StepBody):
    """Event ``plan``: the sub-queries of a round."""


class SearchData(StepBody):
    """Event ``search``: a search has ended, for a query or several, or within one document."""


class SourcesData(BaseModel):
    """Event ``sources``: the chunks for the model, which gets the first ``funnel.used`` of them."""

    sources: list[SourceBody]
    retrieval_ms: float


class DegradedData(Body):
    """Event ``degraded``: the replacement of an unavailable full answer."""

    step: Degradation
    reason: str = Field(description="Code of the error that led to it.")
    provider: str | None
    model: str | None
    extractive: bool


class TokenData(BaseModel):
    """Event ``token``: a piece of the answer; the pieces joined are the answer."""

    text: str


class CitationData(CitationBody):
    """Event ``citation``: a label in the text so far names a source; sent when its sentence has ended."""


class UsageData(Body):
    """Event ``usage``: tokens as counted by the vendor, unless ``estimated``."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    estimated: bool = False


class DoneData(AnswerDetails):
    """Event ``done``: the query succeeded."""

    finish_reason: str
    outcome: str
    answer: str
    invalid_citations: int
    latency: Latency
    retrieval_stats: RetrievalStats
    quality: DocRagQuality | Quality | None = Field(description="Null without chunks to measure it by.")
    structured: Structured | None = Field(description="Null unless the model was requested to return JSON.")


class ErrorData(Problem):
    """Event ``error``: the query failed; a problem document with two more members."""

    stage: str = Field(description="preprocess | retrieve | context | generate")
    partial_answer: str = Field(description="Text sent as tokens so far.")


EVENT_DATA: dict[str, type[BaseModel]] = {
    "meta": MetaData,
    "plan": PlanData,
    "search": SearchData,
    "sources": SourcesData,
    "degraded": DegradedData,
    "token": TokenData,
    "citation": CitationData,
    "usage": UsageData,
    "done": DoneData,
    "error": ErrorData,
}
"""Name of each event -> model of its data."""


_LINE_ENDS = {"\x85": "\\u0085", "\u2028": "\\u2028", "\u2029": "\\u2029"}
"""No line ends in server-sent events, but in clients that use ``str.splitlines`` (httpx)."""

encode_json = json.JSONEncoder(ensure_ascii=False).encode
"""Encoder of a value as JSON on one line, without escapes of non-ASCII letters."""


def json_event(data: str, *, event: str = "", number: int = 0) -> bytes:
    r"""Encode one event (https://html.spec.whatwg.org/multipage/server-sent-events.html).

    ``data`` is JSON without line breaks. An empty name and the number 0 are left out.
    """
    if not data.isascii():
        for line_end, escaped in _LINE_ENDS.items():  # str.translate is 100 times as slow
            data = data.replace(line_end, escaped)
    if event and number:
        return f"event: {event}\ndata: {data}\nid: {number}\n\n".encode()
    name = f"event: {event}\n" if event else ""
    identifier = f"id: {number}\n" if number else ""
    return f"{name}data: {data}\n{identifier}\n".encode()


class QueryEventEncoder(Protocol):
    """Encoder of one stream's events in the wire format of its surface."""

    request_id: str
    """Id of the request in the logs."""
    headers: Mapping[str, str]
    """Headers in addition to those of every event stream; ``Content-Type`` replaces its media type."""
    ping: bytes
    """Sent after a silence, to keep the connection alive."""

    def encode(self, event: QueryEvent) -> bytes:
        """Encode an event as whole server-sent events; empty if the format has none for it.

        ``DoneEvent`` and ``ErrorEvent`` are last, and also encode the end of the stream.
        """


class EventEncoder:
    """Encodes the events of one stream in the native format, with ids.

    Args:
        request_id: Id for the problem document of an error.
        problem_prefix: Prefix of the detail of a 5xx.
        with_sources: False sends ``sources`` with an empty list.
        last_id: Id of the event before the first one.
    """

    ping = KEEPALIVE_COMMENT

    def __init__(
        self, *, request_id: str, problem_prefix: str = "", with_sources: bool = True, last_id: int = 0
    ) -> None:
        self.request_id = request_id
        self.headers: Mapping[str, str] = {}
        self._problem_prefix = problem_prefix
        self._with_sources = with_sources
        self._last_id = last_id

    def encode(self, event: QueryEvent) -> bytes:
        """Encode an event, including the blank line after it."""
        self._last_id += 1
        if type(event) is TokenEvent:  # frequent, so not through a model
            return json_event(f'{{"text": {encode_json(event.text)}}}', event="token", number=self._last_id)
        name, body = self._name_and_body(event)
        return json_event(body.model_dump_json(), event=name, number=self._last_id)

    def _name_and_body(self, event: QueryEvent) -> tuple[str, BaseModel]:
        match event:
            case MetaEvent():
                return "meta", MetaData.of(event)
            case StepEvent(step):
                is_plan = step.kind == "plan"
                return ("plan", PlanData.of(step)) if is_plan else ("search", SearchData.of(step))
            case SourcesEvent():
                sources = numbered_sources(event.sources) if self._with_sources else []
                return "sources", SourcesData(sources=sources, retrieval_ms=event.retrieval_latency_ms)
            case DegradedEvent():
                return "degraded", DegradedData.of(event)
            case CitationEvent():
                return "citation", CitationBody.of(event.citation)
            case UsageEvent():
                return "usage", UsageData.of(event)
            case DoneEvent():
                return "done", DoneData.of(event.result)
            case ErrorEvent():
                return "error", self._error(event)
            case TokenEvent() | ToolCallEvent():
                raise AssertionError("encode() deals with tokens, and native requests have no tools")

    def _error(self, event: ErrorEvent) -> ErrorData:
        problem = problem_of(event.error, request_id=self.request_id, prefix=self._problem_prefix)
        return ErrorData(**problem.model_dump(), stage=event.stage, partial_answer=event.partial_answer)


def nameless_events_content(description: str) -> dict[str, Any]:
    """Return the media type of a stream of unnamed events, whose data ``description`` describes."""
    data = {"type": "string", "description": description}
    schema = {"type": "object", "required": ["data"], "properties": {"data": data}}
    return {"text/event-stream": {"itemSchema": schema}}


def event_stream_content() -> dict[str, Any]:
    """Return the media type of a streamed answer: one schema for each event, by name.

    ``itemSchema`` is OpenAPI 3.2's way to describe sequential media types; FastAPI does so, too.
    """
    events = [_event_schema(name, data.__name__) for name, data in EVENT_DATA.items()]
    return {"text/event-stream": {"itemSchema": {"oneOf": events}}}


def _event_schema(event: str, data: str) -> dict[str, Any]:
    return {
        "type": "object",
        "required": ["event", "data", "id"],
        "properties": {
            "event": {"const": event},
            "id": {"type": "string", "description": "1, 2, 3 and so on."},
            "data": {
                "type": "string",
                "contentMediaType": "application/json",
                "contentSchema": {"$ref": f"#/components/schemas/{data}"},
            },
        },
    }
