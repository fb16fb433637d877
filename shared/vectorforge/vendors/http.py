"""HTTP requests to model vendors: key rotation, unread responses, and our transport over aiohttp.

Our transport is the default: with the vendors' SDKs (``vectorforge.vendors.sdk``) a request takes several
times the CPU time, and their imports most of a cold start (docs/decisions/providers.md).
Providers make the bodies.
"""

import asyncio
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import aclosing
from types import MappingProxyType, ModuleType
from typing import Any

import orjson
from pydantic import SecretStr

from vectorforge.vendors.credentials import Credentials
from vectorforge.vendors.response import VendorResponse, VendorStatusError

CONNECT_TIMEOUT_S = 5.0
"""Time limit of a connection, including DNS and TLS."""

_KEYS_TO_MASK = 3
"""A response that began with an old key may fail after its rotation, and the error may quote that key."""


def refuses_key(error: VendorStatusError) -> bool:
    """Return True for a status that rejects the key."""
    return error.status in (401, 403)


class VendorTransport(ABC):
    """Requests to one vendor.

    Args:
        credentials: Source of the key, read before each request.
        is_refusal: Returns True for a status that rejects the key.
    """

    def __init__(
        self, credentials: Credentials, *, is_refusal: Callable[[VendorStatusError], bool] = refuses_key
    ) -> None:
        self._credentials = credentials
        self._is_refusal = is_refusal
        self._keys: deque[SecretStr] = deque(maxlen=_KEYS_TO_MASK)

    async def post(
        self, url: str, body: Mapping[str, Any], *, connect_timeout_s: float = CONNECT_TIMEOUT_S
    ) -> VendorResponse:
        """Post JSON; retry once with the new key if the vendor rejects the old one.

        Args:
            url: Address with path.
            body: Sent as JSON.
            connect_timeout_s: Time limit of the connection only.

        Returns:
            Unread response with a status of 2xx; close it.

        Raises:
            VendorConnectionError: The connection failed.
            VendorTimeoutError: The connection timed out.
            VendorStatusError: Any other status; its text may quote the key (``without_key``).
            TypeError: A text of the body is not valid Unicode.
        """
        return await self._request("POST", url, body, connect_timeout_s)

    async def get_json(self, url: str) -> Any:
        """Get JSON; arguments and errors as ``post``.

        Raises:
            ConnectionError: The connection broke within the body.
            ValueError: The body is too long, or not JSON.
        """
        response = await self._request("GET", url, None, CONNECT_TIMEOUT_S)
        async with aclosing(response):
            return orjson.loads(await response.read())

    @abstractmethod
    async def preload(self) -> None:
        """Import the packages of the first request; connects to nothing."""

    @abstractmethod
    async def aclose(self) -> None:
        """Release the running loop's connections; the next request reconnects."""

    def without_key(self, exc: Exception) -> Exception:
        """Return the exception, or one with the keys removed from its text.

        Vendors quote rejected keys, and a traceback in a log would show them.
        """
        text = f"{type(exc).__name__}: {exc}"
        written = text + repr(exc)
        shown = [key.get_secret_value() for key in self._keys if key.get_secret_value() in written]
        for key in shown:
            text = text.replace(key, "**********")
        return RuntimeError(text) if shown else exc

    @abstractmethod
    async def _send(
        self, key: SecretStr, method: str, url: str, body: Mapping[str, Any] | None, connect_timeout_s: float
    ) -> VendorResponse:
        """Send one request; errors as ``post``."""

    async def _request(
        self, method: str, url: str, body: Mapping[str, Any] | None, connect_timeout_s: float
    ) -> VendorResponse:
        key = self._register(await self._credentials.current())
        try:
            return await self._send(key, method, url, body, connect_timeout_s)
        except VendorStatusError as exc:
            if not self._is_refusal(exc):
                raise
            refusal = exc
        # Outside the except: later errors would chain the rejection, which may quote the key.
        other = await self._credentials.refresh(key)
        if other == key:
            raise refusal
        return await self._send(self._register(other), method, url, body, connect_timeout_s)

    def _register(self, key: SecretStr) -> SecretStr:
        if key.get_secret_value() and key not in self._keys:
            self._keys.append(key)
        return key


class VendorClient(VendorTransport):
    """Transport over aiohttp.

    Connections belong to the event loop, are shared by all its clients, and stay open between requests and
    invocations of a function.

    Args:
        headers: Headers of each request, in addition to key and content type.
    """

    def __init__(
        self,
        credentials: Credentials,
        *,
        headers: Mapping[str, str] = MappingProxyType({}),
        is_refusal: Callable[[VendorStatusError], bool] = refuses_key,
    ) -> None:
        super().__init__(credentials, is_refusal=is_refusal)
        self._headers = dict(headers)

    async def preload(self) -> None:
        """Import the HTTP client; connects to nothing."""
        await _imported()

    async def aclose(self) -> None:
        """Release the running loop's connections; the last client closes them."""
        if _sessions is not None:
            await _sessions.give_back(self)

    async def _send(
        self, key: SecretStr, method: str, url: str, body: Mapping[str, Any] | None, connect_timeout_s: float
    ) -> VendorResponse:
        sent = None if body is None else orjson.dumps(body)
        session = (await _imported()).session_for(self)
        secret = key.get_secret_value()
        headers = {**self._headers, "Authorization": f"Bearer {secret}"} if secret else self._headers
        response: VendorResponse = await session.send(method, url, sent, headers, connect_timeout_s)
        return response


_sessions: ModuleType | None = None
"""``vectorforge.vendors.session``, once it is imported."""


async def _imported() -> ModuleType:
    """Return the module that imports aiohttp, imported in a thread: it takes up to half a second."""
    global _sessions
    if _sessions is None:
        _sessions = await asyncio.to_thread(_import)
    return _sessions


def _import() -> ModuleType:
    from vectorforge.vendors import session

    return session
