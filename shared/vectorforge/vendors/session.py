"""Connections to vendors: an aiohttp session per event loop, shared by all ``VendorClient``.

Imported by the first request.
"""

import asyncio
import atexit
import io
import os.path
import ssl
import sys
import weakref
from collections.abc import Mapping
from contextlib import aclosing, suppress
from urllib.request import getproxies, proxy_bypass

import aiohttp
from aiohttp.typedefs import LooseHeaders
from yarl import URL

from vectorforge.vendors.response import (
    VendorConnectionError,
    VendorResponse,
    VendorStatusError,
    VendorTimeoutError,
)

_KEEP_ALIVE_S = 30.0
"""Idle time of connections; self-hosted servers close theirs after 5 to 60 s."""
_MAX_ERROR_BYTES = 64 * 1024
_LARGE_BYTES = 512 * 1024
"""Size from which a body is written in pieces, so that other requests are served meanwhile."""
_ERROR_BODY_S = 5.0
"""Time limit of reading the body of an error."""

_CA_FILES = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
)
"""CA bundles of Linux distributions, for a Python built elsewhere."""

_HEADERS = {
    "Accept": "application/json",
    "Accept-Encoding": "identity",  # responses are short or streamed
    "Content-Type": "application/json",
    "User-Agent": "VectorForge",
}


class HttpResponse(VendorResponse):
    """Response over aiohttp."""

    __slots__ = ("_content", "_response")

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response
        self._content = response.content

    async def chunk(self) -> bytes:
        """See ``VendorResponse``."""
        try:
            return await self._content.readany()
        except (aiohttp.ClientError, OSError) as exc:
            raise ConnectionError("the response broke off") from exc

    @property
    def is_read(self) -> bool:
        """See ``VendorResponse``."""
        return self._content.at_eof()

    async def aclose(self) -> None:
        """See ``VendorResponse``."""
        if not self._content.at_eof():
            connection = self._response.connection
            if connection is not None and connection.transport is not None:
                connection.transport.abort()
        self._response.close()


class VendorSession:
    """Connections of one event loop; create it in the loop."""

    def __init__(self) -> None:
        self.users: weakref.WeakSet[object] = weakref.WeakSet()
        """Clients that use the connections."""
        self._proxies = getproxies()  # once: it decodes the whole environment, 3 % of a query's CPU
        self._http = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=_KEEP_ALIVE_S, ssl=_tls()),
            cookie_jar=aiohttp.DummyCookieJar(),
            headers=_HEADERS,
            read_bufsize=256 * 1024,
        )

    async def send(
        self,
        method: str,
        url: str,
        body: bytes | None,
        headers: Mapping[str, str],
        connect_timeout_s: float,
    ) -> HttpResponse:
        """See ``VendorTransport.post``."""
        target = URL(url)
        sent: LooseHeaders = headers
        if target.user is not None or target.password is not None:  # e.g. of a reverse proxy
            sent = {name: value for name, value in headers.items() if name != "Authorization"}
        try:
            response = await self._http.request(
                method,
                target,
                data=body if body is None or len(body) < _LARGE_BYTES else io.BytesIO(body),
                headers=sent,
                proxy=_proxy(target, self._proxies),
                # "connect" includes DNS; without a limit of connections it includes no queueing.
                timeout=aiohttp.ClientTimeout(total=None, connect=connect_timeout_s),
                allow_redirects=False,
            )
        except (TimeoutError, aiohttp.ServerTimeoutError) as exc:
            raise VendorTimeoutError(str(exc)) from None
        except (aiohttp.ClientError, OSError) as exc:
            # "from None": some of aiohttp's errors hold the request with its headers
            raise VendorConnectionError(f"{type(exc).__name__}: {exc}") from None
        answer = HttpResponse(response)
        if 200 <= response.status < 300:
            return answer
        raise await _status_error(response, answer)

    async def aclose(self) -> None:
        """Close all connections, used or not."""
        await self._http.close()


_SESSIONS: dict[asyncio.AbstractEventLoop, VendorSession] = {}


def session_for(client: object) -> VendorSession:
    """Return the running loop's connections and register the client as a user."""
    loop = asyncio.get_running_loop()
    session = _SESSIONS.get(loop)
    if session is None:
        for ended in [other for other in list(_SESSIONS) if other.is_closed()]:
            _forget(_SESSIONS.pop(ended))
        session = _SESSIONS[loop] = VendorSession()
    session.users.add(client)
    return session


async def give_back(client: object) -> None:
    """Unregister the client from the running loop's connections; the last user closes them."""
    loop = asyncio.get_running_loop()
    session = _SESSIONS.get(loop)
    if session is None or client not in session.users:
        return
    session.users.discard(client)
    if not session.users:
        del _SESSIONS[loop]
        await session.aclose()


def _forget(session: VendorSession) -> None:
    """Close a session whose loop has ended, without waiting."""
    closing = session.aclose()
    with suppress(StopIteration, RuntimeError):
        closing.send(None)
    closing.close()


@atexit.register
def _forget_all() -> None:
    while _SESSIONS:
        _forget(_SESSIONS.popitem()[1])


async def _status_error(response: aiohttp.ClientResponse, answer: HttpResponse) -> VendorStatusError:
    body = b""
    async with aclosing(answer):
        with suppress(TimeoutError, ConnectionError):  # the status is sufficient
            async with asyncio.timeout(_ERROR_BODY_S):
                while len(body) < _MAX_ERROR_BYTES and (chunk := await answer.chunk()):
                    body += chunk
    return VendorStatusError(response.status, response.headers, body[:_MAX_ERROR_BYTES])


def _proxy(url: URL, proxies: Mapping[str, str]) -> str | None:
    """Return the proxy of an address from HTTP_PROXY, HTTPS_PROXY, ALL_PROXY and NO_PROXY."""
    proxy = proxies.get(url.scheme) or proxies.get("all")
    if not proxy or url.host is None or proxy_bypass(f"{url.host}:{url.port}"):
        return None
    return proxy if "://" in proxy else f"http://{proxy}"


def _tls() -> ssl.SSLContext | bool:
    """Return the TLS context with the system's authorities, or those of SSL_CERT_FILE and SSL_CERT_DIR."""
    if sys.platform in ("darwin", "win32"):  # authorities are not in a file
        import truststore

        return truststore.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    paths = ssl.get_default_verify_paths()
    if paths.cafile or paths.capath:
        return True  # aiohttp's own context, which has them
    context = ssl.create_default_context()
    if file := next(filter(os.path.isfile, _CA_FILES), None):
        context.load_verify_locations(file)
    return context
