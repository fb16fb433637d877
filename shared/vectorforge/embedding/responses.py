"""Responses of remote embedding providers: the vectors, or our error without the provider's text."""

import base64
import json
import sys
from array import array
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import orjson

from vectorforge.errors import (
    EmbeddingAuthenticationError,
    EmbeddingError,
    EmbeddingInputError,
    EmbeddingRateLimitError,
    EmbeddingTimeoutError,
)
from vectorforge.types import Vector
from vectorforge.vendors.failures import parse_retry_after


def error_for_status(status: int, model: str, headers: Mapping[str, str]) -> EmbeddingError:
    """Return the error for an HTTP status of 400 or more.

    Args:
        status: Status of the response.
        model: Requested model.
        headers: Headers of the response, names in lower case or case-insensitive.
    """
    if status in (401, 403):
        return EmbeddingAuthenticationError()
    if status == 404:
        return EmbeddingError(f'The embedding provider has no model "{model}", or its address is wrong.')
    if status == 429:
        return EmbeddingRateLimitError(retry_after_s=parse_retry_after(headers))
    if status in (400, 413, 422):
        return EmbeddingInputError("The embedding provider refused the texts.")
    error = EmbeddingError(f"The embedding provider failed with status {status}.")
    return retryable(error) if status >= 500 or status in (408, 409) else error


def timed_out() -> EmbeddingTimeoutError:
    """Return the error for a response that did not arrive in time."""
    return EmbeddingTimeoutError("The embedding provider did not answer in time.")


def unreachable() -> EmbeddingError:
    """Return the error for a failed connection."""
    return retryable(EmbeddingError("The embedding provider cannot be reached."))


def no_embeddings() -> EmbeddingError:
    """Return the error for a response that does not have the documented shape."""
    return EmbeddingError("The embedding provider sent a body that holds no embeddings.")


def retryable(error: EmbeddingError) -> EmbeddingError:
    """Mark the error as retryable and return it."""
    error.retryable = True
    return error


def _parsed(body: bytes) -> Any:
    try:
        return orjson.loads(body)
    except ValueError:
        return json.loads(body)  # accepts NaN, which some servers send; checked later


def read_vectors(body: bytes) -> list[Vector]:
    """Return the vectors of a response in OpenAI's format, in the order of the texts.

    Gemini omits an ``index`` of 0 and other servers omit all: the position in the list replaces it.

    Raises:
        EmbeddingError: The body does not have the documented shape.
    """
    try:
        items = _parsed(body)["data"]
        indexes = [item.get("index", place) for place, item in enumerate(items)]
        decode = _decoder(len(items))
        vectors = dict(zip(indexes, (_decoded(item["embedding"], decode) for item in items), strict=True))
    except (AttributeError, KeyError, OverflowError, RecursionError, TypeError, ValueError) as exc:
        raise no_embeddings() from exc
    if vectors.keys() != set(range(len(items))):
        raise EmbeddingError("The embedding provider's vectors cannot be matched to the texts.")
    return [vectors[index] for index in range(len(items))]


def _decoder(count: int) -> Callable[[str], bytes]:
    """Return a decoder of base64; pybase64 is not worth its import for one vector."""
    if count == 1:
        return partial(base64.b64decode, validate=True)
    import pybase64

    return partial(pybase64.b64decode, validate=True)


def _decoded(embedding: Any, decode: Callable[[str], bytes]) -> Vector:
    """Return a vector sent as base64 of little-endian float32 or as a list of numbers."""
    if not isinstance(embedding, str):
        return array("d", embedding)  # precision is checked later
    vector = array("f", decode(embedding))
    if sys.byteorder == "big":
        vector.byteswap()
    return vector
