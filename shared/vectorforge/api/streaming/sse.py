"""The bytes of server-sent events whose data is JSON, which every token of every door goes through.

FastAPI's ``format_sse_event`` looks for line ends three times in what can have none, and ``json.dumps`` makes
an encoder for each call: together most of what a token cost.

Query events as server-sent events (https://html.spec.whatwg.org/multipage/server-sent-events.html).
"""

import json
from collections.abc import Mapping

from pydantic import BaseModel

from vectorforge.api.native.answer_figures import Latency, RetrievalStats
from vectorforge.api.native.answer_schemas import CitationBody, SourceBody, Structured
from vectorforge.api.native.events import DegradedData, DoneData, ErrorData, MetaData, SourcesData, UsageData
from vectorforge.api.problems import problem_of
from vectorforge.errors import VectorForgeError
from vectorforge.pipeline.types import (
    CitationEvent,
    DegradedEvent,
    DoneEvent,
    ErrorEvent,
    MetaEvent,
    QueryEvent,
    SourcesEvent,
    TokenEvent,
    UsageEvent,
)

_ENCODER = json.JSONEncoder(ensure_ascii=False)
_LINE_ENDS = {"\x85": "\\u0085", "\u2028": "\\u2028", "\u2029": "\\u2029"}
"""No line ends for server-sent events, but for clients that split with ``str.splitlines`` (httpx does)."""

encode_json = _ENCODER.encode
"""A value as JSON on one line, with letters of all languages as they are."""


def json_event(data: str, *, event: str = "", number: int = 0) -> bytes:
    r"""One event (https://html.spec.whatwg.org/multipage/server-sent-events.html), blank line included.

    Args:
        data: JSON without line breaks, as ``encode_json`` and pydantic write it.
        event: Its name; "" leaves it out.
        number: Its id; 0 leaves it out.
    """
    if not data.isascii():
        for line_end, escaped in _LINE_ENDS.items():  # str.translate takes a hundred times as long
            data = data.replace(line_end, escaped)
    if event and number:
        return f"event: {event}\ndata: {data}\nid: {number}\n\n".encode()
    name = f"event: {event}\n" if event else ""
    identifier = f"id: {number}\n" if number else ""
    return f"{name}data: {data}\n{identifier}\n".encode()


class EventEncoder:
    """Our own format: numbers and encodes the events of one stream.

    Args:
        request_id: For the problem document of an error.
        problem_prefix: Put before the detail of a 5xx.
        with_sources: False sends ``sources`` with an empty list.
        last_id: Of the event before the first one.
    """

    def __init__(
        self, *, request_id: str, problem_prefix: str = "", with_sources: bool = True, last_id: int = 0
    ) -> None:
        self.request_id = request_id
        self.headers: Mapping[str, str] = {}
        self._problem_prefix = problem_prefix
        self._with_sources = with_sources
        self._last_id = last_id

    def encode(self, event: QueryEvent) -> bytes:
        """The event as it goes over the wire, blank line included."""
        self._last_id += 1
        if type(event) is TokenEvent:  # the common one, without a model's detour
            return json_event(f'{{"text": {encode_json(event.text)}}}', event="token", number=self._last_id)
        name, body = self._name_and_body(event)
        return json_event(body.model_dump_json(), event=name, number=self._last_id)

    def encode_failure(self, error: Exception, partial_answer: str) -> bytes:
        """The last event of a stream that an unforeseen exception ended; its text stays here."""
        own = error if isinstance(error, VectorForgeError) else VectorForgeError()
        return self.encode(ErrorEvent(own, "generate", partial_answer))

    def _name_and_body(self, event: QueryEvent) -> tuple[str, BaseModel]:
        match event:
            case MetaEvent():
                return "meta", _meta(event)
            case SourcesEvent():
                return "sources", self._sources(event)
            case DegradedEvent():
                return "degraded", _degraded(event)
            case CitationEvent():
                return "citation", CitationBody.of(event.citation)
            case UsageEvent():
                return "usage", _usage(event)
            case DoneEvent():
                return "done", _done(event)
            case ErrorEvent():
                return "error", self._error(event)
            case TokenEvent():
                raise AssertionError("encode() deals with tokens")

    def _sources(self, event: SourcesEvent) -> SourcesData:
        numbered = enumerate(event.sources, start=1) if self._with_sources else ()
        return SourcesData(
            sources=[SourceBody.of(number, source) for number, source in numbered],
            retrieval_ms=event.retrieval_latency_ms,
        )

    def _error(self, event: ErrorEvent) -> ErrorData:
        problem = problem_of(event.error, request_id=self.request_id, prefix=self._problem_prefix)
        return ErrorData(**problem.model_dump(), stage=event.stage, partial_answer=event.partial_answer)


def _meta(event: MetaEvent) -> MetaData:
    return MetaData(
        request_id=event.request_id,
        collection_id=event.collection_id,
        provider=event.provider,
        model=event.model,
        extractive=event.extractive,
        query_truncated=event.query_truncated,
        cached=event.cached,
        variant=event.variant,
        conversation_id=event.conversation_id,
        rewritten_query=event.rewritten_query,
    )


def _degraded(event: DegradedEvent) -> DegradedData:
    return DegradedData(
        step=event.step,
        reason=event.reason,
        provider=event.provider,
        model=event.model,
        extractive=event.extractive,
    )


def _usage(event: UsageEvent) -> UsageData:
    return UsageData(
        prompt_tokens=event.prompt_tokens,
        completion_tokens=event.completion_tokens,
        total_tokens=event.total_tokens,
        estimated=event.estimated,
    )


def _done(event: DoneEvent) -> DoneData:
    result = event.result
    return DoneData(
        finish_reason=result.finish_reason,
        outcome=result.outcome,
        answer=result.answer,
        invalid_citations=result.invalid_citations,
        latency=Latency.of(result),
        retrieval_stats=RetrievalStats.of(result),
        structured=Structured.of(result),
        **DoneData.fields_of(result),
    )
