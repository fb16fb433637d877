"""An HTTP/1.1 server on 127.0.0.1 that passes every message to its subclass as it arrives."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Self

import h11

MAX_HEAD_BYTES = 2 * 1024 * 1024
"""Limit of request line and headers; awslambdaric sends up to 1 MiB of X-Ray cause in a header."""
_PIECE_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class RequestHead:
    """Request line and headers."""

    method: str
    target: str
    version: str
    headers: tuple[tuple[str, str], ...]
    """(name as sent, value), in order, repeated ones too."""

    def get(self, name: str, default: str = "") -> str:
        """Return a header's values joined with commas; names are case-insensitive."""
        values = [value for key, value in self.headers if key.lower() == name.lower()]
        return ", ".join(values) if values else default

    def lowercase(self) -> dict[str, str]:
        """Return headers by lower-case name; repeated ones are joined with commas."""
        return {name.lower(): self.get(name) for name, _ in self.headers}


class RequestReader:
    """Requests of one connection, one after the other; h11 parses them.

    A malformed message, or the end of the connection within one, raises ``h11.RemoteProtocolError``.

    Args:
        reader: Of the connection.
    """

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self._reader = reader
        self._parser = h11.Connection(h11.SERVER)

    async def head(self) -> RequestHead | None:
        """Return the next request, whose predecessor's body was read, or None after a regular close."""
        early, _ = self._parser.trailing_data
        self._parser = h11.Connection(h11.SERVER, max_incomplete_event_size=MAX_HEAD_BYTES)
        if early:
            self._parser.receive_data(early)
        request = await self._event()
        if not isinstance(request, h11.Request):
            return None
        method, target, version = (
            part.decode("latin-1") for part in (request.method, request.target, request.http_version)
        )
        headers = (
            (name.decode("latin-1"), value.decode("latin-1")) for name, value in request.headers.raw_items()
        )
        return RequestHead(method, target, f"HTTP/{version}", tuple(headers))

    async def body(self, trailers: dict[str, str]) -> AsyncIterator[bytes]:
        """Yield pieces of the request's body as they arrive: one for each chunk, or the available bytes.

        Args:
            trailers: Filled at the end of a chunked body, by lower-case name.
        """
        chunk, within_chunk = bytearray(), False
        while isinstance(event := await self._event(), h11.Data):
            chunk += event.data
            within_chunk = (within_chunk or event.chunk_start) and not event.chunk_end
            if not within_chunk or len(chunk) >= MAX_HEAD_BYTES:  # one chunk may announce any size
                yield bytes(chunk)
                chunk.clear()
        if isinstance(event, h11.EndOfMessage):
            trailers |= {name.decode(): value.decode("latin-1") for name, value in event.headers}

    async def disconnect(self) -> None:
        """Wait until the client disconnects, which sends nothing before it has a reply."""
        await self._reader.read(1)

    async def _event(self) -> object:
        while (event := self._parser.next_event()) is h11.NEED_DATA:
            self._parser.receive_data(await self._reader.read(_PIECE_BYTES))
        return event


def response_head(status: int, headers: Iterable[tuple[str, str]]) -> bytes:
    """Return status line and headers with the final empty line."""
    try:
        phrase = HTTPStatus(status).phrase
    except ValueError:  # a function may answer any number
        phrase = ""
    lines = [f"HTTP/1.1 {status} {phrase}", *(f"{name}: {value}" for name, value in headers)]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


class HttpServer(ABC):
    """Server that listens inside its context manager, with persistent connections.

    Args:
        port: 0 takes a free one.
    """

    def __init__(self, *, port: int = 0) -> None:
        self._port = port
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()

    @abstractmethod
    async def exchange(self, head: RequestHead, reader: RequestReader, writer: asyncio.StreamWriter) -> None:
        """Read one request's body and answer it. Close ``writer`` to refuse further requests."""

    @property
    def address(self) -> str:
        """``127.0.0.1:<port>``.

        Raises:
            RuntimeError: It is not listening.
        """
        if self._server is None:
            raise RuntimeError(f"{type(self).__name__} is not listening.")
        host, port = self._server.sockets[0].getsockname()[:2]
        return f"{host}:{port}"

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self._port, limit=MAX_HEAD_BYTES)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._server is None:
            return
        self._server.close()
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)
        await self._server.wait_closed()
        self._server = None

    async def drain(self, timeout_s: float) -> None:
        """Wait until every connection has ended, as those of a dead client do."""
        if self._connections:
            await asyncio.wait(set(self._connections), timeout=timeout_s)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - asyncio.start_server runs it in a task
        self._connections.add(task)
        try:
            await self._serve_requests(RequestReader(reader), writer)
            writer.close()
            await writer.wait_closed()
        except (ConnectionError, asyncio.CancelledError):  # the client is gone, or the server closes
            writer.transport.abort()
        finally:
            self._connections.discard(task)

    async def _serve_requests(self, reader: RequestReader, writer: asyncio.StreamWriter) -> None:
        try:
            while not writer.is_closing() and (head := await reader.head()) is not None:
                if "100-continue" in head.get("expect").lower():
                    writer.write(response_head(100, ()))
                await self.exchange(head, reader, writer)
                await writer.drain()
                if head.version == "HTTP/1.0" or "close" in head.get("connection").lower():
                    return
        except h11.RemoteProtocolError:
            writer.write(response_head(400, [("content-length", "0"), ("connection", "close")]))
