"""Messages of one client's event stream."""

import asyncio
from typing import Any

import pytest
from starlette.requests import ClientDisconnect

from vectorforge.api.streaming.stream import ClientStream


class Connection:
    """An ASGI server whose ``send`` blocks until ``takes`` is set."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self.takes = asyncio.Event()
        self.takes.set()
        self.has_gone = False
        self.is_complete = False

    async def send(self, message: Any) -> None:
        if self.has_gone:
            raise OSError("the client has gone")
        await self.takes.wait()
        if message["type"] == "http.response.body":
            self.bodies.append(message["body"])
            self.is_complete = not message["more_body"]


def stream(connection: Connection, ping_interval_s: float = 60.0) -> ClientStream:
    return ClientStream(connection.send, [], ping_interval_s=ping_interval_s)


async def send_often(client: ClientStream) -> None:
    for _ in range(100):
        await client.send(b"x" * 1024)
        await asyncio.sleep(0)


async def test_events_sent_together_leave_in_one_message() -> None:
    connection = Connection()
    async with stream(connection) as client:
        for number in range(100):
            await client.send(b"%d;" % number)
        await asyncio.sleep(0.01)  # the writer of the events waits
        assert connection.bodies == [b"".join(b"%d;" % number for number in range(100))]
        await client.send(b"later;")
    assert b"".join(connection.bodies).endswith(b"99;later;")
    assert connection.is_complete


async def test_event_sent_at_once_is_flushed_with_earlier_events() -> None:
    connection = Connection()
    async with stream(connection) as client:
        await client.send(b"first;")
        await client.send(b"last;", at_once=True)
        assert connection.bodies == [b"first;last;"]


async def test_slow_client_blocks_sender() -> None:
    connection = Connection()
    async with stream(connection) as client:
        connection.takes.clear()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(send_often(client), 0.2)
        connection.takes.set()
    assert b"".join(connection.bodies) == b"x" * len(b"".join(connection.bodies))


async def test_idle_stream_sends_ping_comments() -> None:
    connection = Connection()
    async with stream(connection, ping_interval_s=0.05) as client:
        await client.send(b"data: 1\n\n")
        await asyncio.sleep(0.3)
    assert connection.bodies[0] == b"data: 1\n\n"
    assert connection.bodies[1].startswith(b":")


async def test_disconnected_client_ends_stream() -> None:
    connection = Connection()
    async with stream(connection) as client:
        connection.has_gone = True
        with pytest.raises(ClientDisconnect):
            await send_often(client)
        client.has_gone = True
