"""Errors of settings, and of the keys that they lead to."""

from vectorforge.errors.base import VectorForgeError


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
