"""The engine's errors. Each is the pipeline's error of the same kind, too, so either can be caught."""

from vectorforge import errors


class RAGError(errors.VectorForgeError):
    """The engine failed."""


class EmbeddingError(RAGError, errors.EmbeddingError):
    """A text could not be embedded."""


class RetrievalError(RAGError, errors.RetrievalError):
    """The search failed."""


class GenerationError(RAGError, errors.LLMError):
    """The answer could not be generated."""


def rag_error(error: errors.VectorForgeError) -> errors.VectorForgeError:
    """The engine's error for one of the pipeline's; what the caller has to change stays as it is."""
    if isinstance(error, RAGError) or not error.is_fault:
        return error
    own: RAGError
    if isinstance(error, errors.EmbeddingError):
        own = EmbeddingError(f"Failed to generate embedding: {error.message}")
    elif isinstance(error, errors.LLMError):
        own = GenerationError(f"Failed to generate response: {error.message}")
    elif isinstance(error, errors.RetrievalError | errors.DatabaseError):
        own = RetrievalError(f"Failed to retrieve documents: {error.message}")
    else:
        return error
    own.retryable, own.retry_after_s = error.retryable, error.retry_after_s
    own.__cause__ = error
    return own
