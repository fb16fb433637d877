"""Answers of RetrieveAndGenerate, whole and as messages of an AWS event stream, with cited parts.

A part is the sentence of a label, or its share of a sentence with several; its text has no labels. As in
Bedrock's own responses, the end of a span is the offset of its last character. Messages are a prelude (its
length and that of its headers) with a CRC, headers, a JSON payload, and a CRC of all before, in big-endian
numbers (https://smithy.io/2.0/aws/amazon-eventstream.html).
"""

import struct
import zlib
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, TypeAlias
from uuid import UUID

from vectorforge.api.error_schemas import aws_error, aws_exception
from vectorforge.api.openai.labels import LabelRewriter
from vectorforge.api.problems import problem_of
from vectorforge.api.streaming.sse import encode_json
from vectorforge.pipeline.citations.check import sentence_end
from vectorforge.pipeline.types import (
    Citation,
    CitationEvent,
    DoneEvent,
    ErrorEvent,
    QueryEvent,
    QueryResult,
    SourcesEvent,
    TokenEvent,
)
from vectorforge.types import Location, RetrievedChunk

Structure: TypeAlias = dict[str, Any]
"""A structure of the service model."""

_BETWEEN_PARTS = " \t\n,;:"


class CitedText:
    """Removes the labels of one answer, whole or piece by piece, and returns its cited parts.

    The chunks are those in the prompt, in the order of their labels.
    """

    def __init__(self, chunks: Sequence[RetrievedChunk] = ()) -> None:
        self.text = ""
        """Text without labels so far."""
        self._labels = LabelRewriter(chunks, keeps_labels=False)
        self._chunks: Mapping[UUID, RetrievedChunk] = {chunk.chunk.id: chunk for chunk in chunks}
        self._waiting: list[Citation] = []
        """Citations whose part is not complete, in order."""
        self._cut = 0
        self._has_parts = False

    def feed(self, text: str) -> str:
        """Add a piece of the answer; return the text that is final after it."""
        return self._add(self._labels.feed(text))

    def finish(self) -> str:
        """Return the remaining text at the end of the answer."""
        return self._add(self._labels.finish())

    def cite(self, citation: Citation) -> None:
        """Add a citation, in the order of the answer."""
        self._waiting.append(citation)

    def parts(self, *, is_whole: bool = False) -> Iterator[Structure]:
        """Yield the parts whose end is certain; of a whole text, after ``finish``, all.

        A whole text without citations is one part without references.
        """
        while self._waiting and self._labels.has_emitted(self._waiting[0]):
            at = self._labels.locate(self._waiting[0]).start
            bounds, removed = self._bounds(at, is_whole=is_whole), self._labels.removed_at
            numbers = max(1, bisect_right(removed, at) - bisect_left(removed, at))
            group = [c for c in self._waiting[:numbers] if self._labels.locate(c).start == at]
            may_grow = len(group) == len(self._waiting) < numbers
            if bounds is None or (may_grow and not is_whole):
                return
            del self._waiting[: len(group)]
            self._cut, self._has_parts = max(self._cut, bounds[1]), True
            yield _part(self.text, bounds, self._references(group))
        if is_whole and not self._has_parts:
            yield _part(self.text, (0, len(self.text)), [])

    def _add(self, text: str) -> str:
        self.text += text
        return text

    def _bounds(self, at: int, *, is_whole: bool) -> tuple[int, int] | None:
        """Return the start and the end of the part of a label at this offset; None if more text is needed."""
        start = len(self.text) - len(self.text[self._cut :].lstrip())
        end = sentence_end(self.text, start, is_whole=is_whole)
        while end is not None and end < at and self.text[end:at].strip():
            start, end = end, sentence_end(self.text, end, is_whole=is_whole)
        following = bisect_right(self._labels.removed_at, at)
        if end is not None and following < len(self._labels.removed_at):
            next_at = self._labels.removed_at[following]
            if next_at < end:  # a label of the same sentence
                end = at if self.text[start:at].strip(_BETWEEN_PARTS) else next_at
        is_certain = is_whole or (end is not None and self.text[end:].strip())
        return (start, end) if end is not None and is_certain else None

    def _references(self, citations: Sequence[Citation]) -> list[Structure]:
        locations = {citation.chunk_id: citation.locations for citation in citations}
        return [
            reference_to(self._chunks[chunk_id], places)
            for chunk_id, places in locations.items()
            if chunk_id in self._chunks
        ]


def _part(text: str, part: tuple[int, int], references: list[Structure]) -> Structure:
    start, end = part
    cited = text[start:end].lstrip(_BETWEEN_PARTS)
    start = end - len(cited)
    cited = cited.rstrip()
    span = {"start": start, "end": max(start, start + len(cited) - 1)}
    return {
        "generatedResponsePart": {"textResponsePart": {"text": cited, "span": span}},
        "retrievedReferences": references,
    }


def reference_to(retrieved: RetrievedChunk, locations: Sequence[Location]) -> Structure:
    """Return a chunk with its source and metadata; ``locations`` are those that are cited or found."""
    return {
        "content": {"type": "TEXT", "text": retrieved.chunk.text},
        "location": _source_of(retrieved.document_source),
        "metadata": _metadata_of(retrieved, locations),
    }


def _source_of(source: str) -> Structure:
    if source.startswith("s3://"):
        return {"type": "S3", "s3Location": {"uri": source}}
    if source.startswith(("http://", "https://")):
        return {"type": "WEB", "webLocation": {"url": source}}
    return {"type": "CUSTOM", "customDocumentLocation": {"id": source}}


def _metadata_of(retrieved: RetrievedChunk, locations: Sequence[Location]) -> dict[str, Any]:
    """Return the chunk's metadata with the attributes that Bedrock adds."""
    page = next((location["page"] for location in locations if "page" in location), None)
    return {
        **retrieved.chunk.metadata,
        "x-amz-bedrock-kb-source-uri": retrieved.document_source,
        "x-amz-bedrock-kb-chunk-id": str(retrieved.chunk.id),
        **({"x-amz-bedrock-kb-document-page-number": page} if page is not None else {}),
    }


MEDIA_TYPE = "application/vnd.amazon.eventstream"

_STRING = 7
"""Type of a header's value."""
_AROUND_BYTES = 16
"""Bytes of the prelude and both CRCs."""


def event_message(name: str, payload: str) -> bytes:
    """Encode an event: a member of the service model's stream, such as "output", with JSON."""
    return _message(_headers("event", name), payload.encode())


def exception_message(name: str, payload: str) -> bytes:
    """Encode an error that ends the stream, with arguments as of ``event_message``."""
    return _message(_headers("exception", name), payload.encode())


@lru_cache(maxsize=32)
def _headers(kind: str, name: str) -> bytes:
    values = {f":{kind}-type": name, ":content-type": "application/json", ":message-type": kind}
    return b"".join(_header(key.encode(), value.encode()) for key, value in values.items())


def _header(name: bytes, value: bytes) -> bytes:
    return bytes([len(name)]) + name + struct.pack("!BH", _STRING, len(value)) + value


def _message(headers: bytes, payload: bytes) -> bytes:
    prelude = struct.pack("!II", _AROUND_BYTES + len(headers) + len(payload), len(headers))
    message = b"".join([prelude, struct.pack("!I", zlib.crc32(prelude)), headers, payload])
    return message + struct.pack("!I", zlib.crc32(message))


SESSION_HEADER = "x-amzn-bedrock-knowledge-base-session-id"


def whole_answer(result: QueryResult, session_id: str) -> Structure:
    """Return a ``RetrieveAndGenerateResponse``."""
    cited = CitedText(result.retrieved_chunks[: len(result.sources)])
    cited.feed(result.answer)
    cited.finish()
    for citation in result.citations:
        cited.cite(citation)
    return {
        "sessionId": session_id,
        "citations": list(cited.parts(is_whole=True)),
        "output": {"text": cited.text},
        "guardrailAction": _guardrail_action(result),
    }


def _guardrail_action(result: QueryResult) -> str:
    return "INTERVENED" if result.finish_reason == "content_filter" else "NONE"


class AnswerEventEncoder:
    """Encodes an answer as ``RetrieveAndGenerateStreamResponseOutput``, which equals ``whole_answer``.

    Events: ``output``, ``citation`` after the text of its sentence, and last ``guardrail`` or an exception.
    """

    ping = event_message("output", '{"text": ""}')

    def __init__(self, session_id: str, *, request_id: str) -> None:
        self.request_id = request_id
        self.headers: Mapping[str, str] = {"Content-Type": MEDIA_TYPE, SESSION_HEADER: session_id}
        self._cited = CitedText()

    def encode(self, event: QueryEvent) -> bytes:
        """Encode an event as messages."""
        return b"".join(self._messages(event))

    def _messages(self, event: QueryEvent) -> Iterator[bytes]:
        match event:
            case SourcesEvent():
                self._cited = CitedText(event.retrieved_chunks[: len(event.sources)])
            case TokenEvent():
                yield from self._output(self._cited.feed(event.text))
                yield from map(_citation, self._cited.parts())
            case CitationEvent():
                self._cited.cite(event.citation)
                yield from map(_citation, self._cited.parts())
            case DoneEvent():
                yield from self._output(self._cited.finish())
                yield from map(_citation, self._cited.parts(is_whole=True))
                yield event_message("guardrail", encode_json({"action": _guardrail_action(event.result)}))
            case ErrorEvent():
                yield from self._output(self._cited.finish())
                problem = problem_of(event.error, request_id=self.request_id)
                name = aws_exception(problem)
                yield exception_message(name[0].lower() + name[1:], encode_json(aws_error(problem)))
            case _:
                pass

    def _output(self, text: str) -> Iterator[bytes]:
        if text:
            yield event_message("output", f'{{"text": {encode_json(text)}}}')


def _citation(part: Structure) -> bytes:
    """Encode a citation also in the deprecated member that older clients read."""
    return event_message("citation", encode_json({**part, "citation": part}))
