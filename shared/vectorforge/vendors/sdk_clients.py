"""The vendors' SDK clients as our settings describe them, and as no other environment variable does."""

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
"""What requests go over: our own HTTP client, or the vendor's SDK."""
OpenAIClient: TypeAlias = "AsyncOpenAI"
AnthropicClient: TypeAlias = "AsyncAnthropic | AsyncAnthropicVertex"

_CURRENT = "<the current key>"
"""Stands for a key that may be exchanged; replaced in each request."""


@dataclass(frozen=True, slots=True)
class AzureOpenAI:
    """A resource of Azure OpenAI."""

    endpoint: str
    """Such as https://example.openai.azure.com."""
    api_version: str
    deployments: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """Model -> the deployment that serves it; models that are not here name a deployment themselves."""

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
    """Return the SDK's clients for an OpenAI-shaped server, and what requests go over; imports nothing yet.

    Args:
        credentials: Of the server.
        base_url: Gives its address, with its /v1.
        organization: OpenAI organization that pays.
        client: What requests go over, where there is a choice.
        azure: A resource of Azure OpenAI, which the SDK alone can address.
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
    """Return the SDK's clients for Anthropic's API, and what requests go over; imports nothing yet.

    Args:
        credentials: The key; on Vertex AI an ``AccessToken``, anything else leaves them to Google's library.
        base_url: Gives the address, without /v1.
        headers: Of each request over our own transport; the SDK knows them.
        client: What requests go over, where there is a choice.
        vertex: A project of Google Cloud, which the SDK alone can address.
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
    """Return the header that most vendors read the key from; none for an empty key."""
    value = key.get_secret_value()
    return {"Authorization": f"Bearer {value}"} if value else {}


def azure_key(key: SecretStr) -> Mapping[str, str]:
    """Return the header that Azure reads a key from; it takes tokens as others do."""
    return {"api-key": key.get_secret_value()}


def make_openai(
    credentials: Credentials, *, base_url: str, organization: str | None, azure: AzureOpenAI | None
) -> "AsyncOpenAI":
    """Make a client of OpenAI, or of Azure OpenAI; it retries nothing by itself.

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
    """Make a client of Anthropic; it retries nothing by itself.

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
    """Make a client of Anthropic's models on Vertex AI; it retries nothing by itself.

    Args:
        credentials: Google's access token; None: Google's own library finds the credentials.
        vertex: Where the models are.

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
    """Google's address for a region; given, so that the SDK does not read it from the environment."""
    shared = {"global": "aiplatform.googleapis.com"}
    shared |= {area: f"aiplatform.{area}.rep.googleapis.com" for area in ("us", "eu")}
    return f"https://{shared.get(region, f'{region}-aiplatform.googleapis.com')}/v1"


def _key(credentials: Credentials) -> str:
    if isinstance(credentials, AccessToken):
        return _key(credentials.inner)
    return credentials.key.get_secret_value() if isinstance(credentials, FixedCredentials) else _CURRENT


def _auth(credentials: Credentials | None) -> "httpx2.Auth | None":
    """What puts a key that may be exchanged into requests that were made with its stand-in."""
    if credentials is None or _key(credentials) != _CURRENT:
        return None
    exchanged = credentials
    import httpx2

    class CurrentKey(httpx2.Auth):
        async def async_auth_flow(
            self, request: httpx2.Request
        ) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
            for name in ("Authorization", "api-key"):
                if _CURRENT in (sent := request.headers.get(name, "")):
                    key = (await exchanged.current()).get_secret_value()
                    request.headers[name] = sent.replace(_CURRENT, key)
            yield request

    return CurrentKey()


def _leave_out_foreign_headers(client: Any) -> None:
    """Drop those of OPENAI_CUSTOM_HEADERS and ANTHROPIC_CUSTOM_HEADERS, which the SDKs always read."""
    client._custom_headers = {}  # noqa: SLF001 - there is no other way
