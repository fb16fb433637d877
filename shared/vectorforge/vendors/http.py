"""A vendor's answer whose body has not been read yet, whatever transport brought it.

Requests to the vendors of models: keys, exchanged when they are refused, and our transport over aiohttp.

Ours is the default: over the vendors' SDKs (``vectorforge.vendors.sdk``) a request takes several times the
CPU time, and their imports most of a cold start (docs/decisions.md). Nothing here says what is asked; that
is each provider's.
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
from vectorforge.vendors.failures import VendorStatusError

_MAX_ANSWER_BYTES = 16 * 1024 * 1024


class VendorResponse(ABC):
    """An answer with a status of 2xx; to be closed."""

    __slots__ = ()

    @abstractmethod
    async def chunk(self) -> bytes:
        """Return the part of the body that has arrived, or the next to arrive; empty at its end.

        Raises:
            ConnectionError: The connection broke before its end.
        """

    @property
    @abstractmethod
    def is_read(self) -> bool:
        """Whether the end of the body has been read, so that the connection can be used again."""

    @abstractmethod
    async def aclose(self) -> None:
        """Release the connection: reuse it if the body was read, cut it at once if it was not.

        A vendor that sees its reader leave stops writing, and charging.
        """

    async def read(self, limit: int = _MAX_ANSWER_BYTES) -> bytes:
        """Return the whole body.

        Args:
            limit: Bytes at most.

        Raises:
            ConnectionError: The connection broke before its end.
            ValueError: It is longer.
        """
        body = await self.chunk()
        if self.is_read:
            return _within(limit, body)
        chunks, size = [body], len(body)
        while chunk := await self.chunk():
            chunks.append(chunk)
            size += len(chunk)
            if size > limit:
                break
        return _within(limit, b"".join(chunks))


def _within(limit: int, body: bytes) -> bytes:
    if len(body) > limit:
        raise ValueError(f"the answer has more than {limit} bytes")
    return body


CONNECT_TIMEOUT_S = 5.0
"""Longest wait for a connection, with the look-up of the name and TLS."""

_REMEMBERED_KEYS = 3
"""An answer that began with an old key may fail after its exchange, and the error quote that key."""


def refuses_key(error: VendorStatusError) -> bool:
    """Whether the status says that the key is not, or no longer, a good one."""
    return error.status in (401, 403)


class VendorTransport(ABC):
    """Asks one vendor.

    Args:
        credentials: The key, asked for before each request.
        is_refusal: Whether an answer says that the key is not a good one.
    """

    def __init__(
        self, credentials: Credentials, *, is_refusal: Callable[[VendorStatusError], bool] = refuses_key
    ) -> None:
        self._credentials = credentials
        self._is_refusal = is_refusal
        self._keys: deque[SecretStr] = deque(maxlen=_REMEMBERED_KEYS)

    async def post(
        self, url: str, body: Mapping[str, Any], *, connect_timeout_s: float = CONNECT_TIMEOUT_S
    ) -> VendorResponse:
        """Post JSON, once more when the vendor refuses the key and there is a new one.

        Args:
            url: With its path.
            body: Sent as JSON.
            connect_timeout_s: Longest wait for a connection; nothing else is limited here.

        Returns:
            The beginning of an answer with a status of 2xx; to be closed.

        Raises:
            VendorConnectionError: There is no connection, or it broke.
            VendorTimeoutError: There was none in time.
            VendorStatusError: Any other status; its text may quote the key (``without_key``).
            TypeError: A text of the body is no Unicode.
        """
        return await self._request("POST", url, body, connect_timeout_s)

    async def get_json(self, url: str) -> Any:
        """Return what is at an address, as JSON; arguments and errors as ``post``.

        Raises:
            ConnectionError: The body broke off.
            ValueError: It is too long, or no JSON.
        """
        response = await self._request("GET", url, None, CONNECT_TIMEOUT_S)
        async with aclosing(response):
            return orjson.loads(await response.read())

    @abstractmethod
    async def preload(self) -> None:
        """Import ahead of the first request what it needs; connects to nothing."""

    @abstractmethod
    async def aclose(self) -> None:
        """Release the running loop's connections; the next request opens new ones."""

    def without_key(self, exc: Exception) -> Exception:
        """Return the exception, or, when its text holds a key, one with the same text less the key.

        Vendors quote the key they refuse; a traceback in a log would show it.
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
        key = self._remembered(await self._credentials.current())
        try:
            return await self._send(key, method, url, body, connect_timeout_s)
        except VendorStatusError as exc:
            if not self._is_refusal(exc):
                raise
            refusal = exc
        # Not within the except: errors from here on would carry the refusal, which may quote the key.
        other = await self._credentials.refresh(key)
        if other == key:
            raise refusal
        return await self._send(self._remembered(other), method, url, body, connect_timeout_s)

    def _remembered(self, key: SecretStr) -> SecretStr:
        if key.get_secret_value() and key not in self._keys:
            self._keys.append(key)
        return key


class VendorClient(VendorTransport):
    """Our own transport.

    Connections belong to the event loop and are shared by all clients in it: they are kept between requests,
    and across the invocations of a function.

    Args:
        credentials: See ``VendorTransport``.
        headers: Sent with each request, beside the key and the type of the body.
        is_refusal: See ``VendorTransport``.
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
        """Import the HTTP client ahead of the first request; connects to nothing."""
        await _imported()

    async def aclose(self) -> None:
        """Give back the running loop's connections; they are closed when all clients have.

        The next request opens new ones.
        """
        if _sessions is not None:
            await _sessions.give_back(self)

    async def _send(
        self, key: SecretStr, method: str, url: str, body: Mapping[str, Any] | None, connect_timeout_s: float
    ) -> VendorResponse:
        sent = None if body is None else orjson.dumps(body)
        sessions = await _imported()
        headers = {**self._headers, "Authorization": f"Bearer {key.get_secret_value()}"}
        response: VendorResponse = await sessions.session_for(self).send(
            method, url, sent, headers, connect_timeout_s
        )
        return response


_sessions: ModuleType | None = None
"""``vectorforge.vendors.session``, once it is imported."""


async def _imported() -> ModuleType:
    """The module that imports aiohttp; the first time in a thread, since that takes up to half a second."""
    global _sessions
    if _sessions is None:
        _sessions = await asyncio.to_thread(_import)
    return _sessions


def _import() -> ModuleType:
    from vectorforge.vendors import session as vendor_session

    return vendor_session
