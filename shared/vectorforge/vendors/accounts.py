"""Vendor accounts: entries of the provider tables, credentials, addresses, and connections to them."""

import importlib
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeAlias, TypeVar

from pydantic import SecretStr

from vectorforge.config import LLMSettings, VendorSettings
from vectorforge.vendors.credentials import (
    AccessToken,
    CommandCredentials,
    Credentials,
    CredentialStore,
    FixedCredentials,
    find_credentials,
)
from vectorforge.vendors.http import VendorClient, VendorTransport, refuses_key
from vectorforge.vendors.response import VendorStatusError
from vectorforge.vendors.sdk import SdkClients, SdkTransport, import_sdk

if TYPE_CHECKING:
    from anthropic import AsyncAnthropic, AsyncAnthropicVertex
    from openai import AsyncOpenAI

OPENAI_BASE_URL = "https://api.openai.com/v1"
COHERE_BASE_URL = "https://api.cohere.ai/compatibility/v1"
GOOGLE_BASE_URL = "https://generativelanguage.googleapis.com/v1beta/openai/"

ClientKind: TypeAlias = Literal["http", "sdk"]
"""Transport of requests: our own HTTP client, or the vendor's SDK."""
OpenAIClient: TypeAlias = "AsyncOpenAI"
AnthropicClient: TypeAlias = "AsyncAnthropic | AsyncAnthropicVertex"

_CURRENT = "<the current key>"
"""Placeholder of a key that may rotate; replaced in each request."""

Settings = TypeVar("Settings", bound=VendorSettings)


def _variable(setting: str) -> str:
    return f"VECTORFORGE_{setting.upper()}"


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
    dimension_settings: tuple[str, ...] = ()
    """Settings that determine the length of an embedding provider's vectors."""

    @property
    def variable(self) -> str:
        """Environment variable of ``setting``."""
        return _variable(self.setting)

    @property
    def dimension_variables(self) -> list[str]:
        """Environment variables of ``dimension_settings``."""
        return [_variable(setting) for setting in self.dimension_settings]

    def find(self, settings: Settings, store: CredentialStore | None) -> Credentials | None:
        """Return the credentials, or None if the provider is not configured.

        Errors as ``CredentialStore.find``.
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


def unknown_provider(
    kind: str, name: str, registered: Iterable[str], specs: Iterable[ProviderSpec[Any]]
) -> str:
    """Return the error text for a provider that is not registered, with the setting of a known one."""
    known = (f" Set {spec.variable} to register {name}." for spec in specs if spec.name == name)
    there = ", ".join(registered) or "none"
    return f'Unknown {kind} provider "{name[:100]}"; registered: {there}.{next(known, "")}'


@dataclass(frozen=True, slots=True)
class AzureOpenAI:
    """Resource of Azure OpenAI."""

    endpoint: str
    """For example https://example.openai.azure.com."""
    api_version: str
    deployments: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """Model -> its deployment; other models are names of deployments."""

    def deployment(self, model: str) -> str:
        """Return the deployment that serves a model."""
        return self.deployments.get(model, model)


@dataclass(frozen=True, slots=True)
class VertexAI:
    """Anthropic's models in a project of Google Cloud."""

    project: str
    region: str
    base_url: str | None = None
    """Address of the API when it is not Google's own, with its /v1."""


def openai_credentials(settings: VendorSettings, store: CredentialStore | None) -> Credentials | None:
    """Return OpenAI's key, or the key or token of the Azure resource if one is configured; else None.

    Errors as ``CredentialStore.find``.
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

    Without ``vertex_access_token`` Google's library finds the project's credentials. Errors as
    ``CredentialStore.find``.
    """
    if settings.vertex_project is None:
        return find_credentials("anthropic_api_key", settings.anthropic_api_key, store)
    token = find_credentials("vertex_access_token", settings.vertex_access_token, store)
    return FixedCredentials("") if token is None else AccessToken(token)


def azure_of(settings: VendorSettings) -> AzureOpenAI | None:
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


def openai_transport(
    credentials: Credentials,
    base_url: Callable[[], str],
    *,
    organization: str | None = None,
    client: ClientKind = "http",
    azure: AzureOpenAI | None = None,
    is_refusal: Callable[[VendorStatusError], bool] = refuses_key,
) -> tuple[SdkClients[OpenAIClient], VendorTransport]:
    """Return SDK clients and transport for a server with OpenAI's API; imports nothing yet.

    Args:
        credentials: Credentials of the server.
        base_url: Returns its address, with its /v1.
        organization: OpenAI organization that is billed.
        client: Preferred transport.
        azure: Resource of Azure OpenAI, which requires the SDK.
        is_refusal: See ``VendorTransport``.
    """
    is_token = isinstance(credentials, AccessToken)

    def make() -> "AsyncOpenAI":
        sdk, options = import_sdk("openai"), {"organization": organization or "", "max_retries": 0}
        options["http_client"] = _http_client(sdk, credentials)
        made: AsyncOpenAI
        if azure is None:
            made = sdk.AsyncOpenAI(api_key=_key(credentials), base_url=base_url(), **options)
        else:
            options["azure_ad_token" if is_token else "api_key"] = _key(credentials)
            made = sdk.AsyncAzureOpenAI(
                azure_endpoint=azure.endpoint, api_version=azure.api_version, **options
            )
        made.organization = organization
        made.project = None
        _drop_foreign_headers(made)
        return made

    clients = SdkClients[OpenAIClient](make)
    if client == "http" and azure is None:
        headers = {} if organization is None else {"OpenAI-Organization": organization}
        return clients, VendorClient(credentials, headers=headers, is_refusal=is_refusal)
    key_header = _bearer if azure is None or is_token else lambda key: {"api-key": key}
    return clients, SdkTransport(clients, "openai", credentials, key_header=key_header, is_refusal=is_refusal)


def anthropic_transport(
    credentials: Credentials,
    base_url: Callable[[], str],
    *,
    headers: Mapping[str, str],
    client: ClientKind = "http",
    vertex: VertexAI | None = None,
) -> tuple[SdkClients[AnthropicClient], VendorTransport]:
    """Return SDK clients and transport for Anthropic's API; imports nothing yet.

    Args:
        credentials: The key; on Vertex AI an ``AccessToken``, else Google's library finds the credentials.
        base_url: Returns the address, without /v1.
        headers: Headers of each request over our own transport; the SDK adds them itself.
        client: Preferred transport.
        vertex: Project of Google Cloud, which requires the SDK.
    """
    if vertex is not None and not isinstance(credentials, AccessToken):
        credentials = FixedCredentials("")

    def make() -> "AsyncAnthropic | AsyncAnthropicVertex":
        sdk = import_sdk("anthropic")
        options = {"max_retries": 0, "http_client": _http_client(sdk, credentials)}
        made: AsyncAnthropic | AsyncAnthropicVertex
        if vertex is None:
            made = sdk.AsyncAnthropic(api_key=_key(credentials), base_url=base_url(), **options)
        else:
            made = sdk.AsyncAnthropicVertex(
                project_id=vertex.project,
                region=vertex.region,
                base_url=vertex.base_url or _vertex_url(vertex.region),
                access_token=_key(credentials) or None,
                **options,
            )
        _drop_foreign_headers(made)
        return made

    clients = SdkClients[AnthropicClient](make)
    if client == "http" and vertex is None:
        return clients, VendorClient(credentials, headers=headers)
    return clients, SdkTransport(clients, "anthropic", credentials, key_header=_bearer)


def _bearer(key: str) -> Mapping[str, str]:
    return {"Authorization": f"Bearer {key}"} if key else {}


def _vertex_url(region: str) -> str:
    """Return Google's address for a region; else the SDK would read it from the environment."""
    shared = {"global": "aiplatform.googleapis.com"}
    shared |= {area: f"aiplatform.{area}.rep.googleapis.com" for area in ("us", "eu")}
    return f"https://{shared.get(region, f'{region}-aiplatform.googleapis.com')}/v1"


def _key(credentials: Credentials) -> str:
    if isinstance(credentials, AccessToken):
        return _key(credentials.inner)
    return credentials.key.get_secret_value() if isinstance(credentials, FixedCredentials) else _CURRENT


def _http_client(sdk: Any, credentials: Credentials) -> Any:
    """Return an HTTP client that follows no redirects and replaces the placeholder by the current key."""
    import httpx2

    class CurrentKey(httpx2.Auth):
        async def async_auth_flow(
            self, request: httpx2.Request
        ) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
            for name in ("Authorization", "api-key"):
                if _CURRENT in (sent := request.headers.get(name, "")):
                    key = (await credentials.current()).get_secret_value()
                    request.headers[name] = sent.replace(_CURRENT, key)
            yield request

    auth = CurrentKey() if _key(credentials) == _CURRENT else None
    return sdk.DefaultAsyncHttpxClient(auth=auth, follow_redirects=False)


def _drop_foreign_headers(client: Any) -> None:
    """Drop the headers of OPENAI_CUSTOM_HEADERS and ANTHROPIC_CUSTOM_HEADERS, which the SDKs always read."""
    client._custom_headers = {}  # noqa: SLF001 - there is no other way
