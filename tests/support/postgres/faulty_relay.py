"""Relays between clients and a server on a Unix socket that fail as networks fail."""

import asyncio
import contextlib
from pathlib import Path
from typing import Self

_READ_BYTES = 65536


class FaultyRelay:
    """Relays bytes while it is an entered context manager; belongs to one event loop.

    Args:
        path: Path of its own socket.
        target: The server's socket.
    """

    def __init__(self, path: Path, target: Path) -> None:
        self._path = path
        self.target = target
        """The server's socket."""
        self._flows = asyncio.Event()
        self._flows.set()
        self._refuses = False
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._pumps: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._server = await self._listen()
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._server is not None:
            self._server.close()
        self.cut()
        for pump in tuple(self._pumps):
            pump.cancel()
        await asyncio.gather(*self._pumps, return_exceptions=True)

    def swallow(self) -> None:
        """Accept data and connections without answering, until ``heal``."""
        self._flows.clear()

    def refuse(self) -> None:
        """Close every connection, and new ones immediately, until ``heal``."""
        self._refuses = True
        self.cut()

    def cut(self) -> None:
        """Close every connection without notice; new ones are served."""
        for writer in tuple(self._writers):
            writer.transport.abort()

    def heal(self) -> None:
        """Serve new connections normally; swallowed data is lost with the old connections."""
        self._refuses = False
        self.cut()
        self._flows.set()

    async def _listen(self) -> asyncio.Server:
        return await asyncio.start_unix_server(self._serve, str(self._path), backlog=500)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._refuses:
            writer.transport.abort()
            return
        self._writers.add(writer)
        try:
            there, back = await asyncio.open_unix_connection(str(self.target))
        except OSError:
            writer.transport.abort()
            return
        finally:
            self._writers.discard(writer)
        ends = {writer, back}
        self._writers |= ends
        pumps = {
            asyncio.create_task(self._pump(reader, back)),
            asyncio.create_task(self._pump(there, writer)),
        }
        self._pumps |= pumps
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
            self._pumps -= pumps
            self._writers -= ends
            for end in ends:
                end.close()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(_READ_BYTES):
                await self._flows.wait()
                writer.write(data)
                await writer.drain()


class TcpRelay(FaultyRelay):
    """The same over TCP, where the kernel can drop packets (``packet_drops``).

    Args:
        host: Address that it listens at; the kernel chooses the port.
        target: The server's socket.
    """

    def __init__(self, host: str, target: Path) -> None:
        super().__init__(target, target)
        self.host = host
        """Address that it listens at."""
        self.port = 0
        """Set once it listens."""

    async def _listen(self) -> asyncio.Server:
        server = await asyncio.start_server(self._serve, self.host, 0, backlog=500)
        self.port = server.sockets[0].getsockname()[1]
        return server
