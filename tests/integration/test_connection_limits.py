"""The web server of ``vectorforge up``: slow headers and many connections, on real sockets."""

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import uvicorn
from starlette.types import Receive, Scope, Send

from vectorforge.cli.commands.server import bounded_connection, new_event_loop
from vectorforge.local.postgres import EmbeddedPostgres

VECTORFORGE = Path(sys.executable).with_name("vectorforge")
HEADER_TIMEOUT_S = 1.0
MAX_CONNECTIONS = 8
REQUEST = b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
PATIENCE_S = 20


@pytest.fixture(scope="module")
def address(private_dir: Callable[[str], Path]) -> Iterator[tuple[str, int]]:
    """Return the address of a server with a short header timeout and few connections."""
    folder = private_dir("connections")
    settings = {
        "VECTORFORGE_DATA_DIR": str(folder / "data"),
        "VECTORFORGE_HEADER_TIMEOUT_S": str(HEADER_TIMEOUT_S),
        "VECTORFORGE_MAX_CONNECTIONS": str(MAX_CONNECTIONS),
    }
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("VECTORFORGE_")}
    process = subprocess.Popen(
        [VECTORFORGE, "up", "--port", "0", "--json", "--no-sample"],
        cwd=folder, env=inherited | settings, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        announced = process.stdout.readline()
        assert announced, process.communicate()[1]
        served = urlsplit(json.loads(announced)["url"])
        assert served.hostname is not None
        assert served.port is not None
        yield served.hostname, served.port
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
        EmbeddedPostgres(folder / "data" / "postgres").stop(force=True)


def connect(address: tuple[str, int]) -> socket.socket:
    return socket.create_connection(address, timeout=PATIENCE_S)


def read_to_end(client: socket.socket) -> bytes:
    """Read until the server closes; a reset is not a clean end."""
    received = bytearray()
    while part := client.recv(65_536):
        received += part
    return bytes(received)


def read_response(client: socket.socket) -> tuple[int, dict[str, object]]:
    """Read the status and JSON body of one response."""
    received = bytearray()
    while b"\r\n\r\n" not in received:
        part = client.recv(65_536)
        assert part, bytes(received)
        received += part
    head, _, body = bytes(received).partition(b"\r\n\r\n")
    lengths = [
        line.split(b":")[1] for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")
    ]
    while len(body) < int(lengths[0]):
        body += client.recv(65_536)
    return int(head.split()[1]), json.loads(body)


def ask(address: tuple[str, int]) -> int:
    with connect(address) as client:
        client.sendall(REQUEST)
        return read_response(client)[0]


@pytest.mark.parametrize("sent", [REQUEST[:30], REQUEST[:1], REQUEST[:-2]])
def test_partial_headers_time_out_with_408(address: tuple[str, int], sent: bytes) -> None:
    with connect(address) as slow:
        started = time.monotonic()
        slow.sendall(sent)
        assert ask(address) == 200  # others are served meanwhile
        head, _, body = read_to_end(slow).partition(b"\r\n\r\n")
        assert HEADER_TIMEOUT_S * 0.9 <= time.monotonic() - started < PATIENCE_S / 2
    assert head.startswith(b"HTTP/1.1 408 ")
    assert b"connection: close" in head.lower()
    assert json.loads(body)["code"] == "headers_too_slow"


def test_trickled_headers_do_not_extend_the_timeout(address: tuple[str, int]) -> None:
    with connect(address) as slow:
        started = time.monotonic()
        slow.sendall(b"GET /health HTTP/1.1\r\n")
        slow.settimeout(0.1)
        received = b""
        while not received and time.monotonic() - started < PATIENCE_S / 2:
            slow.sendall(b"X-A: b\r\n")
            with contextlib.suppress(TimeoutError):
                received = slow.recv(65_536)
        assert received.startswith(b"HTTP/1.1 408 ")
        assert time.monotonic() - started >= HEADER_TIMEOUT_S * 0.9


def test_header_timeout_applies_to_every_request_of_a_connection(address: tuple[str, int]) -> None:
    with connect(address) as client:
        client.sendall(REQUEST)
        assert read_response(client)[0] == 200
        time.sleep(HEADER_TIMEOUT_S * 1.5)  # an idle connection stays open
        client.sendall(REQUEST)
        assert read_response(client)[0] == 200
        client.sendall(REQUEST[:30])
        assert read_to_end(client).startswith(b"HTTP/1.1 408 ")


async def answer_of_headers_that_arrive_during_a_stall() -> bytes:
    """Return what a client reads that sends its headers while the event loop runs another callback."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    def stall() -> None:
        loop.remove_reader(wake)
        client.sendall(REQUEST)
        time.sleep(header_timeout_s * 2)

    header_timeout_s = 0.25
    loop = asyncio.get_running_loop()
    http = bounded_connection(header_timeout_s, MAX_CONNECTIONS)
    with socket.create_server(("127.0.0.1", 0)) as bound, ExitStack() as opened:
        server = uvicorn.Server(uvicorn.Config(app, http=http, lifespan="off", log_level="warning"))
        serving = asyncio.create_task(server.serve(sockets=[bound]))
        client = opened.enter_context(connect(bound.getsockname()))
        wake, waker = (opened.enter_context(end) for end in socket.socketpair())
        while not server.server_state.connections:  # noqa: ASYNC110 - uvicorn has no event for it
            await asyncio.sleep(0.01)
        loop.add_reader(wake, stall)
        waker.send(b"x")
        try:
            return await asyncio.to_thread(client.recv, 65_536)
        finally:
            server.should_exit = True
            await serving


def test_headers_that_arrive_during_a_stall_are_served() -> None:
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        answer = runner.run(answer_of_headers_that_arrive_during_a_stall())
    assert answer.startswith(b"HTTP/1.1 204 ")


def test_silent_connection_is_closed_after_timeout(address: tuple[str, int]) -> None:
    with connect(address) as silent:
        started = time.monotonic()
        assert read_to_end(silent) == b""
        assert HEADER_TIMEOUT_S * 0.9 <= time.monotonic() - started < PATIENCE_S / 2


def test_oversize_headers_return_431(address: tuple[str, int]) -> None:
    with connect(address) as client:
        client.sendall(b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n")
        client.sendall((b"X-A: " + b"b" * 1000 + b"\r\n") * 70)
        head, _, body = read_to_end(client).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 431 ")
    assert json.loads(body)["code"] == "headers_too_large"


def test_slow_body_does_not_trigger_header_timeout(address: tuple[str, int]) -> None:
    body = b'{"name": "slow"}'
    with connect(address) as client:
        head = f"POST /v1/collections HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(body)}\r\n"
        client.sendall(f"{head}Content-Type: application/json\r\n\r\n".encode() + body[:3])
        time.sleep(HEADER_TIMEOUT_S * 1.5)
        client.sendall(body[3:])
        assert read_response(client)[0] == 201


def test_connections_above_the_cap_are_rejected(address: tuple[str, int]) -> None:
    with ExitStack() as opened:
        busy = [opened.enter_context(connect(address)) for _ in range(MAX_CONNECTIONS)]
        for client in busy:
            client.sendall(REQUEST)
            assert read_response(client)[0] == 200
        for _ in range(3):
            with connect(address) as refused:
                refused.sendall(REQUEST)
                head, _, body = read_to_end(refused).partition(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 503 ")
            assert b"retry-after:" in head.lower()
            assert json.loads(body)["code"] == "too_many_connections"
        busy[0].sendall(REQUEST)  # open connections stay open
        assert read_response(busy[0])[0] == 200
        busy.pop().close()
        give_up_at = time.monotonic() + PATIENCE_S
        while ask(address) != 200:  # and their slot is free after they close
            assert time.monotonic() < give_up_at
            time.sleep(0.05)


def test_slow_clients_release_their_connections_after_timeout(address: tuple[str, int]) -> None:
    with ExitStack() as opened:
        slow = []
        for _ in range(MAX_CONNECTIONS):
            slow.append(opened.enter_context(connect(address)))
            slow[-1].sendall(
                REQUEST[:20]
            )  # at once: a connection that stays silent is closed without a response
        for client in slow:  # no query meanwhile: a rejected one takes the place of a 408
            assert read_to_end(client).startswith(b"HTTP/1.1 408 ")
        assert ask(address) == 200
