"""Clients of the vendors' SDKs, configured by our settings and by no other environment variable."""

from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from pydantic import SecretStr

from vectorforge.vendors.credentials import AccessToken, Credentials, FixedCredentials
from vectorforge.vendors.failures import VendorStatusError
from vectorforge.vendors.http import VendorClient, VendorTransport, refuses_key
from vectorforge.vendors.sdk import SdkClients, SdkTransport, import_sdk

if TYPE_CHECKING:
    import httpx2
    from anthropic import AsyncAnthropic, AsyncAnthropicVertex
    from openai import AsyncOpenAI

ClientKind: TypeAlias = Literal["http", "sdk"]
"""Transport of requests: our own HTTP client, or the vendor's SDK."""
OpenAIClient: TypeAlias = "AsyncOpenAI"
AnthropicClient: TypeAlias = "AsyncAnthropic | AsyncAnthropicVertex"

_CURRENT = "<the current key>"
"""Placeholder of a key that may rotate; replaced in each request."""


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
    clients = SdkClients[OpenAIClient](
        lambda: make_openai(credentials, base_url=base_url(), organization=organization, azure=azure)
    )
    if client == "http" and azure is None:
        headers = {} if organization is None else {"OpenAI-Organization": organization}
        return clients, VendorClient(credentials, headers=headers, is_refusal=is_refusal)
    headers_of = azure_key if azure is not None and not isinstance(credentials, AccessToken) else bearer
    return clients, SdkTransport(clients, "openai", credentials, headers_of=headers_of, is_refusal=is_refusal)


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
    if vertex is None:
        plain = SdkClients[AnthropicClient](lambda: make_anthropic(credentials, base_url=base_url()))
        if client == "http":
            return plain, VendorClient(credentials, headers=headers)
        return plain, SdkTransport(plain, "anthropic", credentials, headers_of=bearer)
    token = credentials if isinstance(credentials, AccessToken) else None
    clients = SdkClients[AnthropicClient](lambda: make_vertex(token, vertex))
    sent = token or FixedCredentials("")
    return clients, SdkTransport(clients, "anthropic", sent, headers_of=bearer)


def bearer(key: SecretStr) -> Mapping[str, str]:
    """Return the usual header of a key; none for an empty key."""
    value = key.get_secret_value()
    return {"Authorization": f"Bearer {value}"} if value else {}


def azure_key(key: SecretStr) -> Mapping[str, str]:
    """Return Azure's header of a key; tokens use the usual one."""
    return {"api-key": key.get_secret_value()}


def make_openai(
    credentials: Credentials, *, base_url: str, organization: str | None, azure: AzureOpenAI | None
) -> "AsyncOpenAI":
    """Create a client of OpenAI or Azure OpenAI without retries.

    Raises:
        ConfigurationError: The package openai is not installed.
    """
    sdk = import_sdk("openai")
    key = _key(credentials)
    shared = {
        "organization": organization or "",
        "max_retries": 0,
        "http_client": sdk.DefaultAsyncHttpxClient(auth=_auth(credentials), follow_redirects=False),
    }
    client: AsyncOpenAI
    if azure is None:
        client = sdk.AsyncOpenAI(api_key=key, base_url=base_url, **shared)
    else:
        named = {"azure_ad_token" if isinstance(credentials, AccessToken) else "api_key": key}
        client = sdk.AsyncAzureOpenAI(
            azure_endpoint=azure.endpoint, api_version=azure.api_version, **named, **shared
        )
    client.organization = organization
    client.project = None
    _leave_out_foreign_headers(client)
    return client


def make_anthropic(credentials: Credentials, *, base_url: str) -> "AsyncAnthropic":
    """Create a client of Anthropic without retries.

    Raises:
        ConfigurationError: The package anthropic is not installed.
    """
    sdk = import_sdk("anthropic")
    client: AsyncAnthropic = sdk.AsyncAnthropic(
        api_key=_key(credentials),
        base_url=base_url,
        max_retries=0,
        http_client=sdk.DefaultAsyncHttpxClient(auth=_auth(credentials), follow_redirects=False),
    )
    _leave_out_foreign_headers(client)
    return client


def make_vertex(credentials: Credentials | None, vertex: VertexAI) -> "AsyncAnthropicVertex":
    """Create a client of Anthropic's models on Vertex AI without retries.

    Args:
        credentials: Google's access token; None: Google's library finds the credentials.
        vertex: Project of the models.

    Raises:
        ConfigurationError: The package anthropic is not installed.
    """
    sdk = import_sdk("anthropic")
    client: AsyncAnthropicVertex = sdk.AsyncAnthropicVertex(
        project_id=vertex.project,
        region=vertex.region,
        base_url=vertex.base_url or _vertex_url(vertex.region),
        access_token=None if credentials is None else _key(credentials),
        max_retries=0,
        http_client=sdk.DefaultAsyncHttpxClient(auth=_auth(credentials), follow_redirects=False),
    )
    _leave_out_foreign_headers(client)
    return client


def _vertex_url(region: str) -> str:
    """Return Google's address for a region; else the SDK would read it from the environment."""
    shared = {"global": "aiplatform.googleapis.com"}
    shared |= {area: f"aiplatform.{area}.rep.googleapis.com" for area in ("us", "eu")}
    return f"https://{shared.get(region, f'{region}-aiplatform.googleapis.com')}/v1"


def _key(credentials: Credentials) -> str:
    if isinstance(credentials, AccessToken):
        return _key(credentials.inner)
    return credentials.key.get_secret_value() if isinstance(credentials, FixedCredentials) else _CURRENT


def _auth(credentials: Credentials | None) -> "httpx2.Auth | None":
    """Return the hook that replaces the placeholder by the current key."""
    if credentials is None or _key(credentials) != _CURRENT:
        return None
    rotating = credentials
    import httpx2

    class CurrentKey(httpx2.Auth):
        async def async_auth_flow(
            self, request: httpx2.Request
        ) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
            for name in ("Authorization", "api-key"):
                if _CURRENT in (sent := request.headers.get(name, "")):
                    key = (await rotating.current()).get_secret_value()
                    request.headers[name] = sent.replace(_CURRENT, key)
            yield request

    return CurrentKey()


def _leave_out_foreign_headers(client: Any) -> None:
    """Drop the headers of OPENAI_CUSTOM_HEADERS and ANTHROPIC_CUSTOM_HEADERS, which the SDKs always read."""
    client._custom_headers = {}  # noqa: SLF001 - there is no other way
