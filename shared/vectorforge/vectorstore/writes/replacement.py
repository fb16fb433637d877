"""Plan for replacing a document: the stored chunks that stay. Pure, and shared by all adapters."""

from array import array
from collections import defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from vectorforge.errors import (
    ConflictError,
    DimensionMismatchError,
    EmbeddingModelChangedError,
    InvalidInputError,
)
from vectorforge.types import ChunkDraft, DocumentDraft
from vectorforge.vectorstore.validation import (
    check_document,
    checked_profile,
    chunk_metadata,
    single_precision,
    storable_metadata,
)

KeyT = TypeVar("KeyT")


@dataclass(frozen=True, slots=True)
class PreparedChunk:
    """A draft that can be stored as it is."""

    draft: ChunkDraft
    metadata: str
    """The document's, completed with the chunk's own, as JSON."""
    vector: "array[float] | None"
    """In single precision."""
    vectors: "Mapping[str, array[float]] | None" = None
    """The same, for ``ChunkDraft.vectors``."""


@dataclass(frozen=True, slots=True)
class Replacement(Generic[KeyT]):
    """Changes to a document's chunks."""

    kept: Sequence[tuple[KeyT, PreparedChunk]]
    """Stored chunks, with the equal draft."""
    added: Sequence[PreparedChunk]
    """In document order; each has a vector."""
    removed: Sequence[KeyT]


def prepare(document: DocumentDraft, chunks: Sequence[ChunkDraft]) -> tuple[str, list[PreparedChunk]]:
    """Check a document and its chunks completely, before any store is called.

    Returns:
        The document's metadata as JSON, and the chunks in document order.

    Raises:
        InvalidInputError: Something cannot be stored; names the field.
        DimensionMismatchError: The vectors differ in length.
    """
    check_document(document, chunks)
    metadata = storable_metadata(document.metadata, field="metadata")
    prepared = [
        PreparedChunk(
            draft=draft,
            metadata=chunk_metadata(document, draft, position=position) if draft.metadata else metadata,
            vector=None
            if draft.vector is None
            else single_precision(draft.vector, field=f"chunks[{position}].vector"),
            vectors=None
            if draft.vectors is None
            else {
                space: single_precision(vector, field=f"chunks[{position}].vectors")
                for space, vector in draft.vectors.items()
            },
        )
        for position, draft in enumerate(chunks)
    ]
    lengths = [len(chunk.vector) for chunk in prepared if chunk.vector is not None]
    for length in lengths:
        check_dimension(expected=lengths[0], actual=length, what="chunk's vector")
    return metadata, sorted(prepared, key=lambda chunk: chunk.draft.index)


@dataclass(frozen=True, slots=True)
class PreparedDocument:
    """A document that can be stored as it is."""

    draft: DocumentDraft
    metadata: str
    """As JSON."""
    chunks: Sequence[PreparedChunk]
    """In document order."""


def prepare_profile(
    profile_id: int, documents: Sequence[tuple[DocumentDraft, Sequence[ChunkDraft]]]
) -> list[PreparedDocument]:
    """Check the documents of a profile, each as ``prepare`` does, in their order.

    Raises:
        InvalidInputError: Something cannot be stored, the profile is no integer from 0, or two documents
            have the same source.
        DimensionMismatchError: The vectors of a document differ in length.
    """
    checked_profile(profile_id)
    prepared = [PreparedDocument(draft, *prepare(draft, chunks)) for draft, chunks in documents]
    if len({document.draft.source for document in prepared}) != len(prepared):
        raise InvalidInputError("No two documents may have the same source.", field="documents")
    return prepared


def check_dimension(*, expected: int, actual: int, what: str) -> None:
    """Raise DimensionMismatchError unless both are equal."""
    if expected != actual:
        raise DimensionMismatchError(expected=expected, actual=actual, what=what)


def vector_in(space: str, chunk: PreparedChunk) -> "array[float] | None":
    """Return the chunk's vector for a space; None: it is stored already.

    Raises:
        EmbeddingModelChangedError: Its vectors are of other spaces.
    """
    if chunk.vectors is None or chunk.vector is None:
        return chunk.vector
    if space not in chunk.vectors:
        raise EmbeddingModelChangedError
    return chunk.vectors[space]


def plan(stored: Iterable[tuple[bytes, KeyT]], chunks: Sequence[PreparedChunk]) -> Replacement[KeyT]:
    """Pair stored chunks with new ones by content hash.

    Args:
        stored: Content hash and key of each current chunk, in document order.
        chunks: The new chunks, in document order.

    Returns:
        Pairs (the n-th stored chunk of a hash with the n-th new one), new chunks, and what is left over.

    Raises:
        ConflictError: A new chunk has no vector and no stored partner.
    """
    unpaired: defaultdict[bytes, deque[KeyT]] = defaultdict(deque)
    for content_hash, key in stored:
        unpaired[content_hash].append(key)
    kept: list[tuple[KeyT, PreparedChunk]] = []
    added: list[PreparedChunk] = []
    for chunk in chunks:
        partners = unpaired.get(chunk.draft.content_hash)
        if partners:
            kept.append((partners.popleft(), chunk))
        elif chunk.vector is None:
            raise ConflictError(
                f"The chunk at index {chunk.draft.index} has no vector and is not stored; embed it first."
            )
        else:
            added.append(chunk)
    return Replacement(kept, added, [key for keys in unpaired.values() for key in keys])
