"""A vendor's server on a real socket, and a client with rotatable credentials."""

import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from typing import NamedTuple

from aiohttp import web
from pydantic import SecretStr

from vectorforge.vendors.credentials import FixedCredentials, KeyOrigin
from vectorforge.vendors.http import VendorClient

OLD, NEW = SecretStr("old-canary"), SecretStr("new-canary")


class Exchangeable:
    """Credentials controlled by a test."""

    origin = KeyOrigin.SECRET

    def __init__(self, key: SecretStr = OLD, after_refusal: SecretStr | None = None) -> None:
        self.key = key
        self._after_refusal = after_refusal
        self.refreshes = 0

    async def current(self) -> SecretStr:
        return self.key

    async def refresh(self, refused: SecretStr) -> SecretStr:
        self.refreshes += 1
        self.key = self._after_refusal or self.key
        return self.key


class Vendor(NamedTuple):
    url: str
    headers: list[dict[str, str]]
    """Headers of each request, names in lower case."""
    connections: set[object]


@asynccontextmanager
async def vendor(
    answer: Callable[[web.Request], Awaitable[web.StreamResponse]] | None = None,
    *,
    key: SecretStr | None = None,
    tls: ssl.SSLContext | None = None,
) -> AsyncIterator[Vendor]:
    """Start a server that answers {"ok": true}, or quotes a wrong key in an error."""
    headers: list[dict[str, str]] = []
    connections: set[object] = set()

    async def handle(request: web.Request) -> web.StreamResponse:
        await request.read()
        headers.append({name.lower(): value for name, value in request.headers.items()})
        connections.add(request.transport)
        sent = request.headers.get("Authorization", "").removeprefix("Bearer ")
        if key is not None and sent != key.get_secret_value():
            return web.json_response({"error": {"message": f"wrong key: {sent}"}}, status=401)
        return web.json_response({"ok": True}) if answer is None else await answer(request)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls).start()
    try:
        yield Vendor(f"http{'s' if tls else ''}://127.0.0.1:{runner.addresses[0][1]}", headers, connections)
    finally:
        await runner.cleanup()


@asynccontextmanager
async def client(credentials: Exchangeable | None = None) -> AsyncIterator[VendorClient]:
    opened = VendorClient(credentials or FixedCredentials("key"))
    try:
        yield opened
    finally:
        await opened.aclose()


async def ask(vendor_client: VendorClient, url: str) -> bytes:
    async with aclosing(await vendor_client.post(url, {})) as response:
        body: bytes = await response.read()
        return body
