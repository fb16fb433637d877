"""The vector store in PostgreSQL with pgvector."""

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

from vectorforge.db.repositories.document_repo import CurrentDocument
from vectorforge.db.tenant_database import TenantDatabase
from vectorforge.errors import ConflictError, EmbeddingModelChangedError, InvalidInputError
from vectorforge.types import (
    EXACT_SCAN_LIMIT,
    ChunkDraft,
    DistanceMetric,
    DocumentDraft,
    ReplacedProfile,
    StoredDocument,
    Vector,
)
from vectorforge.vectorstore.base import NearestChunks, VectorStore
from vectorforge.vectorstore.filters import parse as filter_language
from vectorforge.vectorstore.filters.documents import SelectedDocuments, checked_selection
from vectorforge.vectorstore.filters.sql import necessary_path
from vectorforge.vectorstore.search.search import Search, Searcher
from vectorforge.vectorstore.search.statement import compile_filter
from vectorforge.vectorstore.validation import (
    checked_profile,
    checked_top_k,
    search_mode,
    single_precision,
    wire_vector,
)
from vectorforge.vectorstore.writes.chunk_rows import store_new
from vectorforge.vectorstore.writes.document import DocumentWriter, delete_document
from vectorforge.vectorstore.writes.profile import ProfileWriter, stored_documents
from vectorforge.vectorstore.writes.replacement import check_dimension, prepare, prepare_profile


class PgVectorStore(VectorStore):
    """Chunks and vectors of one tenant in PostgreSQL. Creating it costs nothing; it holds no state.

    A search is one statement (``search.statement``), sent with its transaction in one round trip; if an index
    returns too few rows, another one follows. Few matches are compared completely; more are searched with the
    HNSW index, if there is one. Words are always searched exactly.

    Args:
        db: Database of the tenant.
        exact_scan_limit: Vectors of up to 384 dimensions below which a collection is searched exactly; fewer
            for longer vectors, and for matches of a filter in a larger collection.
        ef_search: Maximum size of the HNSW index's candidate list, 1 to 1,000: more is slower and more
            accurate.
    """

    def __init__(
        self, db: TenantDatabase, *, exact_scan_limit: int = EXACT_SCAN_LIMIT, ef_search: int = 200
    ) -> None:
        self._db = db
        self._searcher = Searcher(db, exact_scan_limit, ef_search)

    async def search(
        self,
        *,
        query_vector: Vector | None,
        top_k: int,
        collection_id: UUID,
        metric: DistanceMetric,
        filters: Mapping[str, Any] | None = None,
        profile_id: int | None = None,
        query_text: str | None = None,
        dense_weight: float = 0.5,
        space: str | None = None,
    ) -> NearestChunks:
        """See ``VectorStore.search``."""
        mode = search_mode(query_vector, query_text, dense_weight)
        query = None if query_vector is None else single_precision(query_vector, field="query_vector")
        condition = filter_language.parse(filters)
        search = Search(
            collection_id=collection_id,
            mode=mode,
            metric=metric,
            condition=compile_filter(condition),
            top_k=checked_top_k(top_k),
            dimension=0 if query is None else len(query),
            space=space or f"{metric.value}_{0 if query is None else len(query)}",
            of_profile=profile_id is not None,
            params={
                "tenant": self._db.tenant_id,
                "profile": None if profile_id is None else checked_profile(profile_id),
                "query": None if query is None else wire_vector(query),
                "query_text": query_text,
                "dense_weight": dense_weight,
                "narrowing": necessary_path(condition, collection_id),
            },
        )
        found = await self._searcher.search(search)
        if found is None:
            return NearestChunks([], matched=0)
        row = found.rows[0]
        if space is not None and query is not None and row["space"] != space:
            raise EmbeddingModelChangedError
        _check_scope(row, None if query is None else metric, search.dimension, profile_id)
        return found.nearest_chunks(search)

    async def upsert_chunks(
        self, collection_id: UUID, document: DocumentDraft, chunks: Sequence[ChunkDraft]
    ) -> StoredDocument:
        """See ``VectorStore.upsert_chunks``."""
        metadata, prepared = prepare(document, chunks)
        stored = await store_new(self._db, collection_id, document, metadata, prepared)
        if stored is not None:
            return stored
        async with self._db.transaction() as connection:
            writer = DocumentWriter(connection, self._db.tenant_id, collection_id)
            return await writer.replace(document, metadata, prepared)

    async def replace_profile(
        self,
        collection_id: UUID,
        profile_id: int,
        documents: Sequence[tuple[DocumentDraft, Sequence[ChunkDraft]]],
        *,
        removing: Iterable[str] = (),
    ) -> ReplacedProfile:
        """See ``VectorStore.replace_profile``."""
        prepared = prepare_profile(profile_id, documents)
        async with self._db.transaction() as connection:
            writer = ProfileWriter(connection, self._db.tenant_id, collection_id, profile_id)
            return await writer.replace(prepared, removing=list(removing))

    async def profile_documents(self, collection_id: UUID, profile_id: int) -> dict[str, CurrentDocument]:
        """See ``VectorStore.profile_documents``."""
        return await stored_documents(self._db, collection_id, profile_id)

    async def delete_profile_chunks(self, collection_id: UUID, profile_id: int) -> int:
        """See ``VectorStore.delete_profile_chunks``."""
        async with self._db.transaction() as connection:
            return await ProfileWriter(connection, self._db.tenant_id, collection_id, profile_id).delete()

    async def delete_document(self, document_id: UUID) -> bool:
        """See ``VectorStore.delete_document``."""
        async with self._db.transaction() as connection:
            return await delete_document(connection, self._db.tenant_id, document_id)

    async def count_documents(
        self, collection_id: UUID, filters: Mapping[str, Any], *, profile_id: int | None = None
    ) -> int:
        """See ``VectorStore.count_documents``."""
        async with self._selected(collection_id, filters, profile_id) as documents:
            return await documents.count()

    async def delete_documents(
        self, collection_id: UUID, filters: Mapping[str, Any], *, profile_id: int | None = None
    ) -> int:
        """See ``VectorStore.delete_documents``."""
        async with self._selected(collection_id, filters, profile_id) as documents:
            return await documents.delete_some()

    @asynccontextmanager
    async def _selected(
        self, collection_id: UUID, filters: Mapping[str, Any], profile_id: int | None
    ) -> AsyncIterator[SelectedDocuments]:
        selection = checked_selection(filters)
        profile = None if profile_id is None else checked_profile(profile_id)
        async with self._db.transaction() as connection:
            yield SelectedDocuments(connection, self._db.tenant_id, collection_id, selection, profile)

    async def delete_left_out(self, collection_id: UUID, parent_source: str, kept: Iterable[str]) -> int:
        """See ``VectorStore.delete_left_out``."""
        async with self._db.transaction() as connection:
            writer = DocumentWriter(connection, self._db.tenant_id, collection_id)
            return await writer.delete_left_out(parent_source, list(kept))


def _check_scope(
    row: Mapping[str, Any], metric: DistanceMetric | None, dimension: int, profile_id: int | None
) -> None:
    if metric is not None:
        check_dimension(expected=row["dimension"], actual=dimension, what="query vector")
        if row["distance_metric"] != metric:
            raise ConflictError(f"The collection's metric is {row['distance_metric']}, not {metric.value}.")
    if row["by_profile"] and profile_id is None:
        raise InvalidInputError(
            "The documents of this collection belong to profiles: profile_id is required.",
            field="profile_id",
        )
