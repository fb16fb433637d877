"""Validation of the inputs of a store, the same for every adapter, and vectors in binary form."""

import json
import math
import struct
import sys
from array import array
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from vectorforge.errors import InvalidInputError
from vectorforge.float32 import ValidatedVector, fast_is_finite
from vectorforge.types import ChunkDraft, DistanceMetric, DocumentDraft, SearchMode, Vector

if TYPE_CHECKING:
    import pgvector

MAX_TOP_K: Final = 1_000
"""Maximum number of chunks of one search."""
MAX_PROFILE_ID: Final = 2**63 - 1
"""Limit of bigint."""
MAX_DIMENSION: Final = 16_000
"""Limit of the type vector."""
MAX_VECTOR_INDEX_DIMENSION: Final = 2_000
"""Limit of an HNSW index on vector: https://github.com/pgvector/pgvector#hnsw."""
MAX_HALFVEC_INDEX_DIMENSION: Final = 4_000
"""Limit of an HNSW index on halfvec; above, every search is exact."""
MAX_HALF: Final = 65_504.0
"""Largest number of a half-precision float."""
MAX_NORM: Final = 1e18
"""Above (and below its inverse) the square of the length leaves single precision: distances become NaN."""
MAX_SOURCE_LENGTH: Final = 2_000
MAX_TITLE_LENGTH: Final = 2_000
MAX_METADATA_BYTES: Final = 64_000
"""Maximum size of one chunk's metadata as JSON."""


def single_precision(vector: Vector, *, field: str) -> "array[float]":
    """Check a vector and round it to the single precision it is stored in.

    Args:
        vector: Any number of floats.
        field: Name for errors.

    Returns:
        The same numbers as 4-byte floats; a ``ValidatedVector`` itself.

    Raises:
        InvalidInputError: Not numbers, NaN or infinite, all zero (no metric can rank a zero vector), too long
            or too short for single precision, or with more dimensions than can be searched.
    """
    try:
        numbers = vector if isinstance(vector, ValidatedVector) else array("f", vector)
    except (TypeError, OverflowError) as error:
        raise InvalidInputError(f"{field} must hold finite numbers only.", field=field) from error
    if not 1 <= len(numbers) <= MAX_DIMENSION:
        raise InvalidInputError(
            f"{field} must have 1 to {MAX_DIMENSION} dimensions, not {len(numbers)}.", field=field
        )
    if not (isinstance(numbers, ValidatedVector) or fast_is_finite(numbers)):
        _check_length(numbers, field)
    halved = MAX_VECTOR_INDEX_DIMENSION < len(numbers) <= MAX_HALFVEC_INDEX_DIMENSION
    if halved and max(map(abs, numbers)) > MAX_HALF:
        raise InvalidInputError(
            f"{field}: with {len(numbers)} dimensions no number may exceed {MAX_HALF:.0f} in half precision.",
            field=field,
        )
    return numbers


def _check_length(numbers: "array[float]", field: str) -> None:
    norm = math.hypot(*numbers)
    if not math.isfinite(norm):
        raise InvalidInputError(
            f"{field} holds NaN, an infinity or a number beyond single precision.", field=field
        )
    if norm == 0:
        raise InvalidInputError(f"{field} is all zeros, which no metric can rank.", field=field)
    if not 1 / MAX_NORM <= norm <= MAX_NORM:
        raise InvalidInputError(f"{field} must have a length of 1e-18 to 1e18.", field=field)


def check_halvable(vector: "array[float]", space: str) -> None:
    """Refuse a vector that the half-precision index of its partition cannot hold.

    Raises:
        InvalidInputError: A number is beyond ``MAX_HALF``.
    """
    if space.endswith("_half") and max(map(abs, vector)) > MAX_HALF:
        raise InvalidInputError(
            f"With vector_index half no number of a vector may exceed {MAX_HALF:.0f}.", field="chunks.vector"
        )


def checked_top_k(top_k: int) -> int:
    """Return ``top_k``, or raise InvalidInputError outside 1 to ``MAX_TOP_K``."""
    if not 1 <= top_k <= MAX_TOP_K:
        raise InvalidInputError(f"top_k must be an integer from 1 to {MAX_TOP_K}.", field="top_k")
    return top_k


def search_mode(query_vector: Vector | None, query_text: str | None, dense_weight: float) -> SearchMode:
    """Return the mode of a search from its inputs.

    Raises:
        InvalidInputError: Neither vector nor text, a NUL in the text, or a weight outside 0 to 1.
    """
    if not 0 <= dense_weight <= 1:
        raise InvalidInputError("dense_weight must be from 0 to 1.", field="dense_weight")
    if query_text is None:
        if query_vector is None:
            raise InvalidInputError("query_vector or query_text is required.", field="query_vector")
        return SearchMode.DENSE
    _check_text(query_text, "query_text")
    return SearchMode.LEXICAL if query_vector is None else SearchMode.HYBRID


def checked_profile(profile_id: int) -> int:
    """Return ``profile_id``, or raise InvalidInputError unless it is an integer from 0 to 2**63 - 1."""
    if type(profile_id) is not int or not 0 <= profile_id <= MAX_PROFILE_ID:  # True is no number here
        message = f"profile_id must be an integer from 0 to {MAX_PROFILE_ID}."
        raise InvalidInputError(message, field="profile_id")
    return profile_id


def check_document(document: DocumentDraft, chunks: Sequence[ChunkDraft]) -> None:
    """Refuse texts that cannot be stored and numbers that contradict each other.

    Raises:
        InvalidInputError: Names the field, with the position of the chunk, and the limit.
    """
    _check_text(document.source, "source", most=MAX_SOURCE_LENGTH, least=1)
    _check_text(document.title or "", "title", most=MAX_TITLE_LENGTH)
    _check_text(document.text, "text")
    _check_text(document.media_type, "media_type", most=200)
    _check_hash(document.content_hash, "content_hash")
    for position, chunk in enumerate(chunks):
        name = f"chunks[{position}]"
        _check_text(chunk.text, f"{name}.text")
        _check_text(chunk.heading or "", f"{name}.heading")
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


def storable_metadata(metadata: Mapping[str, Any], *, field: str) -> str:
    """Metadata as JSON, checked.

    Raises:
        InvalidInputError: It is not JSON, holds NaN, NUL or half a surrogate pair, or is longer than
            ``MAX_METADATA_BYTES``.
    """
    try:
        text = _encode(dict(metadata))
        size = len(text.encode())
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInputError(f"{field} must hold JSON values only (no NaN).", field=field) from error
    if size > MAX_METADATA_BYTES:
        raise InvalidInputError(
            f"{field} has {size} bytes; at most {MAX_METADATA_BYTES} are allowed.", field=field
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


def _check_text(value: str, field: str, *, most: int | None = None, least: int = 0) -> None:
    if most is not None and not least <= len(value) <= most:
        raise InvalidInputError(
            f"{field} must have {least} to {most} characters, not {len(value)}.", field=field
        )
    if "\0" in value:
        raise InvalidInputError(f"{field} holds a NUL character, which cannot be stored.", field=field)
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise InvalidInputError(f"{field} holds half of a surrogate pair.", field=field) from error


def _check_hash(value: bytes, field: str) -> None:
    if len(value) != 32:
        raise InvalidInputError(f"{field} must be the 32 bytes of a sha256.", field=field)


def chunk_metadata(document: DocumentDraft, chunk: ChunkDraft, *, position: int) -> str:
    """Return the document's metadata completed with the chunk's own, which wins, as JSON.

    Raises:
        InvalidInputError: See ``storable_metadata``.
    """
    return storable_metadata({**document.metadata, **chunk.metadata}, field=f"chunks[{position}].metadata")


def score_of(metric: DistanceMetric, distance: float) -> float:
    """Return the score of a distance as pgvector's operators return it; higher is better.

    Args:
        metric: Operator: ``<=>`` (1 - cosine), ``<#>`` (negative inner product) or ``<->`` (Euclidean).
        distance: Distance from that operator.

    Returns:
        Cosine: 1 - distance; inner product: -distance; L2: 1 / (1 + distance).
    """
    match metric:
        case DistanceMetric.COSINE:
            return 1.0 - distance
        case DistanceMetric.INNER_PRODUCT:
            return -distance
        case DistanceMetric.L2:
            return 1.0 / (1.0 + distance)


def wire_vector(numbers: "array[float]") -> "pgvector.Vector":
    """Wrap a validated vector for ``%b`` parameters, which send it in binary form."""
    import pgvector

    if sys.byteorder == "little":
        numbers = array("f", numbers)
        numbers.byteswap()
    return pgvector.Vector.from_binary(struct.pack(">HH", len(numbers), 0) + numbers.tobytes())
