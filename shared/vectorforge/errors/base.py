"""Base class, errors of settings and of requests, and the logging of unexpected exceptions."""

import logging
import traceback
from collections.abc import Iterator
from typing import ClassVar


class VectorForgeError(Exception):
    """Something in VectorForge failed."""

    code: ClassVar[str] = "internal_error"
    """Stable identifier for programs; the same over HTTP, in logs and in metrics."""

    retryable: bool = False
    """True if the same call may succeed a moment later."""

    is_fault: ClassVar[bool] = True
    """True for a failure of the service or a dependency; False: the caller has to change the request."""

    retry_after_s: float | None = None
    """Retry-After of the failed service, in seconds."""

    def __init__(self, message: str | None = None, *, retry_after_s: float | None = None) -> None:
        super().__init__(message or (type(self).__doc__ or "").strip().splitlines()[0])
        if retry_after_s is not None:
            self.retry_after_s = retry_after_s

    @property
    def message(self) -> str:
        """Text for the user."""
        return str(self.args[0])


class ConfigurationError(VectorForgeError):
    """A setting is missing or contradicts another."""

    code = "configuration_error"

    def __init__(self, message: str | None = None, *, setting: str | None = None) -> None:
        super().__init__(message)
        self.setting = setting
        """Environment variable to correct, if it is known."""


class NotConfiguredError(ConfigurationError):
    """No embedding provider is configured, so nothing can be searched or ingested."""

    code = "not_configured"


class UnknownModelError(ConfigurationError):
    """The provider has no such model."""

    code = "unknown_model"


class SecretsUnavailableError(VectorForgeError):
    """The providers' keys cannot be read now."""

    code = "secrets_unavailable"
    retryable = True


class AuthenticationError(VectorForgeError):
    """A valid credential is required."""

    code = "unauthenticated"
    is_fault = False

    def __init__(self, message: str | None = None, *, presented: bool = False) -> None:
        super().__init__(message)
        self.presented = presented
        """True if the request had a credential that is not valid."""


class InsufficientScopeError(VectorForgeError):
    """The credential may not do this."""

    code = "insufficient_scope"
    is_fault = False

    def __init__(self, message: str | None = None, *, required: str = "") -> None:
        super().__init__(message or f"This needs a credential with the scope `{required}`.")
        self.required = required
        """Required scope: read, write or admin."""


class IdentityProviderUnavailableError(VectorForgeError):
    """The identity provider's keys cannot be fetched now, so access tokens cannot be verified."""

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
        super().__init__(message, retry_after_s=retry_after_s)
        self.limit = limit
        """Name of the limit, as in ``limits.types.Limits``."""
        self.value = value
        """Value of the limit."""


class InvalidInputError(VectorForgeError, ValueError):
    """A value in the request is invalid."""

    code = "invalid_input"
    is_fault = False

    def __init__(self, message: str | None = None, *, field: str | None = None) -> None:
        super().__init__(message)
        self.field = field
        """Name of the invalid field, as the caller wrote it."""


class FilterError(InvalidInputError):
    """The metadata filter is invalid."""

    code = "invalid_filter"


class IdempotencyKeyReusedError(InvalidInputError):
    """Another request used this Idempotency-Key."""

    code = "idempotency_key_reused"


class NotFoundError(VectorForgeError):
    """There is no object with this id."""

    code = "not_found"
    is_fault = False


class AnsweringModelNotFoundError(NotFoundError):
    """There is no such model: name a collection, as in vectorforge/handbook; GET /v1/models lists them."""

    code = "model_not_found"  # OpenAI's own code for it
    field = "model"


class FeedbackTooEarlyError(NotFoundError):
    """The query is not found, or not logged yet; retry in a few seconds."""

    code = "query_not_logged"
    retryable = True
    retry_after_s = 2.0


class OriginalNotKeptError(NotFoundError):
    """The original of this document is not kept: it is older than this feature, or was turned off."""

    code = "original_not_kept"


class NotDeployedError(VectorForgeError):
    """This deployment does not have what the request needs."""

    code = "not_deployed"


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
        """empty | encrypted | not_deployed | too_large | undecodable | unsupported_type | unreadable"""


_MAX_EXCEPTIONS = 20
_MAX_FRAMES = 50


def reason_of(exc: Exception) -> str:
    """Return why something failed, for a log or a caller: only our own messages are free of secrets."""
    return exc.message if isinstance(exc, VectorForgeError) else type(exc).__name__


def log_unexpected(logger: logging.Logger, what: str, error: BaseException) -> None:
    """Log type and location of an exception and of its causes, without their texts.

    A driver's or a vendor's text may hold keys, URLs or rows; ``logger.exception`` would print it.

    Args:
        logger: Logger of the module that caught the exception.
        what: Failed operation in our words, e.g. "Request 17 failed".
        error: The exception; at most 20 causes are logged, with the innermost 50 frames of each.
    """
    logger.error("%s: %s", what, describe_exception(error))


def describe_exception(error: BaseException) -> str:
    """Return type and location of an exception and its causes, bounded as in ``log_unexpected``."""
    lines: list[str] = []
    for number, exception in enumerate(_with_causes(error)):
        if number == _MAX_EXCEPTIONS:
            break
        lines.append(f"{type(exception).__module__}.{type(exception).__qualname__}")
        frames = traceback.extract_tb(exception.__traceback__, limit=-_MAX_FRAMES)
        lines.extend(f"  {frame.filename}:{frame.lineno} {frame.name}" for frame in frames)
    return "\n".join(lines)


def _with_causes(error: BaseException) -> Iterator[BaseException]:
    """Yield the exception, its causes and, for a group, its members; each once."""
    waiting, seen = [error], set[int]()
    while waiting:
        current = waiting.pop(0)
        if id(current) in seen:
            continue
        seen.add(id(current))
        yield current
        if isinstance(current, BaseExceptionGroup):
            waiting.extend(current.exceptions)
        cause = current.__cause__ or (None if current.__suppress_context__ else current.__context__)
        if cause is not None:
            waiting.append(cause)
