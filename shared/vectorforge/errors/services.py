"""Errors of dependencies: embedding models, LLMs, stored answers, database, buckets, queues."""

from vectorforge.errors.base import VectorForgeError


class EmbeddingError(VectorForgeError):
    """The text could not be embedded."""

    code = "embedding_error"


class EmbeddingAuthenticationError(EmbeddingError):
    """The embedding provider refused the credentials."""

    code = "embedding_authentication"


class EmbeddingDimensionError(EmbeddingError):
    """The embedding provider sent vectors of another length than configured."""


class EmbeddingInputError(EmbeddingError):
    """The text cannot be embedded."""

    code = "embedding_input_refused"
    is_fault = False

    def __init__(self, message: str | None = None, *, index: int | None = None) -> None:
        super().__init__(message)
        self.index = index
        """Position of the invalid text, from 0; None if the provider did not report it."""


class EmbeddingRateLimitError(EmbeddingError):
    """The embedding provider is limiting requests."""

    code = "embedding_rate_limited"
    retryable = True


class EmbeddingTimeoutError(EmbeddingError):
    """The embedding provider did not answer in time."""

    code = "embedding_timeout"
    retryable = True


class LLMError(VectorForgeError):
    """The answer could not be generated."""

    code = "llm_error"


class LLMAuthenticationError(LLMError):
    """The LLM provider refused the credentials."""

    code = "llm_authentication"


class LLMRateLimitError(LLMError):
    """The LLM provider is limiting requests."""

    code = "llm_rate_limited"
    retryable = True


class LLMTimeoutError(LLMError):
    """The LLM provider did not answer in time."""

    code = "llm_timeout"
    retryable = True


class LLMRequestError(LLMError):
    """The LLM provider refused the request."""

    code = "llm_request_refused"


class LLMContextOverflowError(LLMRequestError):
    """The request is longer than the model's context."""

    code = "context_length_exceeded"  # OpenAI's own code for it
    is_fault = False

    def __init__(
        self,
        message: str | None = None,
        *,
        prompt_tokens: int | None = None,
        limit_tokens: int | None = None,
    ) -> None:
        super().__init__(message)
        self.prompt_tokens = prompt_tokens
        """Tokens of the request without the answer, as the vendor counts; None if not reported."""
        self.limit_tokens = limit_tokens
        """Context length of the model, often including the answer; None if not reported."""


class LLMStreamError(LLMError):
    """The answer broke off before its end."""

    code = "llm_stream_broken"


class LLMCircuitOpenError(LLMError):
    """Calls to the model are suspended after repeated failures."""

    code = "llm_circuit_open"


class AnswerUnavailableError(VectorForgeError):
    """No model is available, and no fallback either."""

    code = "answer_unavailable"
    retryable = True


class AnswerStreamLostError(VectorForgeError):
    """The server that generated this answer is gone; send the query again."""

    code = "stream_lost"
    retryable = True


class AnswerStreamTooLongError(VectorForgeError):
    """The answer was too long to be stored; send the query again and read it without interruption."""

    code = "stream_too_long"


class ObjectStoreError(VectorForgeError):
    """The object could not be read."""

    code = "object_store_error"
    retryable = True


class QueueError(VectorForgeError):
    """The queue rejected the message."""

    code = "queue_error"
    retryable = True


class TraceExportError(VectorForgeError):
    """The traces could not be exported."""

    code = "trace_export_error"
    retryable = True


class RetrievalError(VectorForgeError):
    """The search failed."""

    code = "retrieval_error"


class DatabaseError(VectorForgeError):
    """The database refused a statement."""

    code = "database_error"


class DatabaseUnavailableError(DatabaseError):
    """The database cannot be reached."""

    code = "database_unavailable"
    retryable = True


class DatabaseLoginError(DatabaseUnavailableError):
    """The database refused the role or its password."""


class UntrustedDatabaseError(DatabaseUnavailableError):
    """The database's TLS certificate cannot be trusted."""


class RefusedRowError(DatabaseError):
    """The database rejected a value or a row: its type, range or a constraint forbids it."""


class MigrationError(DatabaseError):
    """The database schema cannot be brought up to date."""

    code = "migration_error"


class UnsafeRoleError(DatabaseError):
    """The database role bypasses row-level security."""

    code = "unsafe_role"
