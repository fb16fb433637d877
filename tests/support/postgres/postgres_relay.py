"""A relay for PostgreSQL connections that exposes the clients' messages."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

from tests.support.postgres.postgres_messages import (
    CANCEL_REQUEST,
    GSS_ENCRYPTION_REQUEST,
    SSL_REQUEST,
    Message,
    MessageReader,
    StartupPacket,
    own_key,
    read_startup,
    swapped_process,
)

MessageObserver: TypeAlias = Callable[[Message], None]
"""Called for each message of a connection, before its last byte is passed on."""
StartupObserver: TypeAlias = Callable[[StartupPacket], MessageObserver | None]
"""Called for each connection; returns None if its messages need not be read."""

_ENCRYPTION_REQUESTS = (SSL_REQUEST, GSS_ENCRYPTION_REQUEST)


class PostgresRelay:
    """Relays bytes between clients and servers on Unix sockets, unchanged, no faster than they are read.

    Only the process number of a cancellation key is another one, as behind any pooler.

    If one end closes or fails, the other is closed after the data in transit. Encryption is declined, as by a
    server without TLS, since encrypted data cannot be read. Belongs to one event loop.

    Args:
        opened: Sees the startup packet of each connection, a cancel request's too.
    """

    def __init__(self, opened: StartupObserver) -> None:
        self._opened = opened
        self._listeners: list[asyncio.Server] = []
        self._clients: set[_ClientEnd] = set()

    async def listen(self, path: Path, target: Path) -> None:
        """Accept connections at ``path``, each with one of its own to ``target``."""
        listener = await asyncio.get_running_loop().create_unix_server(
            lambda: _ClientEnd(target, self._opened, self._clients), str(path), backlog=1000
        )
        self._listeners.append(listener)

    async def close(self) -> None:
        """Stop listening and close all connections."""
        # asyncio loses a connection that it has accepted when the listener is closed before the task that
        # hands it over has run (an AssertionError in Server._attach)
        while beginning := asyncio.all_tasks() - {asyncio.current_task()}:
            await asyncio.wait(beginning)
        for listener in self._listeners:
            listener.close()
        await asyncio.gather(*[client.cut() for client in self._clients])


class _End(asyncio.Protocol):
    """One end of a relayed connection: data received here is sent at the other end."""

    other: "_End | None" = None

    def __init__(self) -> None:
        self.closed = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        if self.other is not None:
            self.other.transport.write(data)

    def pause_writing(self) -> None:
        if self.other is not None:
            self.other.transport.pause_reading()

    def resume_writing(self) -> None:
        if self.other is not None:
            self.other.transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed.set_result(None)
        if self.other is not None:
            self.other.transport.close()

    async def abort(self) -> None:
        self.transport.abort()
        await self.closed


class _ServerEnd(_End):
    def __init__(self, client: "_ClientEnd") -> None:
        super().__init__()
        self._client = client
        self._before_key: bytes | None = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.other, self._client.other = self._client, self
        if self._client.transport.is_closing():
            self.transport.close()
        else:
            self._client.transport.resume_reading()

    def data_received(self, data: bytes) -> None:
        if self._before_key is not None:
            data, self._before_key = own_key(self._before_key + data)
        super().data_received(data)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._before_key:
            super().data_received(self._before_key)
        super().connection_lost(exc)


class _ClientEnd(_End):
    def __init__(self, target: Path, opened: StartupObserver, clients: "set[_ClientEnd]") -> None:
        super().__init__()
        self._target = target
        self._opened = opened
        self._clients = clients
        self._head = b""
        self._started = False
        self._observer: MessageObserver | None = None
        self._reader = MessageReader()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._clients.add(self)
        self.transport.pause_reading()  # until the server is connected
        self._connecting = asyncio.create_task(self._connect())

    async def _connect(self) -> None:
        try:
            await asyncio.get_running_loop().create_unix_connection(
                lambda: _ServerEnd(self), str(self._target)
            )
        except OSError:
            self.transport.abort()

    def data_received(self, data: bytes) -> None:
        if not self._started:
            data = self._start(data)
        elif self._observer is not None:
            self._show(data)
        super().data_received(data)

    def eof_received(self) -> bool:
        if self.other is not None:
            self.other.transport.write_eof()
        return True  # the server's last messages may still arrive

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._clients.discard(self)

    async def cut(self) -> None:
        self._connecting.cancel()
        await self.abort()
        if self.other is not None:
            await self.other.abort()

    def _start(self, data: bytes) -> bytes:
        """Return the bytes to forward to the server; none before the startup packet is complete."""
        self._head += data
        try:
            packet = read_startup(self._head)
            while packet is not None and packet.code in _ENCRYPTION_REQUESTS:
                self.transport.write(b"N")
                self._head = self._head[packet.size :]
                packet = read_startup(self._head)
        except ValueError:
            self.transport.abort()
            return b""
        if packet is None:
            return b""
        self._started = True
        self._observer = self._opened(packet)
        if self._observer is not None:
            self._show(self._head[packet.size :])
        return swapped_process(self._head, 8) if packet.code == CANCEL_REQUEST else self._head

    def _show(self, data: bytes) -> None:
        assert self._observer is not None
        for message in self._reader.feed(data):
            self._observer(message)
