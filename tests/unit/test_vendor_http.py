"""Requests to vendors, over real sockets: keys, connections, redirects, proxies, certificates, limits."""

import asyncio
import gc
import ssl
import subprocess
import sys
from contextlib import aclosing
from pathlib import Path

import pytest
import trustme
from aiohttp import web
from pydantic import SecretStr

from tests.unit.vendor_server import NEW, OLD, Exchangeable, ask, client, vendor
from vectorforge.vendors.credentials import FixedCredentials
from vectorforge.vendors.http import VendorClient
from vectorforge.vendors.response import VendorConnectionError, VendorStatusError, VendorTimeoutError


class TestConnections:
    async def test_clients_of_one_loop_share_connections(self) -> None:
        async with vendor() as server, client() as chat, client() as embeddings:
            for vendor_client in (chat, embeddings, chat):
                assert await ask(vendor_client, server.url) == b'{"ok": true}'
            assert len(server.connections) == 1
            await chat.aclose()
            await chat.aclose()
            await ask(embeddings, server.url)
            assert len(server.connections) == 1
            await embeddings.aclose()  # the last one to release them
            await ask(chat, server.url)
            assert len(server.connections) == 2

    def test_each_loop_has_own_connections_and_needs_no_close(self) -> None:
        vendor_client = VendorClient(FixedCredentials("key"))

        async def once(*, close: bool) -> bytes:
            async with vendor() as server:
                try:
                    return await ask(vendor_client, server.url)
                finally:
                    if close:
                        await vendor_client.aclose()

        assert asyncio.run(once(close=False)) == asyncio.run(once(close=True)) == b'{"ok": true}'
        gc.collect()  # unclosed resources would warn, and warnings are errors

    def test_process_exits_cleanly_without_closing_clients(self) -> None:
        code = (
            "import asyncio\n"
            "from vectorforge.vendors.credentials import FixedCredentials\n"
            "from vectorforge.vendors.http import VendorClient\n"
            "async def main():\n"
            "    async def answer(reader, writer):\n"
            "        await reader.readuntil(b'\\r\\n\\r\\n{}')\n"
            "        writer.write(b'HTTP/1.1 200 OK\\r\\ncontent-length: 2\\r\\n\\r\\nok')\n"
            "    server = await asyncio.start_server(answer, '127.0.0.1', 0)\n"
            "    url = 'http://127.0.0.1:%d' % server.sockets[0].getsockname()[1]\n"
            "    response = await VendorClient(FixedCredentials('key')).post(url, {})\n"
            "    print(await response.read())\n"
            "asyncio.run(main())\n"
        )
        ended = subprocess.run(
            [sys.executable, "-X", "dev", "-W", "ignore::ResourceWarning:asyncio", "-c", code],
            check=True,
            capture_output=True,
            text=True,
            env={"PYTHONPATH": ":".join(sys.path)},
        )
        assert ended.stdout == "b'ok'\n"
        assert "Unclosed" not in ended.stderr


class TestKeys:
    # C25
    async def test_rejected_key_is_retried_once_with_refreshed_key(self) -> None:
        credentials = Exchangeable(after_refusal=NEW)
        async with vendor(key=NEW) as server, client(credentials) as vendor_client:
            assert await ask(vendor_client, server.url) == b'{"ok": true}'
        sent = [headers["authorization"] for headers in server.headers]
        assert sent == ["Bearer old-canary", "Bearer new-canary"]
        assert credentials.refreshes == 1

    @pytest.mark.parametrize("other", [OLD, NEW])
    async def test_persistently_wrong_key_is_rejected_after_at_most_two_requests(
        self, other: SecretStr
    ) -> None:
        credentials = Exchangeable(after_refusal=other)
        async with vendor(key=SecretStr("another")) as server, client(credentials) as vendor_client:
            with pytest.raises(VendorStatusError, match="canary") as caught:
                await ask(vendor_client, server.url)
        assert len(server.headers) == (2 if other is NEW else 1)
        assert credentials.refreshes == 1
        assert caught.value.__context__ is None  # a rejection of the old key would quote it
        assert "canary" not in str(vendor_client.without_key(caught.value))

    async def test_other_failures_pass_through(self) -> None:
        async def fails(_: web.Request) -> web.Response:
            return web.Response(status=503, text="later", headers={"Retry-After": "7"})

        credentials = Exchangeable(after_refusal=NEW)
        async with vendor(fails) as server, client(credentials) as vendor_client:
            with pytest.raises(VendorStatusError) as caught:
                await ask(vendor_client, server.url)
            assert (caught.value.status, caught.value.text) == (503, "later")
            assert caught.value.headers["retry-after"] == "7"
            assert vendor_client.without_key(caught.value) is caught.value
        assert credentials.refreshes == 0

    async def test_previous_key_is_redacted_from_errors(self) -> None:
        credentials = Exchangeable()
        async with vendor() as server, client(credentials) as vendor_client:
            await ask(vendor_client, server.url)
            credentials.key = NEW
            await ask(vendor_client, server.url)
        cleaned = vendor_client.without_key(RuntimeError("old-canary and new-canary"))
        assert str(cleaned) == "RuntimeError: ********** and **********"

    async def test_password_in_url_replaces_key(self) -> None:
        async with vendor() as server, client() as vendor_client:
            await ask(vendor_client, server.url.replace("//", "//me:secret@"))
        assert server.headers[0]["authorization"] == "Basic bWU6c2VjcmV0"


# fault 22 of the security matrix
async def test_redirects_are_rejected() -> None:
    async with vendor() as elsewhere, client() as vendor_client:

        async def redirects(_: web.Request) -> web.Response:
            return web.Response(status=307, headers={"Location": elsewhere.url})

        async with vendor(redirects) as server:
            with pytest.raises(VendorStatusError, match="status 307"):
                await ask(vendor_client, server.url)
        assert elsewhere.headers == []


class TestUnreachable:
    async def test_unknown_host_raises_connection_error(self) -> None:
        async with client() as vendor_client:
            with pytest.raises(VendorConnectionError, match="no-such-host"):
                await ask(vendor_client, "http://no-such-host.invalid/v1")

    @pytest.mark.parametrize("url", ["ftp://127.0.0.1/", "nonsense", "http://"])
    async def test_invalid_url_raises_connection_error(self, url: str) -> None:
        async with client() as vendor_client:
            with pytest.raises(VendorConnectionError):
                await ask(vendor_client, url)

    async def test_connect_timeout_raises_timeout_error(self) -> None:
        left = asyncio.Event()

        async def says_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read()
            writer.close()
            left.set()

        deaf = await asyncio.start_server(says_nothing, "127.0.0.1", 0)
        port = deaf.sockets[0].getsockname()[1]
        async with deaf, client() as vendor_client:
            with pytest.raises(VendorTimeoutError):  # TLS never gets its answer
                await vendor_client.post(f"https://127.0.0.1:{port}/", {}, connect_timeout_s=0.2)
            await left.wait()

    async def test_connection_broken_before_response_raises_connection_error(self) -> None:
        async def hangs_up(request: web.Request) -> web.Response:
            assert request.transport is not None
            request.transport.abort()
            return web.Response()

        async with vendor(hangs_up) as server, client() as vendor_client:
            with pytest.raises(VendorConnectionError):
                await ask(vendor_client, server.url)


class TestBounds:
    async def test_oversized_response_raises_value_error(self) -> None:
        async def endless(request: web.Request) -> web.StreamResponse:
            response = web.StreamResponse()
            await response.prepare(request)
            while True:
                await response.write(b"x" * 100_000)

        async with (
            vendor(endless) as server,
            client() as vendor_client,
            aclosing(await vendor_client.post(server.url, {})) as response,
        ):
            with pytest.raises(ValueError, match="more than 1000000 bytes"):
                await response.read(1_000_000)

    async def test_error_response_is_read_up_to_limit(self) -> None:
        async def complains(request: web.Request) -> web.StreamResponse:
            response = web.StreamResponse(status=500)
            await response.prepare(request)
            while True:
                await response.write(b"x" * 100_000)

        async with vendor(complains) as server, client() as vendor_client:
            with pytest.raises(VendorStatusError) as caught:
                await ask(vendor_client, server.url)
        assert len(caught.value.text) == 64 * 1024

    async def test_long_request_is_sent_completely(self) -> None:
        async def measures(request: web.Request) -> web.Response:
            return web.Response(text=str(len(await request.read())))

        app = web.Application(client_max_size=10_000_000)
        app.router.add_post("/", measures)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        async with client() as vendor_client:
            url = f"http://127.0.0.1:{runner.addresses[0][1]}/"
            async with aclosing(await vendor_client.post(url, {"x": "x" * 3_000_000})) as response:
                assert await response.read() == b"3000008"
        await runner.cleanup()


@pytest.mark.parametrize(
    ("variable", "bypassed"), [("HTTP_PROXY", ""), ("ALL_PROXY", ""), ("HTTP_PROXY", "*")]
)
async def test_proxy_from_environment_is_used(
    monkeypatch: pytest.MonkeyPatch, variable: str, bypassed: str
) -> None:
    lines: list[bytes] = []

    async def proxy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        lines.append(await reader.readline())
        await reader.readuntil(b"{}")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\nconnection: close\r\n\r\nproxy")
        writer.close()

    server = await asyncio.start_server(proxy, "127.0.0.1", 0)
    monkeypatch.setenv(variable, f"127.0.0.1:{server.sockets[0].getsockname()[1]}")
    monkeypatch.setenv("NO_PROXY", bypassed)
    async with server, client() as vendor_client:
        if bypassed:
            with pytest.raises(VendorConnectionError):
                await ask(vendor_client, "http://vendor.invalid/v1")
        else:
            assert await ask(vendor_client, "http://vendor.invalid/v1") == b"proxy"
    assert lines == ([] if bypassed else [b"POST http://vendor.invalid/v1 HTTP/1.1\r\n"])


# goals: TLS downgrade
@pytest.mark.parametrize("trusted", [True, False])
async def test_certificates_are_verified(tmp_path: Path, trusted: bool) -> None:
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    code = (
        "import asyncio, sys\n"
        "from vectorforge.vendors.credentials import FixedCredentials\n"
        "from vectorforge.vendors.http import VendorClient\n"
        "async def main():\n"
        "    client = VendorClient(FixedCredentials('key'))\n"
        "    try:\n"
        "        print(await client.get_json(sys.argv[1]))\n"
        "    except Exception as exc:\n"
        "        print(exc)\n"
        "    await client.aclose()\n"
        "asyncio.run(main())\n"
    )
    variables = {"PYTHONPATH": ":".join(sys.path)}
    if trusted:
        variables["SSL_CERT_FILE"] = str(tmp_path / "ca.pem")
    async with vendor(tls=context) as server:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", code, server.url, env=variables, stdout=subprocess.PIPE
        )
        printed, _ = await process.communicate()
    assert (b"{'ok': True}" in printed) is trusted
    assert (b"certificate verify failed" in printed) is not trusted
