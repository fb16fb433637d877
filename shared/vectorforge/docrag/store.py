"""Documents of the DocRag engine: dictionaries parsed, stored by source, and deleted."""

import asyncio
import hashlib
import logging
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any
from uuid import UUID

from vectorforge.bootstrap import TenantServices
from vectorforge.docrag.splitter import MIN_CHARS, RecursiveSplitter
from vectorforge.embedding.base import EmbeddingProvider
from vectorforge.errors import (
    DatabaseUnavailableError,
    ExtractionError,
    InvalidInputError,
    VectorForgeError,
    log_unexpected,
)
from vectorforge.ingestion.extract import media
from vectorforge.ingestion.extract.decode import clean, clean_json, composed, without_invisible
from vectorforge.ingestion.types import MAX_SOURCE_CHARS, ExtractedDocument, IngestionError, TextChunk
from vectorforge.types import Collection

_BETWEEN_CHUNKS = "\n\n"
_OWN_FIELDS = frozenset({"content", "source_url", "title", "metadata", "chunk_index", "chunk_size"})


@dataclass(slots=True)
class SourceDocuments:
    """All dictionaries of one call that have the same ``source_url``."""

    source_url: str
    positions: list[int] = field(default_factory=list)
    """Positions in the call."""
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
    whole = [
        without_invisible(composed(doc["content"])) for doc in group.documents if "chunk_index" not in doc
    ]
    text, chunks, next_index = "", list[TextChunk](), max(ready, default=-1) + 1
    for index in sorted(ready):
        content = without_invisible(composed(ready[index]))
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
    """Return a document merged with the fields of its ``metadata``."""
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
    """Return the source's fields from its first document, with the design's defaults."""
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


logger = logging.getLogger(__name__)


class DocumentStore:
    """Documents of one collection, which is created on first use."""

    def __init__(self, tenant: TenantServices, name: str, splitter: RecursiveSplitter) -> None:
        self._tenant = tenant
        self._name = name
        self._splitter = splitter
        self._last_id: UUID | None = None

    async def collection(self) -> Collection:
        """Return the collection; made with the default embedding model if it is not there."""
        collection = await self._tenant.find_or_create_collection(self._name)
        self._last_id = collection.id
        return collection

    async def collection_id(self) -> UUID:
        """Return the collection's id, cached while the database is unavailable.

        Raises:
            DatabaseUnavailableError: No id is cached.
        """
        try:
            return (await self.collection()).id
        except DatabaseUnavailableError:
            if self._last_id is None:
                raise
            return self._last_id

    async def count_cached_answers(self) -> int:
        """Count the collection's valid cached answers.

        Raises:
            DatabaseError: The database failed.
        """
        caches = self._tenant.caches
        if caches.answer_cache is None:
            return 0
        return (await caches.shared_answers.statistics(await self.collection_id())).fresh

    async def warn_of_other_model(self, default: EmbeddingProvider) -> None:
        """Log a warning if an existing collection was made with another model than new ones would be."""
        collection = await self._tenant.collections.find_by_name(self._name)
        if collection is None:
            return
        self._last_id = collection.id
        expected = (default.name, default.default_model)
        if (collection.embedding_provider, collection.embedding_model) != expected:
            logger.warning(
                "Collection %s embeds with %s (%s), as it was made, not with %s (%s), as the settings say. "
                "`vectorforge collections reembed` changes its model.",
                self._name, collection.embedding_model, collection.embedding_provider,
                default.default_model, default.name,
            )  # fmt: skip

    async def add(
        self, documents: Iterable[Mapping[str, Any]], *, batch_size: int | None = None
    ) -> list[dict[str, Any]]:
        """Store documents as ``RAGEngine.add_documents`` does, ``batch_size`` sources at a time (None: one).

        Returns:
            Result of each document, in order.
        """
        documents = list(documents)
        groups, refused = grouped(documents)
        outcomes = {position: _failed(error) for position, error in refused.items()}
        size = batch_size or 1
        for number, start in enumerate(range(0, len(groups), size), start=1):
            batch = groups[start : start + size]
            stored = await asyncio.gather(*map(self._store, batch))
            for group, outcome in zip(batch, stored, strict=True):
                outcomes |= dict.fromkeys(group.positions, outcome)
            if batch_size is not None:
                places = [position for group in batch for position in group.positions]
                count = sum(outcomes[position]["status"] != "failed" for position in places)
                logger.info(f"Added batch {number}: {count} documents")  # exact text: D-016
        return [
            {"source_url": _source(document), **outcomes[position]}
            for position, document in enumerate(documents)
        ]

    async def remove(self, source_url: str) -> int:
        """Delete a source's document in one transaction; return the number of its chunks.

        Raises:
            DatabaseError: The database failed; nothing was deleted.
        """
        collection = await self.collection()
        document = await self._tenant.documents.find_by_source(collection.id, source_url)
        count = 0
        if document is not None and await self._tenant.vector_store.delete_document(document.id):
            count = document.chunk_count
        logger.info(f"Removed {count} existing chunks for {source_url}")  # exact text: D-015
        return count

    async def _store(self, group: SourceDocuments) -> dict[str, Any]:
        try:
            collection = await self.collection()
            document = await asyncio.to_thread(as_stored, group, self._splitter)
            stored = await self._tenant.ingestion.write_document(collection, document)
        except VectorForgeError as exc:
            logger.warning("A document was not added: %s", exc.message)
            return _failed(exc)
        except Exception as exc:  # noqa: BLE001 - a bug in one document must not fail the others
            log_unexpected(logger, "Adding a document failed unexpectedly", exc)
            return _failed(VectorForgeError())
        if stored.unchanged:
            logger.info(f"Skipping duplicate document: {document.title or ''}")  # exact text: D-012
        return {
            "status": "unchanged" if stored.unchanged else "succeeded",
            "error": None,
            "chunks_added": stored.chunks_added,
            "chunks_kept": stored.chunks_kept,
            "chunks_removed": stored.chunks_removed,
        }


def _failed(exc: VectorForgeError) -> dict[str, Any]:
    error = asdict(IngestionError.of(exc))
    return {"status": "failed", "error": error, "chunks_added": 0, "chunks_kept": 0, "chunks_removed": 0}


def _source(document: object) -> str | None:
    if not isinstance(document, Mapping):
        return None
    nested = document.get("metadata")
    source = document.get("source_url") or (nested.get("source_url") if isinstance(nested, Mapping) else None)
    return source if isinstance(source, str) else None
