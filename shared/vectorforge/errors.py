"""Every error VectorForge raises on purpose. Their texts are written by us and safe to show a caller.

    VectorForgeError
    ├── ConfigurationError              a setting is missing or contradicts another
    ├── SecretsUnavailableError         keys that are kept elsewhere cannot be read now
    ├── InvalidInputError (ValueError)  a caller's value; names the field and the limit
    │   ├── FilterError                 a metadata filter that cannot be understood
    │   └── IdempotencyKeyReusedError   another request came under the same key
    ├── NotFoundError
    │   └── AnsweringModelNotFoundError  a client of OpenAI's API named a model that is not there
    ├── ConflictError                   the request contradicts what is stored
    │   ├── DimensionMismatchError
    │   ├── EmbeddingModelChangedError  the collection's model is another by now
    │   ├── TenantBeingErasedError      nobody may enter it until that is done
    │   ├── IdempotentAnswerPendingError  the first request under the key has not ended yet
    │   ├── IdempotentAnswerTooLongError  so it cannot be given again
    │   └── EmbeddingSwitchRefusedError  the new model finds too little of what the old one finds
    ├── AuthenticationError             no credential, or not one of ours
    ├── InsufficientScopeError          the credential may not do this
    ├── IdentityProviderUnavailableError  the keys that tokens are checked with cannot be had
    ├── LimitExceededError              the tenant's limit is reached for now
    ├── DeadlineExceededError           no time left for the next step
    ├── EmbeddingError                  text could not be turned into vectors
    │   ├── EmbeddingAuthenticationError
    │   ├── EmbeddingInputError         one text cannot be embedded: empty, too long, refused
    │   ├── EmbeddingRateLimitError
    │   └── EmbeddingTimeoutError
    ├── LLMError                        an answer could not be generated
    │   ├── LLMAuthenticationError
    │   ├── LLMRateLimitError
    │   ├── LLMTimeoutError
    │   ├── LLMRequestError             the vendor refused the request itself
    │   ├── LLMStreamError              the stream broke after its first token
    │   └── LLMCircuitOpenError         it failed so often that it is not asked for a while
    ├── AnswerUnavailableError          nobody can answer now, and nothing takes an answer's place
    ├── AnswerStreamLostError           its writer is gone, and so is its end
    ├── AnswerStreamTooLongError        it was too long to be kept for those who read later
    ├── ExtractionError                 a document could not be read
    ├── ObjectStoreError                an object of a bucket could not be read
    ├── QueueError                      a queue did not take a message
    ├── RetrievalError                  the search itself failed
    └── DatabaseError
        ├── DatabaseUnavailableError
        │   ├── DatabaseLoginError      it refused the role, or what the role logged in with
        │   └── UntrustedDatabaseError  its certificate does not prove that it is the one that was meant
        ├── MigrationError
        ├── RefusedRowError         it does not take these values; another row may pass
        └── UnsafeRoleError             the database role would bypass row-level security

A vendor's or driver's own exception is always the ``__cause__``; its text is never copied into ours,
because it may hold keys, URLs or rows.
"""

from typing import ClassVar


class VectorForgeError(Exception):
    """Something in VectorForge failed."""

    code: ClassVar[str] = "internal_error"
    """Stable identifier for programs; the same over HTTP, in logs and in metrics."""

    retryable: bool = False
    """Whether the same call may succeed a moment later; set by whoever maps a vendor's error."""

    is_fault: ClassVar[bool] = True
    """Whether we failed, or somebody we depend on; False: the caller has to change something."""

    retry_after_s: float | None = None
    """Seconds the other side asked us to wait, if it did."""

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message or (type(self).__doc__ or "").strip().splitlines()[0])

    @property
    def message(self) -> str:
        """The text to show."""
        return str(self.args[0])


class ConfigurationError(VectorForgeError):
    """A setting is missing or contradicts another."""

    code = "configuration_error"


class UnknownModelError(ConfigurationError):
    """The provider has no such model."""

    code = "unknown_model"


class SecretsUnavailableError(VectorForgeError):
    """The providers' keys cannot be read now."""

    code = "secrets_unavailable"
    retryable = True


class InvalidInputError(VectorForgeError, ValueError):
    """A value given by the caller is not usable."""

    code = "invalid_input"
    is_fault = False

    def __init__(self, message: str | None = None, *, field: str | None = None) -> None:
        super().__init__(message)
        self.field = field
        """Name of the offending field, as the caller wrote it."""


class FilterError(InvalidInputError):
    """The metadata filter cannot be understood."""

    code = "invalid_filter"


class IdempotencyKeyReusedError(InvalidInputError):
    """Another request came under this Idempotency-Key."""

    code = "idempotency_key_reused"


class NotFoundError(VectorForgeError):
    """There is nothing with this id."""

    code = "not_found"
    is_fault = False


class AnsweringModelNotFoundError(NotFoundError):
    """There is no such model: name a collection, as in vectorforge/handbook; GET /v1/models lists them."""

    code = "model_not_found"  # OpenAI's own code for it
    field = "model"


class ConflictError(VectorForgeError):
    """The request contradicts what is stored."""

    code = "conflict"
    is_fault = False


class DimensionMismatchError(ConflictError):
    """A vector's length differs from its collection's."""

    code = "dimension_mismatch"

    def __init__(self, *, expected: int, actual: int, what: str = "vector") -> None:
        super().__init__(f"The {what} has {actual} dimensions, the collection has {expected}.")
        self.expected = expected
        self.actual = actual


class EmbeddingModelChangedError(ConflictError):
    """The collection's embedding model has changed meanwhile; try again."""

    code = "embedding_model_changed"
    retryable = True


class EmbeddingSwitchRefusedError(ConflictError):
    """The new embedding model finds too little of what the old one finds."""

    code = "embedding_switch_refused"


class TenantBeingErasedError(ConflictError):
    """All data of this tenant are being erased; try again when that is done."""

    code = "tenant_being_erased"


class IdempotentAnswerPendingError(ConflictError):
    """The first request under this Idempotency-Key is still being answered; try again."""

    code = "idempotent_answer_pending"
    retryable = True
    retry_after_s = 2.0


class IdempotentAnswerTooLongError(ConflictError):
    """The answer under this Idempotency-Key was too long to be kept; ask under another key."""

    code = "idempotent_answer_too_long"


class AuthenticationError(VectorForgeError):
    """A valid credential is required."""

    code = "unauthenticated"
    is_fault = False

    def __init__(self, message: str | None = None, *, presented: bool = False) -> None:
        super().__init__(message)
        self.presented = presented
        """Whether there was a credential, which is not a good one."""


class InsufficientScopeError(VectorForgeError):
    """The credential may not do this."""

    code = "insufficient_scope"
    is_fault = False

    def __init__(self, message: str | None = None, *, required: str = "") -> None:
        super().__init__(message or f"This needs a credential with the scope {required!r}.")
        self.required = required
        """The scope that is needed: read, write or admin."""


class IdentityProviderUnavailableError(VectorForgeError):
    """The identity provider's keys cannot be had now, so access tokens cannot be checked."""

    code = "identity_provider_unavailable"
    retryable = True


class LimitExceededError(VectorForgeError):
    """A limit of the tenant is reached."""

    code = "limit_exceeded"
    is_fault = False
    retryable = True

    def __init__(
        self,
        message: str | None = None,
        *,
        limit: str = "",
        value: float | None = None,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(message)
        self.limit = limit
        """Its name, as in ``limits.types.Limits``."""
        self.value = value
        """How much it allows."""
        self.retry_after_s = retry_after_s


class DeadlineExceededError(VectorForgeError):
    """The time for this request ran out."""

    code = "deadline_exceeded"


class EmbeddingError(VectorForgeError):
    """The text could not be embedded."""

    code = "embedding_error"


class EmbeddingAuthenticationError(EmbeddingError):
    """The embedding provider refused the credentials."""

    code = "embedding_authentication"


class EmbeddingInputError(EmbeddingError):
    """The text cannot be embedded."""

    code = "embedding_input_refused"
    is_fault = False

    def __init__(self, message: str | None = None, *, index: int | None = None) -> None:
        super().__init__(message)
        self.index = index
        """Position of the text among those given, from 0; None when the provider did not say which."""


class EmbeddingRateLimitError(EmbeddingError):
    """The embedding provider is limiting requests."""

    code = "embedding_rate_limited"
    retryable = True

    def __init__(self, message: str | None = None, *, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


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

    def __init__(self, message: str | None = None, *, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class LLMTimeoutError(LLMError):
    """The LLM provider did not answer in time."""

    code = "llm_timeout"
    retryable = True


class LLMRequestError(LLMError):
    """The LLM provider refused the request."""

    code = "llm_request_refused"


class LLMStreamError(LLMError):
    """The answer broke off before its end."""

    code = "llm_stream_broken"


class LLMCircuitOpenError(LLMError):
    """The model failed so often that it is not asked for a while."""

    code = "llm_circuit_open"

    def __init__(self, message: str | None = None, *, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class AnswerUnavailableError(VectorForgeError):
    """Nobody can answer now, and nothing takes an answer's place."""

    code = "answer_unavailable"
    retryable = True

    def __init__(self, message: str | None = None, *, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class AnswerStreamLostError(VectorForgeError):
    """The server that wrote this answer is gone; ask again."""

    code = "stream_lost"
    retryable = True


class AnswerStreamTooLongError(VectorForgeError):
    """The answer was too long to be kept; ask again and read it in one go."""

    code = "stream_too_long"


class ExtractionError(VectorForgeError):
    """The document could not be read."""

    code = "extraction_failed"
    is_fault = False

    def __init__(self, message: str | None = None, *, reason: str = "unreadable") -> None:
        super().__init__(message)
        self.reason = reason
        """empty | encrypted | too_large | undecodable | unsupported_type | unreadable"""


class ObjectStoreError(VectorForgeError):
    """The object could not be read."""

    code = "object_store_error"
    retryable = True


class QueueError(VectorForgeError):
    """The queue did not take the message."""

    code = "queue_error"
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
    """The database does not take a value or a row: its type, range or a constraint forbids it."""


class MigrationError(DatabaseError):
    """The database schema cannot be brought up to date."""

    code = "migration_error"


class UnsafeRoleError(DatabaseError):
    """The database role bypasses row-level security."""

    code = "unsafe_role"
