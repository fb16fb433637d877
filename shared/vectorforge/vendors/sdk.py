"""Requests over the vendors' official SDKs: the same interface as ``vectorforge.vendors.http``.

The SDK builds the address, signs the request and holds the connections. The providers make the bodies and
read the responses, as with our own transport, so that both give the same results. The SDKs' retries are
disabled.
"""

import asyncio
import logging
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeAlias, TypeVar

import orjson
from pydantic import SecretStr

from vectorforge.errors import ConfigurationError
from vectorforge.extras import not_installed
from vectorforge.vendors.credentials import Credentials
from vectorforge.vendors.http import VendorTransport, refuses_key
from vectorforge.vendors.response import (
    VendorConnectionError,
    VendorResponse,
    VendorStatusError,
    VendorTimeoutError,
)

if TYPE_CHECKING:
    import httpx2

SdkPackage: TypeAlias = Literal["openai", "anthropic"]
Client = TypeVar("Client")


def import_sdk(package: SdkPackage) -> Any:
    """Import a vendor's SDK.

    Raises:
        ConfigurationError: It is not installed, e.g. in a function bundled without it.
    """
    sdk: Any
    try:
        if package == "openai":
            import openai as sdk
        else:
            import anthropic as sdk
    except ModuleNotFoundError as exc:
        raise ConfigurationError(
            f"{not_installed(exc)} Without the SDK, set VECTORFORGE_{package.upper()}_CLIENT=http. On AWS, "
            "name the same settings in the stage's environment (infra/settings.py) and deploy again."
        ) from exc
    logging.getLogger(package).setLevel(logging.INFO)  # DEBUG lines contain headers with keys, and prompts
    return sdk


class SdkClients(Generic[Client]):
    """An SDK's client for each event loop, created on first use.

    Args:
        make: Creates a client; may import the SDK.
    """

    def __init__(self, make: Callable[[], Client]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._clients: dict[asyncio.AbstractEventLoop | None, Client] = {}

    def get(self) -> Client:
        """Return the running loop's client; without one, a client for the first loop that uses it.

        Raises:
            ConfigurationError: The SDK is not installed.
        """
        loop: asyncio.AbstractEventLoop | None = None
        with suppress(RuntimeError):
            loop = asyncio.get_running_loop()
        return self._of(loop)

    async def ready(self) -> Client:
        """Return the same as ``get``, created in a thread: the imports take up to a second."""
        loop = asyncio.get_running_loop()
        if loop in self._clients:
            return self._clients[loop]
        return await asyncio.to_thread(self._of, loop)

    async def aclose(self) -> None:
        """Close the running loop's client; ``get`` creates a new one."""
        for loop in (asyncio.get_running_loop(), None):
            client: Any = self._clients.pop(loop, None)
            if client is not None:
                await client.close()

    def _of(self, loop: asyncio.AbstractEventLoop | None) -> Client:
        with self._lock:
            if loop not in self._clients:
                for ended in [other for other in self._clients if other is not None and other.is_closed()]:
                    del self._clients[ended]
                self._clients[loop] = self._make()
            return self._clients[loop]


class SdkTransport(VendorTransport):
    """Transport over a vendor's SDK.

    Args:
        key_header: Returns the headers with the key; without any the SDK finds its credentials itself.
    """

    def __init__(
        self,
        clients: SdkClients[Any],
        package: SdkPackage,
        credentials: Credentials,
        *,
        key_header: Callable[[str], Mapping[str, str]],
        is_refusal: Callable[[VendorStatusError], bool] = refuses_key,
    ) -> None:
        super().__init__(credentials, is_refusal=is_refusal)
        self._clients = clients
        self._package = package
        self._key_header = key_header

    async def preload(self) -> None:
        """Import the SDK and create its client; connects to nothing."""
        await self._clients.ready()

    async def aclose(self) -> None:
        """Close the running loop's client."""
        await self._clients.aclose()

    async def _send(
        self, key: SecretStr, method: str, url: str, body: Mapping[str, Any] | None, connect_timeout_s: float
    ) -> VendorResponse:
        client: Any = await self._clients.ready()
        sdk = import_sdk(self._package)
        import httpx2

        options: dict[str, Any] = {
            "headers": self._key_header(key.get_secret_value()),
            "timeout": httpx2.Timeout(None, connect=connect_timeout_s),
            "max_retries": 0,
            "follow_redirects": False,  # redirects would forward the key
        }
        arguments = {"cast_to": httpx2.Response, "options": options, "stream": True}
        try:
            if body is None:
                return SdkResponse(await client.get(url, **arguments))
            orjson.dumps(body)  # invalid Unicode raises the same error as with our own transport
            return SdkResponse(await client.post(url, body=dict(body), **arguments))
        except sdk.APIStatusError as exc:
            status = VendorStatusError(exc.response.status_code, exc.response.headers, exc.response.content)
            raise status from None  # the SDK's errors hold the request with its headers
        except sdk.APITimeoutError as exc:
            raise VendorTimeoutError(str(exc)) from None
        except sdk.APIConnectionError as exc:
            raise VendorConnectionError(f"{type(exc.__cause__ or exc).__name__}: {exc}") from None


class SdkResponse(VendorResponse):
    """Response over an SDK, with the bytes as the vendor sent them."""

    __slots__ = ("_is_read", "_parts", "_response")

    def __init__(self, response: "httpx2.Response") -> None:
        self._response = response
        self._parts = response.aiter_bytes()
        self._is_read = False

    async def chunk(self) -> bytes:
        """See ``VendorResponse``."""
        import httpx2

        try:
            async for part in self._parts:
                if part:
                    return part
        except (httpx2.HTTPError, httpx2.StreamError, OSError) as exc:
            raise ConnectionError(f"the response broke off ({type(exc).__name__})") from None
        self._is_read = True
        return b""

    @property
    def is_read(self) -> bool:
        """See ``VendorResponse``."""
        return self._is_read

    async def aclose(self) -> None:
        """See ``VendorResponse``."""
        await self._response.aclose()
