"""Errors of who asks, and of how much they may ask."""

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
