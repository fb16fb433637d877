"""Query events as a UI message stream, version 1, of Vercel's AI SDK.

The labels of the text read ``[n]``, whatever the preset calls them; n is the number of a source.
"""

from collections.abc import Iterator, Mapping, Sequence

from vectorforge.api.openai.labels import LabelRewriter
from vectorforge.api.problems import problem_of
from vectorforge.api.streaming.sse import encode_json, json_event
from vectorforge.api.ui_chat import parts
from vectorforge.api.ui_chat.parts import Part
from vectorforge.errors import VectorForgeError
from vectorforge.pipeline.types import (
    Citation,
    CitationEvent,
    DegradedEvent,
    DoneEvent,
    ErrorEvent,
    MetaEvent,
    QueryEvent,
    SourceCitation,
    SourcesEvent,
    TokenEvent,
    UsageEvent,
)

_TEXT_ID = "answer"
_DONE = b"data: [DONE]\n\n"


class UIMessageEncoder:
    """Makes the parts of one answer.

    Args:
        request_id: For the problem of an error.
    """

    def __init__(self, *, request_id: str) -> None:
        self.request_id = request_id
        self.headers: Mapping[str, str] = {"x-vercel-ai-ui-message-stream": "v1"}
        self._sources: Sequence[SourceCitation] = ()
        self._labels = LabelRewriter()
        self._text_sent = ""
        self._citations: list[Citation] = []
        self._usage: UsageEvent | None = None

    def encode(self, event: QueryEvent) -> bytes:
        """The parts that say what the event says; those of the last event end the stream."""
        encoded = b"".join(_encoded(part) for part in self._parts(event))
        return encoded + _DONE if isinstance(event, DoneEvent | ErrorEvent) else encoded

    def encode_failure(self, error: Exception, partial_answer: str) -> bytes:
        """The end of a stream that an unforeseen exception broke off; its text stays here."""
        own = error if isinstance(error, VectorForgeError) else VectorForgeError()
        return self.encode(ErrorEvent(own, "generate", partial_answer))

    def _parts(self, event: QueryEvent) -> Iterator[Part]:
        match event:
            case MetaEvent():
                yield parts.start(event)
            case SourcesEvent():
                yield from self._sources_found(event)
            case DegradedEvent():
                yield parts.degraded(event)
            case TokenEvent():
                yield from self._text(self._labels.feed(event.text))
            case CitationEvent():
                self._citations.append(event.citation)
                yield parts.judged(event.citation)
            case UsageEvent():
                self._usage = event
            case DoneEvent():
                yield from self._text_end()
                yield parts.finish(event.result, self._usage)
            case ErrorEvent():
                yield from self._failure(event)

    def _sources_found(self, event: SourcesEvent) -> Iterator[Part]:
        self._sources = event.sources
        found = {passage.chunk.id: passage for passage in event.retrieved_chunks}
        self._labels = LabelRewriter([found[s.chunk_id] for s in event.sources if s.chunk_id in found])
        yield parts.retrieval(event)
        for number, passage in enumerate(event.sources, start=1):
            yield parts.source(number, passage)

    def _text(self, text: str) -> Iterator[Part]:
        if not text:  # what may become a label is held back
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
            parts.citation(found, self._sources[found.source_number - 1], self._span(found))
            for found in map(self._labels.locate, self._citations)
        ]
        yield {"type": "text-end", "id": _TEXT_ID, "citations": citations}

    def _span(self, found: Citation) -> tuple[int, int]:
        """Where its label is, in UTF-16 code units."""
        start = _utf16_length(self._text_sent[: found.start])
        return start, start + _utf16_length(self._text_sent[found.start : found.end])

    def _failure(self, event: ErrorEvent) -> Iterator[Part]:
        """``useChat`` reads nothing after ``error``, so the text is ended before it."""
        yield from self._text_end()
        problem = problem_of(event.error, request_id=self.request_id)
        yield parts.problem_data(problem, event.stage)
        yield {"type": "error", "errorText": problem.detail}
        yield {"type": "finish", "finishReason": "error"}


def _utf16_length(text: str) -> int:
    return len(text.encode("utf-16-le")) // 2


def _encoded(part: Part) -> bytes:
    return json_event(encode_json(part))
