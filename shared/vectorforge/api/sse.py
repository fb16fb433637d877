"""Query events as server-sent events (https://html.spec.whatwg.org/multipage/server-sent-events.html)."""

from collections.abc import Mapping

from pydantic import BaseModel

from vectorforge.api.json_events import encode_json, json_event
from vectorforge.api.problems import problem_of
from vectorforge.api.schemas.answer_figures import Latency, RetrievalStats
from vectorforge.api.schemas.answers import CitationBody, SourceBody, Structured
from vectorforge.api.schemas.events import DegradedData, DoneData, ErrorData, MetaData, SourcesData, UsageData
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
