"""Validation of the inputs of a search, the same for every adapter, and vectors in binary form."""

import math
import struct
import sys
from array import array
from operator import index
from typing import TYPE_CHECKING, Final, SupportsIndex

from vectorforge.db.repositories.collection_repo import MAX_DIMENSION
from vectorforge.db.repositories.embedding_space_repo import MAX_HALF_DIMENSION
from vectorforge.errors import InvalidInputError
from vectorforge.types import SearchMode, Vector, has_ordinary_length

if TYPE_CHECKING:
    import pgvector

MAX_TOP_K: Final = 1_000
"""Maximum number of chunks of one search."""
MAX_PROFILE_ID: Final = 2**63 - 1
"""Limit of bigint."""
MAX_VECTOR_INDEX_DIMENSION: Final = 2_000
"""Limit of an HNSW index on vector: https://github.com/pgvector/pgvector#hnsw."""
MAX_HALF: Final = 65_504.0
"""Largest number of a half-precision float."""
MAX_NORM: Final = 1e18
"""Above (and below its inverse) the square of the length leaves single precision: distances become NaN."""


def single_precision(vector: Vector, *, field: str) -> "array[float]":
    """Check a vector and round it to the single precision it is stored in.

    Returns:
        The same numbers as 4-byte floats.

    Raises:
        InvalidInputError: Not numbers, NaN or infinite, all zero (no metric can rank a zero vector), too long
            or too short for single precision, or with more dimensions than can be searched.
    """
    try:
        numbers = array("f", vector)
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidInputError(f"{field} must hold finite numbers only.", field=field) from error
    if not 1 <= len(numbers) <= MAX_DIMENSION:
        raise InvalidInputError(
            f"{field} must have 1 to {MAX_DIMENSION} dimensions, not {len(numbers)}.", field=field
        )
    _check_length(numbers, field)
    halved = MAX_VECTOR_INDEX_DIMENSION < len(numbers) <= MAX_HALF_DIMENSION
    if halved and max(map(abs, numbers)) > MAX_HALF:
        raise InvalidInputError(
            f"{field}: with {len(numbers)} dimensions no number may exceed {MAX_HALF:.0f} in half precision.",
            field=field,
        )
    return numbers


def _check_length(numbers: "array[float]", field: str) -> None:
    if has_ordinary_length(numbers):
        return
    norm = math.hypot(*numbers)
    if not math.isfinite(norm):
        raise InvalidInputError(
            f"{field} holds NaN, an infinity or a number beyond single precision.", field=field
        )
    if norm == 0:
        raise InvalidInputError(f"{field} is all zeros, which no metric can rank.", field=field)
    if not 1 / MAX_NORM <= norm <= MAX_NORM:
        raise InvalidInputError(f"{field} must have a length of 1e-18 to 1e18.", field=field)


def checked_integer(value: object, field: str, most: int) -> int:
    """Return the value, or raise InvalidInputError unless it is an integer from 1 to ``most``."""
    number = index(value) if isinstance(value, SupportsIndex) and not isinstance(value, bool) else 0
    if not 1 <= number <= most:
        raise InvalidInputError(f"{field} must be an integer between 1 and {most}.", field=field)
    return number


def checked_top_k(top_k: object) -> int:
    """Return ``top_k``, or raise InvalidInputError unless it is an integer from 1 to ``MAX_TOP_K``."""
    return checked_integer(top_k, "top_k", MAX_TOP_K)


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
    check_text(query_text, "query_text")
    return SearchMode.LEXICAL if query_vector is None else SearchMode.HYBRID


def checked_profile(profile_id: int) -> int:
    """Return ``profile_id``, or raise InvalidInputError unless it is an integer from 0 to 2**63 - 1."""
    if type(profile_id) is not int or not 0 <= profile_id <= MAX_PROFILE_ID:  # True is no number here
        message = f"profile_id must be an integer from 0 to {MAX_PROFILE_ID}."
        raise InvalidInputError(message, field="profile_id")
    return profile_id


def check_text(value: str, field: str) -> None:
    """Raise InvalidInputError for a text that cannot be stored: with a NUL or half a surrogate pair."""
    if "\0" in value:
        raise InvalidInputError(f"{field} holds a NUL character, which cannot be stored.", field=field)
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise InvalidInputError(f"{field} holds half of a surrogate pair.", field=field) from error


def wire_vector(numbers: "array[float]") -> "pgvector.Vector":
    """Wrap a validated vector for ``%b`` parameters, which send it in binary form."""
    import pgvector

    if sys.byteorder == "little":
        numbers = array("f", numbers)
        numbers.byteswap()
    return pgvector.Vector.from_binary(struct.pack(">HH", len(numbers), 0) + numbers.tobytes())
