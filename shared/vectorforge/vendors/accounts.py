"""The account at a vendor that the settings describe: whose credentials, and where its models are served."""

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


def openai_credentials(settings: OpenAISettings, store: CredentialStore | None) -> Credentials | None:
    """Return the key of OpenAI, or the key or token of the Azure resource, if one is named; None without any.

    Raises:
        ConfigurationError: The store cannot be used.
        SecretsUnavailableError: The store does not answer.
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
    """Return the key of Anthropic, or what stands for the project on Vertex AI; None without any.

    A project without ``vertex_access_token`` has the credentials that Google's library finds.

    Raises:
        ConfigurationError: The store cannot be used.
        SecretsUnavailableError: The store does not answer.
    """
    if settings.vertex_project is None:
        return find_credentials("anthropic_api_key", settings.anthropic_api_key, store)
    token = find_credentials("vertex_access_token", settings.vertex_access_token, store)
    return FixedCredentials("") if token is None else AccessToken(token)


def azure_of(settings: OpenAISettings) -> AzureOpenAI | None:
    """Return the Azure resource that the settings name."""
    if settings.azure_openai_endpoint is None:
        return None
    return AzureOpenAI(
        endpoint=settings.azure_openai_endpoint,
        api_version=settings.azure_openai_api_version,
        deployments=settings.azure_openai_deployments,
    )


def vertex_of(settings: LLMSettings) -> VertexAI | None:
    """Return the project on Vertex AI that the settings name."""
    if settings.vertex_project is None:
        return None
    return VertexAI(settings.vertex_project, settings.vertex_region, settings.vertex_base_url)
