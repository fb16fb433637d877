"""Which errors another step of the ladder may hide, and what is raised when none is left."""

from vectorforge.errors import (
    AnswerUnavailableError,
    DatabaseUnavailableError,
    DeadlineExceededError,
    EmbeddingAuthenticationError,
    EmbeddingError,
    EmbeddingInputError,
    EmbeddingRateLimitError,
    EmbeddingTimeoutError,
    LLMAuthenticationError,
    LLMRateLimitError,
    LLMRequestError,
    LLMTimeoutError,
    RetrievalError,
    VectorForgeError,
)
from vectorforge.pipeline.run import QueryRun

_WRONG_REQUESTS = (LLMAuthenticationError, LLMRequestError)
"""Another step would hide what has to be repaired."""
_FAILED_SEARCHES = (EmbeddingError, RetrievalError, DatabaseUnavailableError, DeadlineExceededError)
_WRONG_SEARCHES = (EmbeddingAuthenticationError, EmbeddingInputError)
_OWN_STATUS = (
    LLMRateLimitError,
    LLMTimeoutError,
    EmbeddingRateLimitError,
    EmbeddingTimeoutError,
    DeadlineExceededError,
    DatabaseUnavailableError,
)
"""Say more to the client (429, 504, 503) than that nobody can answer."""


def is_final(run: QueryRun, error: VectorForgeError) -> bool:
    """Whether no other step may be taken: a part of the answer was seen, or the request itself is wrong."""
    return run.first_token_ms is not None or isinstance(error, _WRONG_REQUESTS)


def may_answer_without_search(error: VectorForgeError) -> bool:
    """Whether a step may be taken in place of a search that failed with this."""
    return isinstance(error, _FAILED_SEARCHES) and not isinstance(error, _WRONG_SEARCHES)


def unavailable(error: VectorForgeError) -> VectorForgeError:
    """What to raise when no step works: this error, if it says more than ``AnswerUnavailableError``."""
    if isinstance(error, _OWN_STATUS):
        return error
    return AnswerUnavailableError(f"{error.message} Try again later.", retry_after_s=error.retry_after_s)
