"""Responses of remote embedding providers: the vectors, or our error without the provider's text."""

import json
import sys
from array import array
from collections.abc import Mapping
from typing import Any

import orjson
from pydantic_core import CoreConfig, SchemaValidator, core_schema

from vectorforge.errors import (
    EmbeddingAuthenticationError,
    EmbeddingError,
    EmbeddingInputError,
    EmbeddingRateLimitError,
    EmbeddingTimeoutError,
)
from vectorforge.types import Vector
from vectorforge.vendors.response import (
    VendorConnectionError,
    VendorStatusError,
    VendorTimeoutError,
    parse_retry_after,
)

_BASE64 = SchemaValidator(core_schema.bytes_schema(), CoreConfig(val_json_bytes="base64"))
"""Decodes 1,536 dimensions in 3 microseconds, ``base64`` in 16: 15 % of the CPU time of storing a chunk."""


def error_for_status(status: int, model: str, headers: Mapping[str, str]) -> EmbeddingError:
    """Return the error for an HTTP status of 400 or more; names of headers in lower case or in any."""
    if status in (401, 403):
        return EmbeddingAuthenticationError()
    if status == 404:
        return EmbeddingError(f'The embedding provider has no model "{model}", or its address is wrong.')
    if status == 429:
        return EmbeddingRateLimitError(retry_after_s=parse_retry_after(headers))
    if status in (400, 413, 422):
        return EmbeddingInputError("The embedding provider refused the texts.")
    error = EmbeddingError(f"The embedding provider failed with status {status}.")
    return _retryable(error) if status >= 500 or status in (408, 409) else error


def error_for_exception(exc: Exception, model: str) -> EmbeddingError:
    """Return the error for an exception of ``vectorforge.vendors`` or of reading a response."""
    if isinstance(exc, VendorTimeoutError):
        return EmbeddingTimeoutError("The embedding provider did not answer in time.")
    if isinstance(exc, VendorConnectionError | ConnectionError):
        return _retryable(EmbeddingError("The embedding provider cannot be reached."))
    if not isinstance(exc, VendorStatusError):
        return _no_embeddings()
    error = error_for_status(exc.status, model, exc.headers)
    if exc.code == "insufficient_quota":  # waiting does not help
        error.retryable = False
    return error


def _no_embeddings() -> EmbeddingError:
    return EmbeddingError("The embedding provider sent a body that holds no embeddings.")


def _retryable(error: EmbeddingError) -> EmbeddingError:
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
        vectors = dict(zip(indexes, (_decoded(item["embedding"]) for item in items), strict=True))
    except (AttributeError, KeyError, OverflowError, RecursionError, TypeError, ValueError) as exc:
        raise _no_embeddings() from exc
    if vectors.keys() != set(range(len(items))):
        raise EmbeddingError("The embedding provider's vectors cannot be matched to the texts.")
    return [vectors[index] for index in range(len(items))]


def _decoded(embedding: Any) -> Vector:
    """Return a vector sent as base64 of little-endian float32 or as a list of numbers."""
    if not isinstance(embedding, str):
        return array("d", embedding)  # precision is checked later
    vector = array("f", _BASE64.validate_strings(embedding))  # type: ignore[arg-type]  # stub: no str
    if sys.byteorder == "big":
        vector.byteswap()
    return vector
