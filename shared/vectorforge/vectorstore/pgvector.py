"""The vector store in PostgreSQL with pgvector."""

import re
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from copy import copy
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from vectorforge.db.repositories.document_repo import CurrentDocument
from vectorforge.db.tenant_database import TenantDatabase
from vectorforge.errors import (
    ConflictError,
    DimensionMismatchError,
    EmbeddingModelChangedError,
    InvalidInputError,
)
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
from vectorforge.vectorstore.filters.documents import checked_selection, count_selected, delete_selected
from vectorforge.vectorstore.filters.parse import parse
from vectorforge.vectorstore.filters.sql import SearchFilter
from vectorforge.vectorstore.search.matches import SearchShape
from vectorforge.vectorstore.search.search import Search, Searcher
from vectorforge.vectorstore.search.vectors import index_kind
from vectorforge.vectorstore.validation import (
    check_text,
    checked_profile,
    checked_top_k,
    search_mode,
    single_precision,
    wire_vector,
)
from vectorforge.vectorstore.writes.chunk_rows import store_new
from vectorforge.vectorstore.writes.document import DocumentWriter, delete_document
from vectorforge.vectorstore.writes.profile import delete_profile, replace_profile, stored_documents
from vectorforge.vectorstore.writes.replacement import PreparedDocument, prepare, prepare_profile

if TYPE_CHECKING:  # only a database with read replicas needs it
    from vectorforge.db.reader import Reader

_GROUPED: Final = re.compile(r"(?<![\w.,])(\d{1,3}([.,'’\u2009\u202f\xa0 ])\d{3}(?:\2\d{3})*)(?!\d)(\.\d+)?")
_PLAIN: Final = re.compile(r"(?<![\w.,])([1-9]\d{4,8})(\.\d+)?(?!\w)")
"""Numbers of five to nine digits: of four, most are years, and longer ones are ids."""


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
        reader: Read replicas that answer searches; None: the writer does.
    """

    def __init__(
        self,
        db: TenantDatabase,
        *,
        exact_scan_limit: int = EXACT_SCAN_LIMIT,
        ef_search: int = 256,
        reader: "Reader | None" = None,
    ) -> None:
        self._db = db
        self._reader = reader
        self._min_version: int | None = None
        self._searcher = Searcher(db, exact_scan_limit, ef_search, reader)

    def at_version(self, collection_id: UUID, version: int, min_version: int | None = None) -> VectorStore:
        """See ``VectorStore.at_version``."""
        if self._reader is None:
            return self
        store = copy(self)
        store._min_version = self._reader.versions.needed(  # noqa: SLF001 - of this class
            self._db.tenant_id, collection_id, version, at_least=min_version or 0
        )
        return store

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
        context_text: str | None = None,
        dense_weight: float = 0.5,
        space: str | None = None,
        with_vectors: bool = False,
    ) -> NearestChunks:
        """See ``VectorStore.search``."""
        mode = search_mode(query_vector, query_text, dense_weight)
        if context_text is not None:
            check_text(context_text, "context_text")
        query = None if query_vector is None else single_precision(query_vector, field="query_vector")
        dimension = 0 if query is None else len(query)
        condition = None if filters is None else SearchFilter.of(parse(filters), collection_id)
        named_space = space or f"{metric.value}_{dimension}"
        result = await self._searcher.search(
            Search(
                collection_id=collection_id,
                shape=SearchShape(
                    mode,
                    metric,
                    dimension,
                    index_kind(named_space, dimension),
                    filtered=condition is not None,
                    of_profile=profile_id is not None,
                    narrowed=condition is not None and condition.narrowing is not None,
                    with_vectors=with_vectors,
                ),
                space=named_space,
                top_k=checked_top_k(top_k),
                filter_sql="TRUE" if condition is None else condition.sql,
                params={
                    "tenant": self._db.tenant_id,
                    "profile": None if profile_id is None else checked_profile(profile_id),
                    "query": None if query is None else wire_vector(query),
                    "query_text": query_text and _with_number_forms(query_text),
                    "context_text": context_text,
                    "dense_weight": dense_weight,
                    **({} if condition is None else {**condition.params, "narrowing": condition.narrowing}),
                },
                min_version=self._min_version,
            )
        )
        if result is None:
            return NearestChunks([], matched=0)
        row = result.rows[0]
        _check_scope(row, None if query is None else metric, dimension, space, profile_id)
        return result.nearest_chunks()

    async def upsert_chunks(
        self, collection_id: UUID, document: DocumentDraft, chunks: Sequence[ChunkDraft]
    ) -> StoredDocument:
        """See ``VectorStore.upsert_chunks``."""
        metadata, prepared = prepare(document, chunks)
        [stored] = await store_new(self._db, collection_id, [PreparedDocument(document, metadata, prepared)])
        self._note_write()
        if stored is not None:
            return stored
        async with self._writer(collection_id) as writer:
            return await writer.replace(document, metadata, prepared)

    async def add_documents(
        self, collection_id: UUID, documents: Sequence[tuple[DocumentDraft, Sequence[ChunkDraft]]]
    ) -> list[StoredDocument | None]:
        """See ``VectorStore.add_documents``."""
        prepared: dict[int, PreparedDocument] = {}
        for place, (draft, chunks) in enumerate(documents):
            with suppress(InvalidInputError, DimensionMismatchError):  # raised again by replace_document
                prepared[place] = PreparedDocument(draft, *prepare(draft, chunks))
        stored = await store_new(self._db, collection_id, list(prepared.values()))
        self._note_write()
        by_place = dict(zip(prepared, stored, strict=True))
        return [by_place.get(place) for place in range(len(documents))]

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
        async with self._writer(collection_id, profile_id) as writer:
            return await replace_profile(writer, prepared, removing=list(removing))

    async def profile_documents(self, collection_id: UUID, profile_id: int) -> dict[str, CurrentDocument]:
        """See ``VectorStore.profile_documents``."""
        return await stored_documents(self._db, collection_id, profile_id)

    async def delete_profile_chunks(self, collection_id: UUID, profile_id: int) -> int:
        """See ``VectorStore.delete_profile_chunks``."""
        async with self._writer(collection_id, profile_id) as writer:
            return await delete_profile(writer)

    async def delete_document(self, document_id: UUID) -> bool:
        """See ``VectorStore.delete_document``."""
        async with self._db.transaction() as connection:
            is_deleted = await delete_document(connection, self._db.tenant_id, document_id)
        self._note_write()
        return is_deleted

    async def count_documents(
        self, collection_id: UUID, filters: Mapping[str, Any], *, profile_id: int | None = None
    ) -> int:
        """See ``VectorStore.count_documents``."""
        selection = checked_selection(filters, profile_id)
        async with self._writer(collection_id, profile_id) as writer:
            return await count_selected(writer, selection)

    async def delete_documents(
        self, collection_id: UUID, filters: Mapping[str, Any], *, profile_id: int | None = None
    ) -> int:
        """See ``VectorStore.delete_documents``."""
        selection = checked_selection(filters, profile_id)
        async with self._writer(collection_id, profile_id) as writer:
            return await delete_selected(writer, selection)

    async def delete_left_out(self, collection_id: UUID, parent_source: str, kept: Iterable[str]) -> int:
        """See ``VectorStore.delete_left_out``."""
        async with self._writer(collection_id) as writer:
            return await writer.delete_left_out(parent_source, list(kept))

    @asynccontextmanager
    async def _writer(
        self, collection_id: UUID, profile_id: int | None = None
    ) -> AsyncIterator[DocumentWriter]:
        async with self._db.transaction() as connection:
            yield DocumentWriter(connection, self._db.tenant_id, collection_id, profile_id)
        self._note_write()

    def _note_write(self) -> None:
        if self._reader is not None:
            self._reader.versions.note_write(self._db.tenant_id)


def _check_scope(
    row: Mapping[str, Any],
    metric: DistanceMetric | None,
    dimension: int,
    space: str | None,
    profile_id: int | None,
) -> None:
    if metric is not None:
        if space is not None and row["space"] != space:
            raise EmbeddingModelChangedError
        if row["dimension"] != dimension:
            raise DimensionMismatchError(expected=row["dimension"], actual=dimension, what="query vector")
        if row["distance_metric"] != metric:
            raise ConflictError(f"The collection's metric is {row['distance_metric']}, not {metric.value}.")
    if row["by_profile"] and profile_id is None:
        raise InvalidInputError(
            "The documents of this collection belong to profiles: profile_id is required.",
            field="profile_id",
        )


def _with_number_forms(text: str) -> str:
    """Add the other forms of its numbers to a query: 1234567 for 1,234,567 or 1.234.567, and the reverse.

    The parser reads the former as one word, 1,234,567 as three and 1.234.567 as another one.
    """
    forms = [re.sub(r"\D", "", number[1]) + (number[3] or "") for number in _GROUPED.finditer(text)]
    for number in _PLAIN.finditer(text):
        grouped = f"{int(number[1]):,}"
        forms += [grouped + (number[2] or ""), grouped.replace(",", ".")]
    return " ".join([text, *forms])
