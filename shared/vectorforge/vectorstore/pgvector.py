"""The vector store in PostgreSQL with pgvector."""

from collections.abc import Iterable, Mapping, Sequence
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
    StoredDocument,
    Vector,
)
from vectorforge.vectorstore import filters as filter_language
from vectorforge.vectorstore import search_sql
from vectorforge.vectorstore.base import NearestChunks, VectorStore
from vectorforge.vectorstore.document_writer import DocumentWriter, delete_document, wire_vector
from vectorforge.vectorstore.profile_writer import ProfileWriter, stored_documents
from vectorforge.vectorstore.replacement import check_dimension, prepare, prepare_profile
from vectorforge.vectorstore.search_sql import SearchStatements
from vectorforge.vectorstore.validation import checked_profile, checked_top_k, score_of, single_precision

EXACT_SCAN_LIMIT: Final = 10_000
"""Matching vectors up to which every distance is computed; docs/performance.md has the times."""
_NO_LIMIT: Final = 2**62
_MAX_EF_SEARCH: Final = 1_000


class PgVectorStore(VectorStore):
    """Chunks and vectors of one tenant in PostgreSQL. Costs nothing to make; made per request.

    A search is exact while few vectors match; above ``exact_scan_limit`` it goes through the HNSW index, and
    exactly after all where the index gave fewer rows than match.

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
        if query_vector is None:
            raise InvalidInputError("query_vector is required.", field="query_vector")
        condition = filter_language.parse(filters)
        query = single_precision(query_vector, field="query_vector")
        statements = search_sql.build(metric, len(query), condition, of_profile=profile_id is not None)
        params = {
            **statements.filter_params,
            "tenant": self._db.tenant_id,
            "collection": collection_id,
            "space": space or f"{metric.value}_{len(query)}",
            "query": wire_vector(query),
            "top_k": checked_top_k(top_k),
            "profile": None if profile_id is None else checked_profile(profile_id),
        }
        limit = self._exact_scan_limit if statements.through_index else _NO_LIMIT
        rows = await self._db.fetch_all(statements.exact, {**params, "limit": limit})
        if not rows:
            return NearestChunks([], matched=0)
        _check_scope(rows[0], metric, len(query), profile_id, space)
        matched, more = _matched(rows[0], statements, limit)
        if rows[0]["matching"] > limit:
            rows = await self._search_index(statements, params)
            if len(rows) < top_k:
                rows = await self._db.fetch_all(statements.exact, {**params, "limit": _NO_LIMIT})
                matched, more = _matched(rows[0], statements, _NO_LIMIT) if rows else (0, False)
        found = [_retrieved(row, metric) for row in rows if row["chunk_id"] is not None]
        return NearestChunks(found, matched=max(matched, len(found)), matched_is_at_least=more)

    async def _search_index(
        self, statements: SearchStatements, params: Mapping[str, Any]
    ) -> list[dict[str, Any]]:
        candidates = params["top_k"] * statements.candidates_per_row
        ef_search = min(max(self._ef_search, candidates), _MAX_EF_SEARCH)
        return await self._db.fetch_all(
            statements.through_index or statements.exact,
            {**params, "candidates": candidates},
            ef_search=ef_search,
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

    async def delete_left_out(self, collection_id: UUID, parent_source: str, kept: Iterable[str]) -> int:
        """See ``VectorStore.delete_left_out``."""
        async with self._db.transaction() as connection:
            writer = DocumentWriter(connection, self._db.tenant_id, collection_id)
            return await writer.delete_left_out(parent_source, list(kept))


def _check_scope(
    row: Mapping[str, Any],
    metric: DistanceMetric,
    dimension: int,
    profile_id: int | None,
    space: str | None,
) -> None:
    if space is not None and row["space"] != space:
        raise EmbeddingModelChangedError
    check_dimension(expected=row["dimension"], actual=dimension, what="query vector")
    if row["distance_metric"] != metric:
        raise ConflictError(f"The collection's metric is {row['distance_metric']}, not {metric.value}.")
    if row["by_profile"] and profile_id is None:
        raise InvalidInputError(
            "The documents of this collection belong to profiles: profile_id is required.",
            field="profile_id",
        )


def _matched(row: Mapping[str, Any], statements: SearchStatements, limit: int) -> tuple[int, bool]:
    """How many chunks match, and whether there are more than that."""
    if statements.of_everything:
        return row["chunk_count"], False
    return min(row["matching"], limit), row["matching"] > limit


def _retrieved(row: Mapping[str, Any], metric: DistanceMetric) -> RetrievedChunk:
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
    return RetrievedChunk(
        chunk=chunk,
        score=score_of(metric, row["distance"]),
        distance=row["distance"],
        document_source=row["source"],
        document_title=row["title"],
    )
