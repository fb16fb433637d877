"""Interface of vector stores."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from typing import Any
from uuid import UUID

from vectorforge.db.repositories.document_repo import CurrentDocument
from vectorforge.errors import ConflictError
from vectorforge.types import (
    ChunkDraft,
    DistanceMetric,
    DocumentDraft,
    ReplacedProfile,
    StoredDocument,
    Vector,
)
from vectorforge.types import NearestChunks as NearestChunks


class VectorStore(ABC):
    """Chunks with their vectors, of one tenant.

    A new store needs ``search``, ``upsert_chunks`` and ``delete_profile_chunks``: ingestion, search, queries
    and profiles then work. The other methods have defaults, which raise if they cannot do it. Pass it to the
    application as ``Application.build(config, vector_store=MyStore)``, called with each tenant's id.

    A contract suite in the tests checks every adapter against this page.
    """

    @abstractmethod
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
        """Find the chunks nearest to a vector, those with a query's words, or the best of both.

        Only chunks of the current version of each document are seen, and a document being replaced is seen
        either as it was or as it becomes.

        Args:
            query_vector: As many finite floats as the collection has dimensions, not all zero. None for a
                lexical search.
            top_k: Number of chunks, 1 to ``MAX_TOP_K``.
            collection_id: Collection to search; an unknown one is empty.
            metric: The collection's metric.
            filters: Condition on the chunks' metadata, see ``filters``; None for all chunks.
            profile_id: Only chunks of this profile's documents, for any filter; None for all documents.
            query_text: Finds chunks with any of its words, ranked by BM25. None for a dense search.
            context_text: Further words for the search by words, each with less weight than in the query;
                passed only if there are any.
            dense_weight: Weight of the vector in a hybrid search, 0 to 1. A chunk's own relevance is
                ``dense_weight * similarity + (1 - dense_weight) * 2/3 * lexical_score / best
                lexical_score``, and a fifth of its ``relevance`` is the mean of its document's candidates.
                The similarity is the cosine or inner product, at least 0 (products over the best one if that
                is above 1), or the L2 score over the best one. Candidates are the max(30, top_k) nearest
                chunks and as many with the query's words.
            space: Partition of the collection's vectors; None for that of metric and dimension.
            with_vectors: Return each chunk's vector; passed only if true.

        Returns:
            The min(top_k, matching) best chunks, equal ones by chunk id; a lexical search only finds chunks
            with a word of the query. Ranked by ``relevance``, in a dense search by score. A filter never
            makes them fewer than match. An approximate index may choose among equally distant chunks.
            Includes the number of matches: exact, or the number at which the store stopped counting.

        Raises:
            FilterError: The filter is invalid.
            InvalidInputError: ``top_k``, ``query_vector``, ``dense_weight`` or ``profile_id`` is invalid,
                neither vector nor text is given, or a collection for profiles is searched without one.
            DimensionMismatchError: The vector's length is not the collection's dimension.
            ConflictError: The metric is not the collection's.
            EmbeddingModelChangedError: ``space`` is given and not (any more) the collection's.
        """

    def at_version(self, collection_id: UUID, version: int, min_version: int | None = None) -> "VectorStore":
        """Return this store for searches of one query, which a read replica may answer if it is recent.

        The default has no replicas and returns itself.

        Args:
            collection_id: Collection to search.
            version: Its version on the writer, read for this query.
            min_version: Oldest version that the replica may have; None for any that is recent enough.
        """
        return self

    @abstractmethod
    async def upsert_chunks(
        self, collection_id: UUID, document: DocumentDraft, chunks: Sequence[ChunkDraft]
    ) -> StoredDocument:
        """Store a document, or replace the one with the same source, in one step that readers see whole.

        Nothing is written when the stored ``content_hash`` is the same. Otherwise stored chunks are paired
        with the new ones by ``ChunkDraft.content_hash`` (equal hashes in document order): a pair keeps its id
        and its embedding and takes over position, offsets, heading and metadata; what is left over is
        removed or added. Writers of the same document run one at a time.

        Args:
            collection_id: The collection.
            document: The document as extracted.
            chunks: Its chunks, in any order; ``vector`` may be None where a stored chunk stays.
                Their metadata is completed with the document's; the chunk's own wins.

        Returns:
            What was done.

        Raises:
            NotFoundError: There is no such collection.
            ConflictError: A chunk without a vector is not stored (any more): embed it and call again.
            DimensionMismatchError: A vector's length is not the collection's dimension; nothing is written.
            InvalidInputError: A text, vector or metadata value that cannot be stored, or the collection's
                documents belong to profiles; nothing is written.
        """

    async def replace_document(
        self, collection_id: UUID, document: DocumentDraft, chunks: Sequence[ChunkDraft]
    ) -> StoredDocument:
        """Another name of ``upsert_chunks``, which ingestion calls."""
        return await self.upsert_chunks(collection_id, document, chunks)

    async def add_documents(
        self, collection_id: UUID, documents: Sequence[tuple[DocumentDraft, Sequence[ChunkDraft]]]
    ) -> list[StoredDocument | None]:
        """Store new documents with different sources, many in one step.

        The default stores none, so that each is stored by ``replace_document``.

        Returns:
            For each document what was done; None if it was not stored, because it exists, or because only
            ``replace_document`` can store it or report what is wrong with it.

        Raises:
            DatabaseError: The database failed; some of the documents may have been stored.
        """
        return [None] * len(documents)

    async def delete_document(self, document_id: UUID) -> bool:
        """Remove a document with its chunks and vectors.

        The default raises ConflictError.

        Returns:
            False when there was no such document.
        """
        raise _cannot("delete single documents")

    async def count_documents(
        self, collection_id: UUID, filters: Mapping[str, Any], *, profile_id: int | None = None
    ) -> int:
        """Count the documents that ``delete_documents`` would remove.

        The default raises ConflictError.

        Args:
            collection_id: The collection.
            filters: Condition on the documents' own metadata (not that of single chunks),
                see ``filters``; not empty.
            profile_id: Only documents of this profile.

        Raises:
            FilterError: The filter cannot be understood, or is empty.
            NotFoundError: There is no such collection.
            ConflictError: A profile is given, but the collection is not for profiles.
            InvalidInputError: ``profile_id`` is not usable, or the collection's documents belong to profiles
                and none is named.
        """
        raise _cannot("count documents by their metadata")

    async def delete_documents(
        self, collection_id: UUID, filters: Mapping[str, Any], *, profile_id: int | None = None
    ) -> int:
        """Delete documents whose own metadata match, at most one transaction's worth.

        The default raises ConflictError.

        To be called until it returns 0. A document that is being replaced is judged as it becomes.

        Args:
            collection_id: As for ``count_documents``.
            filters: As for ``count_documents``.
            profile_id: As for ``count_documents``.

        Returns:
            How many were removed with their chunks and vectors; 0: none match (any more).

        Raises:
            As ``count_documents``.
        """
        raise _cannot("delete documents by their metadata")

    async def delete_left_out(self, collection_id: UUID, parent_source: str, kept: Collection[str]) -> int:
        """Remove the documents of a file that the file no longer holds.

        The default removes none.

        Args:
            collection_id: The collection.
            parent_source: The file, as ``DocumentDraft.parent_source`` names it.
            kept: Sources of the file's current documents; all others of this file are deleted.

        Returns:
            How many were removed.
        """
        return 0

    async def replace_profile(
        self,
        collection_id: UUID,
        profile_id: int,
        documents: Sequence[tuple[DocumentDraft, Sequence[ChunkDraft]]],
        *,
        removing: Collection[str] = (),
    ) -> ReplacedProfile:
        """Store documents of a profile, and remove others, in one step that readers see whole.

        Each document is stored as by ``upsert_chunks``. Writers of the same profile run one at a time.

        The default is not one step: with ``removing`` it deletes the whole profile, then stores
        ``documents``.

        Args:
            collection_id: The collection, which must be for profiles.
            profile_id: The profile, 0 or more; it begins with its first document.
            documents: Documents with their chunks, each source once.
            removing: Documents of the profile with one of these ``DocumentDraft.parent_source`` are removed
                unless they are among ``documents``.

        Returns:
            What was done.

        Raises:
            NotFoundError: There is no such collection.
            ConflictError: As ``replace_document``; or the collection was not made for profiles; or a source
                belongs to another profile. Nothing is written.
            DimensionMismatchError: A vector's length is not the collection's dimension; nothing is written.
            InvalidInputError: Something cannot be stored; nothing is written.
        """
        removed = await self.delete_profile_chunks(collection_id, profile_id) if removing else 0
        stored = [await self.upsert_chunks(collection_id, *document) for document in documents]
        return ReplacedProfile(stored, chunks_removed=removed)

    async def profile_documents(self, collection_id: UUID, profile_id: int) -> Mapping[str, CurrentDocument]:
        """Return the stored state of a profile, by source; empty for an unknown profile.

        The default returns none, so that all chunks are embedded again.
        """
        return {}

    @abstractmethod
    async def delete_profile_chunks(self, collection_id: UUID, profile_id: int) -> int:
        """Remove a profile with all of its documents and chunks; returns how many chunks there were."""


def _cannot(what: str) -> ConflictError:
    return ConflictError(f"This vector store cannot {what}; use one that implements it.")
