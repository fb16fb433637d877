"""Citations of an answer as Bedrock has them: parts of a text without labels, each with its references.

A part is the sentence of a label, or its share of a sentence with several. As in Bedrock's own responses, the
end of a span is the offset of its last character.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias
from uuid import UUID

from vectorforge.api.openai.labels import LabelRewriter
from vectorforge.pipeline.citations.check import sentence_end
from vectorforge.pipeline.types import Citation
from vectorforge.types import Location, RetrievedChunk

Structure: TypeAlias = dict[str, Any]
"""A structure of the service model."""

_BETWEEN_PARTS = " \t\n,;:"


class CitedText:
    """Removes the labels of one answer, whole or piece by piece, and returns its cited parts.

    Args:
        chunks: Chunks in the prompt in the order of their labels.
    """

    def __init__(self, chunks: Sequence[RetrievedChunk] = ()) -> None:
        self.text = ""
        """Text without labels so far."""
        self._labels = LabelRewriter(chunks, keeps_labels=False)
        self._chunks: Mapping[UUID, RetrievedChunk] = {chunk.chunk.id: chunk for chunk in chunks}
        self._waiting: list[Citation] = []
        self._cut = 0
        self._has_parts = False

    def feed(self, text: str) -> str:
        """Add a piece of the answer; return the text that is final after it."""
        return self._add(self._labels.feed(text))

    def finish(self) -> str:
        """Return the remaining text at the end of the answer."""
        return self._add(self._labels.finish())

    def cite(self, citation: Citation) -> None:
        """Add a citation; those of one sentence are added without a piece between them."""
        self._waiting.append(citation)

    def parts(self) -> Iterator[Structure]:
        """Yield the parts of the citations added since the last call."""
        groups: list[tuple[int, list[Citation]]] = []
        for citation in self._waiting:
            at = self._labels.locate(citation).start
            if not groups or groups[-1][0] != at:
                groups.append((at, []))
            groups[-1][1].append(citation)
        self._waiting = []
        following = [at for at, _ in groups[1:]]
        for (at, citations), next_at in zip(groups, [*following, len(self.text)], strict=True):
            self._has_parts = True
            yield _part(self.text, self._range(at, next_at), self._references(citations))

    def last_parts(self) -> Iterator[Structure]:
        """Yield the remaining parts; a text without any is one part without references."""
        yield from self.parts()
        if not self._has_parts:
            yield _part(self.text, (0, len(self.text)), [])

    def _add(self, text: str) -> str:
        self.text += text
        return text

    def _range(self, at: int, next_at: int) -> tuple[int, int]:
        """Return the start and the end of the part of a label at this offset."""
        start = self._cut
        end = self._sentence_end(start)
        while end < at and self.text[end:at].strip():
            start, end = end, self._sentence_end(end)
        if at < next_at < end:
            end = next_at if not self.text[start:at].strip(_BETWEEN_PARTS) else at
        self._cut = max(end, self._cut)
        return start, end

    def _sentence_end(self, start: int) -> int:
        return sentence_end(self.text, start, is_whole=True) or len(self.text)

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
