"""Adds documents to the engine's collection, source by source, and takes them out again."""

import asyncio
import logging
from collections.abc import Iterable, Mapping
from typing import Any
from uuid import UUID

from vectorforge.bootstrap import TenantServices
from vectorforge.docrag.documents import SourceDocuments, as_stored, grouped
from vectorforge.embedding.base import EmbeddingProvider
from vectorforge.errors import ConflictError, DatabaseUnavailableError, VectorForgeError
from vectorforge.failure_log import log_unexpected
from vectorforge.ingestion.pipeline import failed
from vectorforge.ingestion.recursive import RecursiveSplitter
from vectorforge.types import Collection

logger = logging.getLogger(__name__)


class DocumentStore:
    """The documents of one collection, which is made when it is first needed.

    Args:
        tenant: Whose it is.
        name: Of the collection.
        splitter: Cuts documents that are no chunks yet.
    """

    def __init__(self, tenant: TenantServices, name: str, splitter: RecursiveSplitter) -> None:
        self._tenant = tenant
        self._name = name
        self._splitter = splitter
        self._last_id: UUID | None = None

    async def collection(self) -> Collection:
        """Return the collection; made with the default embedding model if it is not there."""
        found = await self._tenant.collections.find_by_name(self._name)
        if found is None:
            try:
                found = await self._tenant.create_collection(self._name)
            except ConflictError:  # another process was a moment faster
                found = await self._tenant.find_collection(self._name)
        self._last_id = found.id
        return found

    async def collection_id(self) -> UUID:
        """Return the collection's id; the last one known while the database is unavailable.

        Raises:
            DatabaseUnavailableError: None is known.
        """
        try:
            return (await self.collection()).id
        except DatabaseUnavailableError:
            if self._last_id is None:
                raise
            return self._last_id

    async def count_cached_answers(self) -> int:
        """Count the collection's cached answers that a next equal query gets.

        Raises:
            DatabaseError: The database failed.
        """
        caches = self._tenant.caches
        if caches.answer_cache is None:
            return 0
        return (await caches.shared_answers.statistics(await self.collection_id())).fresh

    async def warn_of_other_model(self, default: EmbeddingProvider) -> None:
        """Log a warning if an existing collection was made with another model than new ones would be."""
        found = await self._tenant.collections.find_by_name(self._name)
        if found is None:
            return
        self._last_id = found.id
        if (found.embedding_provider, found.embedding_model) != (
            default.provider_name(),
            default.default_model,
        ):
            logger.warning(
                "Collection %s embeds with %s (%s), as it was made, not with %s (%s), as the settings say. "
                "`vectorforge collections reembed` changes its model.",
                self._name, found.embedding_model, found.embedding_provider,
                default.default_model, default.provider_name(),
            )  # fmt: skip

    async def add(
        self, documents: Iterable[Mapping[str, Any]], *, batch_size: int | None = None
    ) -> list[dict[str, Any]]:
        """Store documents; what a call holds of a source takes the place of what was stored of it.

        Args:
            documents: As ``RAGEngine.add_documents`` takes them.
            batch_size: Sources that are stored at the same time; None: one after another.

        Returns:
            What became of each document, in the order given.
        """
        documents = list(documents)
        groups, refused = grouped(documents)
        outcomes = {position: _outcome("failed", error) for position, error in refused.items()}
        size = batch_size or 1
        for number, start in enumerate(range(0, len(groups), size), start=1):
            batch = groups[start : start + size]
            stored = await asyncio.gather(*map(self._store, batch))
            for group, outcome in zip(batch, stored, strict=True):
                outcomes |= dict.fromkeys(group.positions, outcome)
            if batch_size is not None:
                count = sum(
                    len(group.positions)
                    for group, outcome in zip(batch, stored, strict=True)
                    if outcome["status"] != "failed"
                )
                logger.info(f"Added batch {number}: {count} documents")  # exact text: D-016
        return [
            {"source_url": _source(document), **outcomes[position]}
            for position, document in enumerate(documents)
        ]

    async def remove(self, source_url: str) -> int:
        """Take a source's document out, all of its chunks in one transaction; returns how many they were.

        Raises:
            DatabaseError: The database failed; all are still there.
        """
        collection = await self.collection()
        found = await self._tenant.documents.find_by_source(collection.id, source_url)
        count = 0
        if found is not None and await self._tenant.vector_store.delete_document(found.id):
            count = found.chunk_count
        logger.info(f"Removed {count} existing chunks for {source_url}")  # exact text: D-015
        return count

    async def _store(self, group: SourceDocuments) -> dict[str, Any]:
        try:
            collection = await self.collection()
            document = await asyncio.to_thread(as_stored, group, self._splitter)
            stored = await self._tenant.ingestion.ingest_document(collection, document)
        except VectorForgeError as exc:
            logger.warning("A document was not added: %s", exc.message)
            return _outcome("failed", exc)
        except Exception as exc:  # noqa: BLE001 - a bug met by one document must not take the others along
            log_unexpected(logger, "Adding a document failed unexpectedly", exc)
            return _outcome("failed", VectorForgeError())
        if stored.unchanged:
            logger.info(f"Skipping duplicate document: {document.title or ''}")  # exact text: D-012
        return {
            "status": "unchanged" if stored.unchanged else "succeeded",
            "error": None,
            "chunks_added": stored.chunks_added,
            "chunks_kept": stored.chunks_kept,
            "chunks_removed": stored.chunks_removed,
        }


def _outcome(status: str, exc: VectorForgeError) -> dict[str, Any]:
    error = failed("", exc).error
    assert error is not None  # noqa: S101 - of what failed there is one
    told = {"code": error.code, "message": error.message, "retryable": error.retryable}
    return {"status": status, "error": told, "chunks_added": 0, "chunks_kept": 0, "chunks_removed": 0}


def _source(document: object) -> str | None:
    if not isinstance(document, Mapping):
        return None
    nested = document.get("metadata")
    found = document.get("source_url") or (nested.get("source_url") if isinstance(nested, Mapping) else None)
    return found if isinstance(found, str) else None
