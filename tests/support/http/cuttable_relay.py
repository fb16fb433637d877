"""A relay in front of a server whose connections a test can cut."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit


class CuttableRelay:
    """Relays bytes in both directions until ``cut``; later connections are relayed again."""

    def __init__(self) -> None:
        self.url = ""
        self._target = ("", 0)
        self._open: set[asyncio.StreamWriter] = set()

    def cut(self) -> None:
        """Reset every open connection."""
        for writer in self._open:
            writer.transport.abort()

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server_reader, server_writer = await asyncio.open_connection(*self._target)
        ends = {writer, server_writer}
        self._open |= ends
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(_pass_on(reader, server_writer))
                group.create_task(_pass_on(server_reader, writer))
        finally:
            self._open -= ends
            for end in ends:
                end.close()


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
        writer.close()
    except OSError:
        writer.close()


@asynccontextmanager
async def cuttable(url: str) -> AsyncIterator[CuttableRelay]:
    """Start a relay to this server."""
    relay, parts = CuttableRelay(), urlsplit(url)
    assert parts.hostname is not None
    assert parts.port is not None
    relay._target = (parts.hostname, parts.port)
    listener = await asyncio.start_server(relay._relay, "127.0.0.1", 0)
    host, port = listener.sockets[0].getsockname()[:2]
    relay.url = f"http://{host}:{port}"
    async with listener:
        yield relay
        relay.cut()
