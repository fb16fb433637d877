"""An exact vector store in this process's memory: the oracle that other stores are compared with."""

import json
import math
from array import array
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID, uuid4

from tests.support.rag.reference_ranking import bm25, ranked
from vectorforge.db.repositories.document_repo import CurrentDocument
from vectorforge.errors import ConflictError, VectorForgeError
from vectorforge.types import (
    Chunk,
    ChunkDraft,
    DistanceMetric,
    DocumentDraft,
    NearestChunks,
    ReplacedProfile,
    RetrievedChunk,
    Scan,
    SearchMode,
    StoredDocument,
    Vector,
)
from vectorforge.vectorstore.base import VectorStore
from vectorforge.vectorstore.filters.documents import checked_selection
from vectorforge.vectorstore.filters.language import matches
from vectorforge.vectorstore.filters.parse import parse
from vectorforge.vectorstore.memory import distance_between
from vectorforge.vectorstore.validation import checked_profile, checked_top_k, search_mode, single_precision
from vectorforge.vectorstore.writes.replacement import (
    PreparedChunk,
    check_dimension,
    plan,
    prepare,
    prepare_profile,
)


@dataclass(slots=True)
class _Stored:
    chunk: Chunk
    content_hash: bytes
    vector: "array[float]"
    index_context: str | None


@dataclass(slots=True)
class _Document:
    id: UUID
    draft: DocumentDraft
    version: int
    chunks: list[_Stored]
    profile_id: int | None = None


@dataclass(slots=True)
class _Collection:
    dimension: int | None = None
    documents: dict[str, _Document] = field(default_factory=dict)
    """By source."""

    def chunks(self, profile_id: int | None = None) -> Iterator[tuple[_Document, _Stored]]:
        """Yield the chunks of a profile, or all, each with its document."""
        for document in self.documents.values():
            if profile_id in (None, document.profile_id):
                for stored in document.chunks:
                    yield document, stored


class ReferenceVectorStore(VectorStore):
    """Every search computes every distance and counts every word. One instance holds one tenant.

    Words are not stemmed (``reference_ranking.bm25``), in any language. A collection begins with its first
    document and gets its dimension from the first vector; its metric and existence are therefore not checked.
    """

    def __init__(self) -> None:
        self._collections: defaultdict[UUID, _Collection] = defaultdict(_Collection)

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
        condition = parse(filters)
        if profile_id is not None:
            checked_profile(profile_id)
        query = None if query_vector is None else single_precision(query_vector, field="query_vector")
        checked_top_k(top_k)
        collection = self._collections[collection_id]
        if query is not None:
            expected = collection.dimension or len(query)
            check_dimension(expected=expected, actual=len(query), what="query vector")
        texts = {
            stored.chunk.id: [
                *[document.draft.title] * 3,
                stored.chunk.heading,
                stored.index_context,
                stored.chunk.text,
            ]
            for document, stored in collection.chunks()
        }
        words = bm25(texts, query_text or "", context_text or "")
        candidates = [
            RetrievedChunk(
                stored.chunk,
                score=math.nan,
                distance=math.nan if query is None else distance_between(metric, stored.vector, query),
                document_source=document.draft.source,
                document_title=document.draft.title,
                lexical_score=None if mode is SearchMode.DENSE else words.get(stored.chunk.id, 0.0),
                vector=stored.vector if with_vectors else None,
            )
            for document, stored in collection.chunks(profile_id)
            if matches(condition, stored.chunk.metadata)
        ]
        best = ranked(mode, metric, candidates, dense_weight, top_k)
        scan = Scan.for_reason("words" if mode is SearchMode.LEXICAL else "few")
        return NearestChunks(best, matched=len(candidates), scan=scan)

    async def upsert_chunks(
        self, collection_id: UUID, document: DocumentDraft, chunks: Sequence[ChunkDraft]
    ) -> StoredDocument:
        """See ``VectorStore.upsert_chunks``."""
        _, prepared = prepare(document, chunks)
        return self._replace(collection_id, document, prepared, None)

    def _replace(
        self,
        collection_id: UUID,
        document: DocumentDraft,
        prepared: Sequence[PreparedChunk],
        profile_id: int | None,
    ) -> StoredDocument:
        collection = self._collections[collection_id]
        dimension = collection.dimension
        for chunk in prepared:
            if chunk.vector is not None:
                dimension = dimension or len(chunk.vector)
                check_dimension(expected=dimension, actual=len(chunk.vector), what="chunk's vector")
        old = collection.documents.get(document.source)
        if old is not None and old.profile_id != profile_id:
            raise ConflictError("A document with this source belongs to another profile.")
        if old is not None and old.draft.content_hash == document.content_hash:
            return StoredDocument(old.id, old.version, 0, len(old.chunks), 0, unchanged=True)
        before = old.chunks if old else []
        replacement = plan(((stored.content_hash, stored) for stored in before), prepared)
        document_id = old.id if old else document.document_id or uuid4()
        version = old.version + 1 if old else 1
        paired = [_stored(chunk, document_id, stored) for stored, chunk in replacement.paired]
        added = [_stored(chunk, document_id, None) for chunk in replacement.added]
        collection.dimension = dimension
        collection.documents[document.source] = _Document(
            document_id, document, version, paired + added, profile_id
        )
        return StoredDocument(document_id, version, len(added), len(paired), len(replacement.removed))

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
        before = self._collections[collection_id]
        self._collections[collection_id] = _Collection(before.dimension, dict(before.documents))
        try:
            stored = [self._replace(collection_id, d.draft, d.chunks, profile_id) for d in prepared]
        except VectorForgeError:
            self._collections[collection_id] = before
            raise
        given, parents = {document.draft.source for document in prepared}, set(removing)
        removed = [
            document
            for source, document in self._of_profile(collection_id, profile_id).items()
            if document.draft.parent_source in parents and source not in given
        ]
        for document in removed:
            del self._collections[collection_id].documents[document.draft.source]
        return ReplacedProfile(stored, len(removed), sum(len(document.chunks) for document in removed))

    async def profile_documents(self, collection_id: UUID, profile_id: int) -> dict[str, CurrentDocument]:
        """See ``VectorStore.profile_documents``."""
        return {
            source: CurrentDocument(
                document.id,
                document.version,
                document.draft.content_hash,
                frozenset(stored.content_hash for stored in document.chunks),
            )
            for source, document in self._of_profile(collection_id, profile_id).items()
        }

    async def delete_profile_chunks(self, collection_id: UUID, profile_id: int) -> int:
        """See ``VectorStore.delete_profile_chunks``."""
        documents = self._of_profile(collection_id, profile_id)
        for source in documents:
            del self._collections[collection_id].documents[source]
        return sum(len(document.chunks) for document in documents.values())

    def _of_profile(self, collection_id: UUID, profile_id: int) -> dict[str, _Document]:
        documents = self._collections[collection_id].documents
        return {s: document for s, document in documents.items() if document.profile_id == profile_id}

    async def delete_document(self, document_id: UUID) -> bool:
        """See ``VectorStore.delete_document``."""
        for collection in self._collections.values():
            for source, document in collection.documents.items():
                if document.id == document_id:
                    del collection.documents[source]
                    return True
        return False

    async def count_documents(
        self, collection_id: UUID, filters: Mapping[str, Any], *, profile_id: int | None = None
    ) -> int:
        """See ``VectorStore.count_documents``."""
        return len(self._selected(collection_id, filters, profile_id))

    async def delete_documents(
        self, collection_id: UUID, filters: Mapping[str, Any], *, profile_id: int | None = None
    ) -> int:
        """See ``VectorStore.delete_documents``."""
        selected = self._selected(collection_id, filters, profile_id)
        for source in selected:
            del self._collections[collection_id].documents[source]
        return len(selected)

    def _selected(self, collection_id: UUID, filters: Mapping[str, Any], profile_id: int | None) -> list[str]:
        condition = checked_selection(filters, profile_id)
        documents = self._collections[collection_id].documents
        return [
            source
            for source, document in documents.items()
            if profile_id in (None, document.profile_id) and matches(condition, document.draft.metadata)
        ]

    async def delete_left_out(self, collection_id: UUID, parent_source: str, kept: Iterable[str]) -> int:
        """See ``VectorStore.delete_left_out``."""
        documents = self._collections[collection_id].documents
        left_out = {s for s, d in documents.items() if d.draft.parent_source == parent_source} - set(kept)
        for source in left_out:
            del documents[source]
        return len(left_out)


def _stored(prepared: PreparedChunk, document_id: UUID, pair: _Stored | None) -> _Stored:
    draft = prepared.draft
    chunk = Chunk(
        id=pair.chunk.id if pair else uuid4(),
        document_id=document_id,
        index=draft.index,
        text=draft.text,
        start_offset=draft.start_offset,
        end_offset=draft.end_offset,
        token_count=draft.token_count,
        heading=draft.heading,
        metadata=json.loads(prepared.metadata),
        locations=json.loads(prepared.locations),
    )
    vector = pair.vector if pair else prepared.vector
    assert vector is not None
    return _Stored(chunk, draft.content_hash, vector, pair.index_context if pair else draft.index_context)
