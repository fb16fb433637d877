"""Query events as a UI message stream, version 1, of Vercel's AI SDK.

https://ai-sdk.dev/docs/ai-sdk-ui/stream-protocol (``ai`` 7). Names in our own data and metadata are in camel
case, as the AI SDK's. Labels in the text are ``[n]`` for every preset; n is the number of a source.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any, TypeAlias

from fastapi.sse import KEEPALIVE_COMMENT
from pydantic.alias_generators import to_camel

from vectorforge.api.answers import SourceBody, link_to, numbered_sources, title_of
from vectorforge.api.error_schemas import Problem
from vectorforge.api.openai.labels import LabelRewriter
from vectorforge.api.problems import problem_of
from vectorforge.api.streaming.sse import DegradedData, DoneData, MetaData, encode_json, json_event
from vectorforge.pipeline.types import (
    Citation,
    CitationEvent,
    DegradedEvent,
    DoneEvent,
    ErrorEvent,
    MetaEvent,
    QueryEvent,
    QueryResult,
    SourceCitation,
    SourcesEvent,
    TokenEvent,
    UsageEvent,
)
from vectorforge.types import Location

Part: TypeAlias = dict[str, Any]

_FINISH_REASONS: Mapping[str, str] = {
    "stop": "stop",
    "empty": "stop",
    "length": "length",
    "content_filter": "content-filter",
    "deadline": "interrupted",
}
_MEDIA_TYPES: Mapping[str, str] = {
    ".md": "text/markdown",
    ".markdown": "text/markdown",
    ".html": "text/html",
    ".htm": "text/html",
    ".pdf": "application/pdf",
    ".docx": "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
    ".csv": "text/csv",
    ".jsonl": "application/x-ndjson",
}
"""Media type by extension, since a source has a name only; other extensions are text."""


_OF_SOURCE = {
    "number", "document_id", "document_source", "heading", "score", "snippet", "start_offset", "end_offset",
    "locations", "location_text",
}  # fmt: skip


def _start(event: MetaEvent) -> Part:
    """Return the start of the message, with its id and the answering model."""
    metadata = camel_case(MetaData.of(event).model_dump(mode="json"))
    return {"type": "start", "messageId": str(event.request_id), "messageMetadata": metadata}


def _retrieval(event: SourcesEvent) -> Part:
    """Return the figures of the search, which do not become part of the message."""
    data = {
        "found": len(event.retrieved_chunks),
        "used": len(event.sources),
        "retrievalMs": event.retrieval_latency_ms,
    }
    return {"type": "data-retrieval", "data": data, "transient": True}


def _source(body: SourceBody, chunk: SourceCitation) -> Part:
    """Return a source as ``source-url`` or ``source-document``; its id is the chunk's."""
    return {
        "type": "source-url" if chunk.source_url else "source-document",
        "sourceId": str(chunk.chunk_id),
        **_described(chunk, chunk.locations),
        "providerMetadata": {"vectorforge": camel_case(body.model_dump(mode="json", include=_OF_SOURCE))},
    }


def _judged(citation: Citation) -> Part:
    """Return a citation for ``onData`` while the text streams; not part of the message."""
    data = {"sourceId": str(citation.chunk_id), **_cited(citation)}
    return {"type": "data-citation", "data": data, "transient": True}


def _cited(citation: Citation) -> Part:
    return {
        "number": citation.source_number,
        "verdict": citation.verdict,
        "startOffset": citation.start_offset,
        "endOffset": citation.end_offset,
        "locations": list(citation.locations),
        "locationText": citation.location_text,
    }


def _citation(citation: Citation, chunk: SourceCitation, span: tuple[int, int]) -> Part:
    """Return a member of a text part's ``citations``; the span is in UTF-16 code units, as in JavaScript."""
    cited = {
        "type": "source",
        "sourceType": "url" if chunk.source_url else "document",
        "id": str(chunk.chunk_id),
        **_described(chunk, citation.locations),
        "providerMetadata": {"vectorforge": _cited(citation)},
    }
    return {"source": cited, "startIndex": span[0], "endIndex": span[1], "citedText": chunk.text}


def _problem_data(problem: Problem, stage: str) -> Part:
    """Return an error for programs, sent before ``error``, which has a text only; not part of the message."""
    data = {**problem.model_dump(mode="json", exclude_none=True), "stage": stage}
    return {"type": "data-problem", "data": camel_case(data), "transient": True}


def _finish(result: QueryResult, usage: UsageEvent | None) -> Part:
    """Return the end of the answer: reason, tokens and details."""
    metadata = DoneData.of(result).model_dump(mode="json", exclude={"finish_reason", "answer"})
    counted = {"usage": _usage(usage)} if usage else {}
    return {
        "type": "finish",
        "finishReason": _FINISH_REASONS.get(result.finish_reason, "other"),
        "messageMetadata": {**camel_case(metadata), **counted},
    }


def camel_case(value: Any) -> Any:
    """Return the JSON value with the keys of its objects in camel case."""
    if isinstance(value, Mapping):
        return {to_camel(key): camel_case(item) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [camel_case(item) for item in value]
    return value


def _usage(event: UsageEvent) -> Part:
    return {
        "inputTokens": event.prompt_tokens,
        "outputTokens": event.completion_tokens,
        "totalTokens": event.total_tokens,
        "estimated": event.estimated,
    }


def _described(chunk: SourceCitation, locations: Sequence[Location]) -> Part:
    title = title_of(chunk, locations)
    if url := link_to(chunk, locations):
        return {"url": url, "title": title}
    extension = PurePosixPath(chunk.document_source).suffix.lower()
    media_type = _MEDIA_TYPES.get(extension, "text/plain")
    return {"mediaType": media_type, "title": title, "filename": chunk.document_source}


_TEXT_ID = "answer"
_DONE = b"data: [DONE]\n\n"


class UIMessageEncoder:
    """Makes the parts of one answer."""

    def __init__(self, *, request_id: str) -> None:
        self.request_id = request_id
        self.headers: Mapping[str, str] = {"x-vercel-ai-ui-message-stream": "v1"}
        self.ping = KEEPALIVE_COMMENT
        self._sources: Sequence[SourceCitation] = ()
        self._labels = LabelRewriter()
        self._text_sent = ""
        self._citations: list[Citation] = []
        self._usage: UsageEvent | None = None

    def encode(self, event: QueryEvent) -> bytes:
        """Encode an event as parts; those of the last event end the stream."""
        encoded = b"".join(json_event(encode_json(part)) for part in self._parts(event))
        return encoded + _DONE if isinstance(event, DoneEvent | ErrorEvent) else encoded

    def _parts(self, event: QueryEvent) -> Iterator[Part]:
        match event:
            case MetaEvent():
                yield _start(event)
            case SourcesEvent():
                yield from self._sources_found(event)
            case DegradedEvent():
                yield {"type": "data-degraded", "data": DegradedData.of(event).model_dump(mode="json")}
            case TokenEvent():
                yield from self._text(self._labels.feed(event.text))
            case CitationEvent():
                self._citations.append(event.citation)
                yield _judged(event.citation)
            case UsageEvent():
                self._usage = event
            case DoneEvent():
                yield from self._text_end()
                yield _finish(event.result, self._usage)
            case ErrorEvent():
                yield from self._failure(event)

    def _sources_found(self, event: SourcesEvent) -> Iterator[Part]:
        self._sources = event.sources
        chunks = {chunk.chunk.id: chunk for chunk in event.retrieved_chunks}
        self._labels = LabelRewriter([chunks[s.chunk_id] for s in event.sources if s.chunk_id in chunks])
        yield _retrieval(event)
        for body, chunk in zip(numbered_sources(event.sources), event.sources, strict=True):
            yield _source(body, chunk)

    def _text(self, text: str) -> Iterator[Part]:
        if not text:  # a possible label is held back
            return
        if not self._text_sent:
            yield {"type": "text-start", "id": _TEXT_ID}
        self._text_sent += text
        yield {"type": "text-delta", "id": _TEXT_ID, "delta": text}

    def _text_end(self) -> Iterator[Part]:
        yield from self._text(self._labels.finish())
        if not self._text_sent:
            return
        citations = [
            _citation(citation, self._sources[citation.source_number - 1], self._span(citation))
            for citation in map(self._labels.locate, self._citations)
        ]
        yield {"type": "text-end", "id": _TEXT_ID, "citations": citations}

    def _span(self, citation: Citation) -> tuple[int, int]:
        """Return the position of its label, in UTF-16 code units."""
        start = _utf16_length(self._text_sent[: citation.start])
        return start, start + _utf16_length(self._text_sent[citation.start : citation.end])

    def _failure(self, event: ErrorEvent) -> Iterator[Part]:
        """``useChat`` reads nothing after ``error``, so the text is ended before it."""
        yield from self._text_end()
        problem = problem_of(event.error, request_id=self.request_id)
        yield _problem_data(problem, event.stage)
        yield {"type": "error", "errorText": problem.detail}
        yield {"type": "finish", "finishReason": "error"}


def _utf16_length(text: str) -> int:
    return len(text.encode("utf-16-le")) // 2
