"""The vector store in PostgreSQL with pgvector."""

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final
from uuid import UUID

from vectorforge.db.connection import TenantDatabase
from vectorforge.db.repositories.document_repo import CurrentDocument
from vectorforge.errors import ConflictError, EmbeddingModelChangedError, InvalidInputError
from vectorforge.types import (
    Chunk,
    ChunkDraft,
    DistanceMetric,
    DocumentDraft,
    ReplacedProfile,
    RetrievedChunk,
    Scan,
    SearchMode,
    StoredDocument,
    Vector,
)
from vectorforge.vectorstore import filters as filter_language
from vectorforge.vectorstore import search_sql
from vectorforge.vectorstore.base import NearestChunks, VectorStore
from vectorforge.vectorstore.document_filters import SelectedDocuments, checked_selection
from vectorforge.vectorstore.document_writer import DocumentWriter, delete_document, wire_vector
from vectorforge.vectorstore.profile_writer import ProfileWriter, stored_documents
from vectorforge.vectorstore.replacement import check_dimension, prepare, prepare_profile
from vectorforge.vectorstore.search_nearest import EXACT_SCAN_LIMIT, space_kind
from vectorforge.vectorstore.search_sql import SearchStatement
from vectorforge.vectorstore.validation import (
    checked_profile,
    checked_top_k,
    score_of,
    search_mode,
    single_precision,
)

_NO_LIMIT: Final = 2**62
_MAX_EF_SEARCH: Final = 1_000


class PgVectorStore(VectorStore):
    """Chunks and vectors of one tenant in PostgreSQL. Costs nothing to make; made per request.

    A search is one statement (``search_sql``), sent with its transaction in one round trip. Vectors are
    compared completely while few match; above ``exact_scan_limit`` the HNSW index is asked, where one can
    answer. Words are always searched exactly.

    Args:
        db: The database as the tenant sees it.
        exact_scan_limit: Matching vectors up to which a search is exact.
        ef_search: Candidates the HNSW index keeps in sight, 1 to 1,000: more are slower and more accurate.
    """

    def __init__(
        self, db: TenantDatabase, *, exact_scan_limit: int = EXACT_SCAN_LIMIT, ef_search: int = 200
    ) -> None:
        self._db = db
        self._exact_scan_limit = exact_scan_limit
        self._ef_search = ef_search

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
        embedded_in = None if query_vector is None else space
        condition = filter_language.parse(filters)
        query = None if query_vector is None else single_precision(query_vector, field="query_vector")
        dimension = 0 if query is None else len(query)
        space = space or f"{metric.value}_{dimension}"
        statement = search_sql.build(
            mode,
            metric,
            dimension,
            condition,
            of_profile=profile_id is not None,
            kind=space_kind(space),
        )
        limit = _NO_LIMIT if statement.counts_all else self._exact_scan_limit
        depth = top_k if mode is SearchMode.DENSE else max(top_k, search_sql.LEG_DEPTH)
        candidates = max(depth * statement.candidates_per_row, statement.least_candidates)
        params = {
            **statement.filter_params,
            "tenant": self._db.tenant_id,
            "collection": collection_id,
            "top_k": checked_top_k(top_k),
            "profile": None if profile_id is None else checked_profile(profile_id),
            "limit": limit,
            "space": space,
            "query": None if query is None else wire_vector(query),
            "depth": depth,
            "candidates": candidates,
            "query_text": query_text,
            "lexical_limit": depth,
            "dense_weight": dense_weight,
        }
        ef_search = None if query is None else min(max(self._ef_search, candidates), _MAX_EF_SEARCH)
        rows = await self._db.fetch_all(statement.sql, params, ef_search=ef_search)
        if not rows:
            return NearestChunks([], matched=0)
        if embedded_in is not None and rows[0]["space"] != embedded_in:
            raise EmbeddingModelChangedError
        _check_scope(rows[0], None if query is None else metric, dimension, profile_id)
        found = [_retrieved(row, metric, mode) for row in rows if row["chunk_id"] is not None]
        matched, more = _matched(rows[0], statement, limit)
        if len(found) < top_k and query is not None:  # that is all that match
            matched, more = len(found), False
        return NearestChunks(
            found,
            matched=max(matched, len(found)),
            matched_is_at_least=more,
            scan=Scan.for_reason(rows[0]["reason"]),
        )

    async def replace_document(
        self, collection_id: UUID, document: DocumentDraft, chunks: Sequence[ChunkDraft]
    ) -> StoredDocument:
        """See ``VectorStore.replace_document``."""
        metadata, prepared = prepare(document, chunks)
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


def _matched(row: Mapping[str, Any], statement: SearchStatement, limit: int) -> tuple[int, bool]:
    """How many chunks match, and whether there are more than that."""
    if statement.of_everything:
        return row["chunk_count"], False
    return min(row["matching"], limit), row["matching"] > limit


def _retrieved(row: Mapping[str, Any], metric: DistanceMetric, mode: SearchMode) -> RetrievedChunk:
    chunk = Chunk(
        id=row["chunk_id"],
        document_id=row["document_id"],
        index=row["ordinal"],
        text=row["text"],
        start_offset=row["start_offset"],
        end_offset=row["end_offset"],
        token_count=row["token_count"],
        heading=row["heading"],
        metadata=row["metadata"],
    )
    by_words = mode is SearchMode.LEXICAL
    return RetrievedChunk(
        chunk=chunk,
        score=row["relevance"] if by_words else score_of(metric, row["distance"]),
        distance=1 - row["relevance"] if by_words else row["distance"],
        document_source=row["source"],
        document_title=row["title"],
        relevance=None if mode is SearchMode.DENSE else row["relevance"],
        lexical_score=row["lexical_score"],
    )
