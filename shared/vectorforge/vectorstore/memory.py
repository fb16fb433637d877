"""A vector store in this process's memory, for profiles without a database."""

import math
import operator
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID, uuid4

from vectorforge.errors import InvalidInputError
from vectorforge.types import (
    Chunk,
    ChunkDraft,
    DistanceMetric,
    DocumentDraft,
    NearestChunks,
    ReplacedProfile,
    RetrievedChunk,
    StoredDocument,
    Vector,
)
from vectorforge.vectorstore.base import VectorStore
from vectorforge.vectorstore.filters.language import matches
from vectorforge.vectorstore.filters.parse import parse
from vectorforge.vectorstore.search.search import score_of
from vectorforge.vectorstore.validation import checked_top_k, single_precision

_Documents = dict[tuple[UUID, str], tuple[DocumentDraft, list[RetrievedChunk]]]


class InMemoryVectorStore(VectorStore):
    """Compares every vector. Finds nothing by words alone; a hybrid search is one by vectors.

    A document that is stored again is replaced whole, with new ids.
    """

    def __init__(self) -> None:
        self._documents: _Documents = {}

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
        if query_vector is None:
            raise InvalidInputError("This vector store searches by vectors only.", field="search_mode")
        query, condition = single_precision(query_vector, field="query_vector"), parse(filters)
        found = []
        for key in self._keys(collection_id, profile_id):
            for hit in self._documents[key][1]:
                if hit.vector is not None and matches(condition, hit.chunk.metadata):
                    distance = distance_between(metric, hit.vector, query)
                    vector = hit.vector if with_vectors else None
                    score = score_of(metric, distance)
                    found.append(replace(hit, score=score, distance=distance, vector=vector))
        best = sorted(found, key=lambda hit: (hit.distance, hit.chunk.id))[: checked_top_k(top_k)]
        return NearestChunks(best, matched=len(found))

    async def upsert_chunks(
        self, collection_id: UUID, document: DocumentDraft, chunks: Sequence[ChunkDraft]
    ) -> StoredDocument:
        """See ``VectorStore.upsert_chunks``."""
        key, document_id = (collection_id, document.source), document.document_id or uuid4()
        _, before = self._documents.get(key, (None, []))
        self._documents[key] = document, [_hit(document_id, document, chunk) for chunk in chunks]
        return StoredDocument(document_id, 1, len(chunks), 0, len(before))

    async def replace_profile(
        self,
        collection_id: UUID,
        profile_id: int,
        documents: Sequence[tuple[DocumentDraft, Sequence[ChunkDraft]]],
        *,
        removing: Collection[str] = (),
    ) -> ReplacedProfile:
        """See ``VectorStore.replace_profile``."""
        given = {document.source for document, _ in documents}
        removed = [
            self._documents.pop(key)
            for key in list(self._keys(collection_id, profile_id))
            if self._documents[key][0].parent_source in removing and key[1] not in given
        ]
        stored = [await self.upsert_chunks(collection_id, *document) for document in documents]
        return ReplacedProfile(stored, len(removed), sum(len(hits) for _, hits in removed))

    async def delete_profile_chunks(self, collection_id: UUID, profile_id: int) -> int:
        """See ``VectorStore.delete_profile_chunks``."""
        keys = list(self._keys(collection_id, profile_id))
        return sum(len(self._documents.pop(key)[1]) for key in keys)

    def _keys(self, collection_id: UUID, profile_id: int | None) -> Iterator[tuple[UUID, str]]:
        """Yield the keys of a collection's documents, or of those of a profile."""
        for key, (_, hits) in self._documents.items():
            profiles = {hit.chunk.metadata.get("profile_id") for hit in hits}
            if key[0] == collection_id and (profile_id is None or profile_id in profiles):
                yield key


def _hit(document_id: UUID, document: DocumentDraft, draft: ChunkDraft) -> RetrievedChunk:
    chunk = Chunk(
        uuid4(),
        document_id,
        draft.index,
        draft.text,
        draft.start_offset,
        draft.end_offset,
        draft.token_count,
        draft.heading,
        {**document.metadata, **draft.metadata},
        draft.locations,
    )
    vector = None if draft.vector is None else single_precision(draft.vector, field="vector")
    return RetrievedChunk(chunk, math.nan, math.nan, document.source, document.title, vector=vector)


def distance_between(metric: DistanceMetric, left: Sequence[float], right: Sequence[float]) -> float:
    """Return the distance of pgvector's operator for the metric, in double precision."""
    if metric is DistanceMetric.L2:
        return math.dist(left, right)
    product = math.fsum(map(operator.mul, left, right))
    if metric is DistanceMetric.INNER_PRODUCT:
        return -product
    return 1.0 - max(-1.0, min(1.0, product / (math.hypot(*left) * math.hypot(*right))))
