"""An identity provider's keys: over verified TLS, from one address, with a rate limit."""

import asyncio
import json
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import trustme
from aiohttp import web
from starlette.responses import Response

from tests.support.http.identity_provider import IdentityProvider, identity_provider
from vectorforge.api.identity.access_tokens import MAX_AGE_S, MIN_INTERVAL_S, RETRY_S, TIMEOUT_S, KeySet
from vectorforge.errors import IdentityProviderUnavailableError

FIND = """
import asyncio, sys
from vectorforge.api.identity.access_tokens import KeySet
from vectorforge.errors import IdentityProviderUnavailableError
async def main():
    try:
        print(await KeySet(sys.argv[1]).find("rsa") is not None)
    except IdentityProviderUnavailableError:
        print("unavailable")
asyncio.run(main())
"""


@dataclass
class Site:
    """A server of one address, and its requests."""

    url: str = ""
    moved_to: str | None = None
    asked: list[str] = field(default_factory=list)


@asynccontextmanager
async def site(tls: ssl.SSLContext | None = None) -> AsyncIterator[Site]:
    served = Site()

    async def answer(request: web.Request) -> web.Response:
        served.asked.append(request.path)
        if served.moved_to is not None and request.path == "/jwks.json":
            return web.Response(status=302, headers={"Location": served.moved_to})
        return web.Response(text=json.dumps(IdentityProvider().public_keys()))

    app = web.Application()
    app.router.add_get("/{path:.*}", answer)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    try:
        listening = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls)
        await listening.start()
        scheme = "http" if tls is None else "https"
        served.url = f"{scheme}://127.0.0.1:{runner.addresses[0][1]}/jwks.json"
        yield served
    finally:
        await runner.cleanup()


def context_of(certificate: trustme.LeafCert) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    certificate.configure_cert(context)
    return context


async def found_at(url: str, authority: Path | None) -> str:
    """Fetch the keys in a separate process, since an SSL context is created once per process."""
    variables = {"PYTHONPATH": ":".join(sys.path)}
    if authority is not None:
        variables["SSL_CERT_FILE"] = str(authority)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", FIND, url, env=variables, stdout=subprocess.PIPE
    )
    printed, _ = await process.communicate()
    return printed.decode().strip()


@pytest.fixture
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def authority_file(authority: trustme.CA, tmp_path: Path) -> Path:
    path = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(path)
    return path


async def test_key_set_over_tls_with_known_authority_is_fetched(
    authority: trustme.CA, authority_file: Path
) -> None:
    async with site(context_of(authority.issue_cert("127.0.0.1"))) as served:
        assert await found_at(served.url, authority_file) == "True"


async def test_invalid_certificate_is_rejected(
    authority: trustme.CA, authority_file: Path
) -> None:  # security 11
    ended = datetime.now(UTC) - timedelta(days=1)
    of_others = {
        "unknown authority": trustme.CA().issue_cert("127.0.0.1"),
        "another host": authority.issue_cert("idp.example"),
        "expired": authority.issue_cert("127.0.0.1", not_before=ended - timedelta(days=1), not_after=ended),
    }
    for name, certificate in of_others.items():
        async with site(context_of(certificate)) as served:
            assert await found_at(served.url, authority_file) == "unavailable", name
            assert served.asked == [], name
    async with site(context_of(authority.issue_cert("127.0.0.1"))) as served:
        assert await found_at(served.url, None) == "unavailable"  # unknown to the system


@pytest.mark.parametrize("to_tls", [False, True])
async def test_redirect_is_not_followed(
    authority: trustme.CA, authority_file: Path, to_tls: bool
) -> None:  # security 11, 22
    tls = context_of(authority.issue_cert("127.0.0.1"))
    async with site(tls) as served, site(tls if to_tls else None) as elsewhere:
        for target in (elsewhere.url, "/elsewhere", "http://169.254.169.254/latest/meta-data/"):
            served.moved_to = target
            assert await found_at(served.url, authority_file) == "unavailable", target
        assert set(served.asked) == {"/jwks.json"}
        assert elsewhere.asked == []


class Clock:
    """A clock set by the test."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


async def refused(keys: KeySet, number: int) -> bool:
    try:
        return await keys.find(f"unknown-{number}") is None
    except IdentityProviderUnavailableError:
        return True


async def test_burst_of_unknown_key_ids_triggers_one_fetch() -> None:
    clock = Clock()
    async with identity_provider() as provider:
        keys = KeySet(f"{provider.url}/jwks.json", clock=clock)
        for fetches in (1, 2):
            assert all(await asyncio.gather(*(refused(keys, number) for number in range(50))))
            assert provider.fetched == fetches
            clock.now += MIN_INTERVAL_S


async def test_waiters_of_failed_fetch_do_not_retry() -> None:
    clock = Clock()
    async with identity_provider() as provider:
        provider.gate, provider.answer = asyncio.Event(), Response(status_code=500)
        keys = KeySet(f"{provider.url}/jwks.json", clock=clock)
        lookups = [asyncio.create_task(refused(keys, number)) for number in range(20)]
        async with asyncio.timeout(TIMEOUT_S):
            await provider.asked.wait()
        clock.now += RETRY_S  # it took as long as that
        provider.gate.set()
        assert all(await asyncio.gather(*lookups))
        assert provider.fetched == 1


async def test_cached_key_lookup_does_not_wait_for_refresh() -> None:
    clock = Clock()
    async with identity_provider() as provider:
        keys = KeySet(f"{provider.url}/jwks.json", clock=clock)
        assert await keys.find("rsa") is not None
        clock.now += MAX_AGE_S + 1
        provider.gate = asyncio.Event()
        provider.asked.clear()
        fetching = asyncio.create_task(keys.find("rsa"))
        async with asyncio.timeout(TIMEOUT_S):
            await provider.asked.wait()
            found = await asyncio.gather(*(keys.find("rsa") for _ in range(20)))
        assert None not in found
        assert not fetching.done()
        provider.gate.set()
        assert await fetching is not None
        assert provider.fetched == 2


async def test_endless_key_set_response_times_out() -> None:
    async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 200000\r\n\r\n{")
        try:
            while not reader.at_eof():
                writer.write(b" ")
                await asyncio.sleep(0.05)
        finally:
            writer.close()

    server = await asyncio.start_server(drip, "127.0.0.1", 0)
    async with server, asyncio.timeout(4 * TIMEOUT_S):
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(IdentityProviderUnavailableError):
            await KeySet(f"http://127.0.0.1:{port}/jwks.json").find("rsa")
