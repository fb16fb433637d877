"""The engine's documents: dictionaries in, what the ingestion stores out."""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from vectorforge.errors import ExtractionError, InvalidInputError
from vectorforge.ingestion.chunk import TextChunk
from vectorforge.ingestion.extract import media
from vectorforge.ingestion.extract.decode import clean, clean_json
from vectorforge.ingestion.recursive import MIN_CHARS, RecursiveSplitter
from vectorforge.ingestion.types import MAX_SOURCE_CHARS, ExtractedDocument

_BETWEEN_CHUNKS = "\n\n"
_OWN_FIELDS = frozenset({"content", "source_url", "title", "metadata", "chunk_index", "chunk_size"})


@dataclass(slots=True)
class SourceDocuments:
    """All dictionaries of one call that have the same ``source_url``."""

    source_url: str
    positions: list[int] = field(default_factory=list)
    """Where they stood in the call."""
    documents: list[Mapping[str, Any]] = field(default_factory=list)


def grouped(
    documents: Iterable[Mapping[str, Any]],
) -> tuple[list[SourceDocuments], dict[int, InvalidInputError]]:
    """The documents by their source, in the order of their first ones, and what is wrong with the others."""
    groups: dict[str, SourceDocuments] = {}
    refused: dict[int, InvalidInputError] = {}
    for position, document in enumerate(documents):
        try:
            flat = _checked(document)
        except InvalidInputError as exc:
            refused[position] = exc
            continue
        group = groups.setdefault(flat["source_url"], SourceDocuments(flat["source_url"]))
        group.positions.append(position)
        group.documents.append(flat)
    return list(groups.values()), refused


def as_stored(group: SourceDocuments, splitter: RecursiveSplitter) -> ExtractedDocument:
    """One document of all that was given of a source.

    Dictionaries with a ``chunk_index`` are chunks already, a later one taking the place of one with the same
    index; the others are cut, and come after them. Each chunk has ``external_id``: ``{source_url}#{index}``.

    Raises:
        ExtractionError: ``empty``: no chunk has 50 characters.
    """
    ready = {doc["chunk_index"]: doc["content"] for doc in group.documents if "chunk_index" in doc}
    whole = [clean(doc["content"])[0] for doc in group.documents if "chunk_index" not in doc]
    text, chunks, next_index = "", list[TextChunk](), max(ready, default=-1) + 1
    for index in sorted(ready):
        content = clean(ready[index])[0]
        chunks += _chunk(group, index, content.strip(), len(text) + _blanks_before(content))
        text += content + _BETWEEN_CHUNKS
    for content in whole:
        spans = splitter.spans(content)
        for index, (start, end) in enumerate(spans, start=next_index):
            part = content[start:end]
            if len(part.strip()) >= MIN_CHARS:
                chunks += _chunk(group, index, part.strip(), len(text) + start + _blanks_before(part))
        next_index += len(spans)
        text += content + _BETWEEN_CHUNKS
    if not chunks:
        raise ExtractionError(f"No passage of it has {MIN_CHARS} characters.", reason="empty")
    first = group.documents[0]
    return ExtractedDocument(
        source=group.source_url,
        text=text.removesuffix(_BETWEEN_CHUNKS),
        media_type=media.PLAIN,
        title=clean(first.get("title") or "")[0] or None,
        metadata=clean_json(_metadata(group))[0],
        chunks=tuple(chunks),
    )


def _checked(document: Mapping[str, Any]) -> dict[str, Any]:
    """A document with the fields of its ``metadata`` beside its own.

    Raises:
        InvalidInputError: A field is missing or of a wrong type.
    """
    if not isinstance(document, Mapping):
        raise InvalidInputError("A document must be a dictionary.", field="documents")
    nested = document.get("metadata") or {}
    if not isinstance(nested, Mapping):
        raise InvalidInputError("metadata must be a dictionary.", field="metadata")
    flat = {**nested, **{name: value for name, value in document.items() if name != "metadata"}}
    for name in ("content", "source_url"):
        if not isinstance(flat.get(name), str) or not flat[name].strip():
            raise InvalidInputError(f"{name} must be a text that is not empty.", field=name)
    if len(flat["source_url"]) > MAX_SOURCE_CHARS:
        raise InvalidInputError(
            f"source_url must have {MAX_SOURCE_CHARS:,} characters at most.", field="source_url"
        )
    if not isinstance(flat.get("title") or "", str):
        raise InvalidInputError("title must be a text.", field="title")
    index = flat.get("chunk_index", 0)
    if isinstance(index, bool) or not isinstance(index, int) or index < 0:
        raise InvalidInputError("chunk_index must be a number from 0.", field="chunk_index")
    return flat


def _metadata(group: SourceDocuments) -> dict[str, Any]:
    """What the first document says of its source, with the design's defaults."""
    first = group.documents[0]
    own = {name: value for name, value in first.items() if name not in _OWN_FIELDS}
    return {"doc_type": "unknown", **own, "source_url": group.source_url, "title": first.get("title") or ""}


def _chunk(group: SourceDocuments, index: int, text: str, start: int) -> list[TextChunk]:
    metadata = {
        "external_id": f"{group.source_url}#{index}",
        "chunk_index": index,
        "content_hash": hashlib.sha256(text.encode()).hexdigest(),
    }
    return [TextChunk(index, text, start, start + len(text), metadata=metadata)] if text else []


def _blanks_before(text: str) -> int:
    return len(text) - len(text.lstrip())
