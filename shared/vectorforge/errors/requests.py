"""Errors of who asks, and of how much they may ask.

Errors of a request: what it says, what it contradicts, what it holds, how long it takes.
"""

from vectorforge.errors.base import VectorForgeError


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
        super().__init__(message or f"This needs a credential with the scope `{required}`.")
        self.required = required
        """The scope that is needed: read, write or admin."""


class IdentityProviderUnavailableError(VectorForgeError):
    """The identity provider's keys cannot be had now, so access tokens cannot be checked."""

    code = "identity_provider_unavailable"
    retryable = True


class GatewayKeysUnavailableError(VectorForgeError):
    """The tenants of API Gateway's keys cannot be looked up now."""

    code = "gateway_keys_unavailable"
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
    """The answer under this Idempotency-Key is too long to store or was dropped; use another key."""

    code = "idempotent_answer_too_long"


class DeadlineExceededError(VectorForgeError):
    """The time for this request ran out."""

    code = "deadline_exceeded"


class ExtractionError(VectorForgeError):
    """The document could not be read."""

    code = "extraction_failed"
    is_fault = False

    def __init__(self, message: str | None = None, *, reason: str = "unreadable") -> None:
        super().__init__(message)
        self.reason = reason
        """empty | encrypted | too_large | undecodable | unsupported_type | unreadable"""
