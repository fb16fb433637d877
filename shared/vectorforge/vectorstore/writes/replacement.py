"""Validation of a document and its chunks, and the plan for replacing it: the stored chunks that stay.

Pure, and shared by all adapters.
"""

import json
from array import array
from collections import defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from vectorforge.errors import (
    ConflictError,
    DimensionMismatchError,
    EmbeddingModelChangedError,
    InvalidInputError,
)
from vectorforge.types import ROW_VERSION, ChunkDraft, DocumentDraft
from vectorforge.vectorstore.validation import MAX_HALF, check_text, checked_profile, single_precision

_MAX_SOURCE_LENGTH: Final = 2_000
_MAX_TITLE_LENGTH: Final = 2_000
_MAX_METADATA_BYTES: Final = 64_000
"""Maximum size of one chunk's metadata as JSON."""

KeyT = TypeVar("KeyT")


@dataclass(frozen=True, slots=True)
class PreparedChunk:
    """A draft that can be stored as it is."""

    draft: ChunkDraft
    metadata: str
    """The document's, completed with the chunk's own, as JSON."""
    locations: str
    """As JSON."""
    vector: "array[float] | None"
    """In single precision."""
    vectors: "Mapping[str, array[float]] | None" = None
    """The same, for ``ChunkDraft.vectors``."""


@dataclass(frozen=True, slots=True)
class Replacement(Generic[KeyT]):
    """Changes to a document's chunks."""

    paired: Sequence[tuple[KeyT, PreparedChunk]]
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
    _check_document(document, chunks)
    metadata = _storable_metadata(document.metadata, field="metadata")
    inherited = {name: value for name, value in document.metadata.items() if name != ROW_VERSION}
    prepared = [
        PreparedChunk(
            draft=draft,
            metadata=_storable_metadata({**inherited, **draft.metadata}, field=f"chunks[{position}].metadata")
            if draft.metadata or len(inherited) < len(document.metadata)
            else metadata,
            locations=_encode(list(draft.locations)),
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


def _check_document(document: DocumentDraft, chunks: Sequence[ChunkDraft]) -> None:
    _check_length(document.source, "source", most=_MAX_SOURCE_LENGTH, least=1)
    _check_length(document.title or "", "title", most=_MAX_TITLE_LENGTH)
    _check_length(document.media_type, "media_type", most=200)
    check_text(document.text, "text")
    _check_hash(document.content_hash, "content_hash")
    for position, chunk in enumerate(chunks):
        name = f"chunks[{position}]"
        check_text(chunk.text, f"{name}.text")
        check_text(chunk.heading or "", f"{name}.heading")
        check_text(chunk.index_context or "", f"{name}.index_context")
        _check_hash(chunk.content_hash, f"{name}.content_hash")
        if not 0 <= chunk.start_offset <= chunk.end_offset <= len(document.text):
            raise InvalidInputError(
                f"{name} must lie within the document's text (offsets {chunk.start_offset} to "
                f"{chunk.end_offset}, text of {len(document.text)} characters).",
                field=f"{name}.start_offset",
            )
        if chunk.token_count < 0:
            raise InvalidInputError(f"{name}.token_count must not be negative.", field=f"{name}.token_count")
    if len({chunk.index for chunk in chunks}) != len(chunks) or any(chunk.index < 0 for chunk in chunks):
        raise InvalidInputError("Each chunk needs its own index, from 0.", field="chunks.index")


_encode = json.JSONEncoder(allow_nan=False, ensure_ascii=False).encode


def _storable_metadata(metadata: Mapping[str, Any], *, field: str) -> str:
    try:
        text = _encode(dict(metadata))
        size = len(text.encode())
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInputError(f"{field} must hold JSON values only (no NaN).", field=field) from error
    if size > _MAX_METADATA_BYTES:
        raise InvalidInputError(
            f"{field} has {size} bytes; at most {_MAX_METADATA_BYTES} are allowed.", field=field
        )
    # the text may also be a backslash followed by u0000
    if "\\u0000" in text and _has_nul(json.loads(text)):
        raise InvalidInputError(f"{field} holds a NUL character, which cannot be stored.", field=field)
    return text


def _has_nul(value: Any) -> bool:
    if isinstance(value, str):
        return "\0" in value
    if isinstance(value, dict):
        return any(map(_has_nul, value)) or any(map(_has_nul, value.values()))
    return isinstance(value, list) and any(map(_has_nul, value))


def _check_length(value: str, field: str, *, most: int, least: int = 0) -> None:
    if not least <= len(value) <= most:
        raise InvalidInputError(
            f"{field} must have {least} to {most} characters, not {len(value)}.", field=field
        )
    check_text(value, field)


def _check_hash(value: bytes, field: str) -> None:
    if len(value) != 32:
        raise InvalidInputError(f"{field} must be the 32 bytes of a sha256.", field=field)


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


def check_halvable(vector: "array[float]", space: str) -> None:
    """Refuse a vector that the half-precision index of its partition cannot hold.

    Raises:
        InvalidInputError: A number is beyond ``MAX_HALF``.
    """
    if space.endswith("_half") and max(map(abs, vector)) > MAX_HALF:
        raise InvalidInputError(
            f"With vector_index half no number of a vector may exceed {MAX_HALF:.0f}.", field="chunks.vector"
        )


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
    paired: list[tuple[KeyT, PreparedChunk]] = []
    added: list[PreparedChunk] = []
    for chunk in chunks:
        partners = unpaired.get(chunk.draft.content_hash)
        if partners:
            paired.append((partners.popleft(), chunk))
        elif chunk.vector is None:
            raise ConflictError(
                f"The chunk at index {chunk.draft.index} has no vector and is not stored; embed it first."
            )
        else:
            added.append(chunk)
    return Replacement(paired, added, [key for keys in unpaired.values() for key in keys])
