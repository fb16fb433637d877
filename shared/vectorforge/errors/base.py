"""What every error on purpose is.

Errors of settings, and of the keys that they lead to.
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
