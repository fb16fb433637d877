"""Vendor accounts in the settings: entries of the provider tables, credentials, addresses."""

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from pydantic import SecretStr

from vectorforge.config import LLMSettings, OpenAISettings
from vectorforge.vendors.credentials import (
    AccessToken,
    CommandCredentials,
    Credentials,
    CredentialStore,
    FixedCredentials,
    find_credentials,
)
from vectorforge.vendors.sdk_clients import AzureOpenAI, VertexAI

OPENAI_BASE_URL = "https://api.openai.com/v1"
COHERE_BASE_URL = "https://api.cohere.ai/compatibility/v1"
GOOGLE_BASE_URL = "https://generativelanguage.googleapis.com/v1beta/openai/"

Settings = TypeVar("Settings", bound=OpenAISettings)


@dataclass(frozen=True, slots=True)
class ProviderSpec(Generic[Settings]):
    """Entry of a table of providers: how to detect and build one."""

    name: str
    setting: str
    """Setting that registers the provider: its key, or its address or model if it needs no key."""
    factory: str
    """``module:Class`` with a classmethod ``from_settings``, imported when the provider is registered."""
    credentials: Callable[[Settings, CredentialStore | None], Credentials | None] | None = None
    """Finds the credentials if ``setting`` alone does not determine them."""

    @property
    def variable(self) -> str:
        """Environment variable of ``setting``."""
        return f"VECTORFORGE_{self.setting.upper()}"

    def find(self, settings: Settings, store: CredentialStore | None) -> Credentials | None:
        """Return the credentials, or None if the provider is not configured.

        Raises:
            ConfigurationError: The store cannot be used.
            SecretsUnavailableError: The store does not respond.
        """
        if self.credentials is not None:
            return self.credentials(settings, store)
        value = getattr(settings, self.setting)
        value = SecretStr(value) if isinstance(value, str) else value
        return find_credentials(self.setting, value, store)

    def build(self, settings: Settings, credentials: Credentials, **options: Any) -> Any:
        """Import the provider's class and create the provider.

        Raises:
            ConfigurationError: The settings do not fit together.
        """
        module_name, class_name = self.factory.split(":")
        provider_class = getattr(importlib.import_module(module_name), class_name)
        return provider_class.from_settings(settings, credentials, **options)


def openai_credentials(settings: OpenAISettings, store: CredentialStore | None) -> Credentials | None:
    """Return OpenAI's key, or the key or token of the Azure resource if one is configured; else None.

    Raises:
        ConfigurationError: The store cannot be used.
        SecretsUnavailableError: The store does not respond.
    """
    if settings.azure_openai_endpoint is None:
        return find_credentials("openai_api_key", settings.openai_api_key, store)
    key = find_credentials("azure_openai_api_key", settings.azure_openai_api_key, store)
    if key is not None:
        return key
    token = find_credentials("azure_openai_ad_token", settings.azure_openai_ad_token, store)
    if token is None and settings.azure_openai_ad_token_command:
        token = CommandCredentials(
            settings.azure_openai_ad_token_command, "VECTORFORGE_AZURE_OPENAI_AD_TOKEN_COMMAND"
        )
    return None if token is None else AccessToken(token)


def anthropic_credentials(settings: LLMSettings, store: CredentialStore | None) -> Credentials | None:
    """Return Anthropic's key, or the credentials of the project on Vertex AI; else None.

    Without ``vertex_access_token`` Google's library finds the project's credentials.

    Raises:
        ConfigurationError: The store cannot be used.
        SecretsUnavailableError: The store does not respond.
    """
    if settings.vertex_project is None:
        return find_credentials("anthropic_api_key", settings.anthropic_api_key, store)
    token = find_credentials("vertex_access_token", settings.vertex_access_token, store)
    return FixedCredentials("") if token is None else AccessToken(token)


def azure_of(settings: OpenAISettings) -> AzureOpenAI | None:
    """Return the Azure resource in the settings."""
    if settings.azure_openai_endpoint is None:
        return None
    return AzureOpenAI(
        endpoint=settings.azure_openai_endpoint,
        api_version=settings.azure_openai_api_version,
        deployments=settings.azure_openai_deployments,
    )


def vertex_of(settings: LLMSettings) -> VertexAI | None:
    """Return the project on Vertex AI in the settings."""
    if settings.vertex_project is None:
        return None
    return VertexAI(settings.vertex_project, settings.vertex_region, settings.vertex_base_url)
