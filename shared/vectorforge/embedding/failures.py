"""Our errors for what a remote embedding provider did; its own text never gets into them."""

from collections.abc import Mapping

from vectorforge.errors import (
    EmbeddingAuthenticationError,
    EmbeddingError,
    EmbeddingInputError,
    EmbeddingRateLimitError,
    EmbeddingTimeoutError,
)
from vectorforge.vendors.errors import parse_retry_after


def error_for_status(status: int, model: str, headers: Mapping[str, str]) -> EmbeddingError:
    """The error for an HTTP status of 400 or more.

    Args:
        status: What the vendor answered.
        model: Which model was asked.
        headers: Of the answer, names in lower case or case-insensitive.
    """
    if status in (401, 403):
        return EmbeddingAuthenticationError()
    if status == 404:
        return EmbeddingError(f'The embedding provider knows no model "{model}", or its address is wrong.')
    if status == 429:
        return EmbeddingRateLimitError(retry_after_s=parse_retry_after(headers))
    if status in (400, 413, 422):
        return EmbeddingInputError("The embedding provider refused the texts.")
    error = EmbeddingError(f"The embedding provider failed with status {status}.")
    return retryable(error) if status >= 500 or status in (408, 409) else error


def timed_out() -> EmbeddingTimeoutError:
    """No answer in time."""
    return EmbeddingTimeoutError("The embedding provider did not answer in time.")


def unreachable() -> EmbeddingError:
    """No connection, or one that broke."""
    return retryable(EmbeddingError("The embedding provider cannot be reached."))


def no_embeddings() -> EmbeddingError:
    """An answer that does not have the documented shape."""
    return EmbeddingError("The embedding provider sent a body that holds no embeddings.")


def retryable(error: EmbeddingError) -> EmbeddingError:
    """The error, marked as one that may pass."""
    error.retryable = True
    return error
