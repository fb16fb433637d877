"""An HTTP/1.1 server on 127.0.0.1 (RFC 9112) that passes every message to its subclass as it arrives."""

import asyncio
import re
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Self

_CHUNK_SIZE = re.compile("[0-9A-Fa-f]{1,15}")
MAX_HEAD_BYTES = 2 * 1024 * 1024
"""Limit of request line and headers; awslambdaric sends up to 1 MiB of X-Ray cause in a header."""
_PIECE_BYTES = 64 * 1024


class MalformedMessageError(Exception):
    """The message is not HTTP/1.1."""


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

    @property
    def is_chunked(self) -> bool:
        """True if the body is chunked."""
        return self.get("transfer-encoding").lower().endswith("chunked")


async def read_head(reader: asyncio.StreamReader) -> RequestHead | None:
    """Return the next request on a connection, or None after a regular close.

    Raises:
        MalformedMessageError: It is not HTTP/1.1, or longer than the reader's limit.
        IncompleteReadError: The connection ended within the head.
    """
    try:
        raw = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError as exc:
        if exc.partial:
            raise
        return None
    except asyncio.LimitOverrunError as exc:
        raise MalformedMessageError("The head is too long.") from exc
    request_line, *lines = raw.decode("latin-1").rstrip("\r\n").split("\r\n")
    parts = request_line.split(" ")
    if len(parts) != 3 or not parts[2].startswith("HTTP/1."):
        raise MalformedMessageError("The request line is malformed.")
    return RequestHead(parts[0], parts[1], parts[2], tuple(_header(line) for line in lines))


def _header(line: str) -> tuple[str, str]:
    name, colon, value = line.partition(":")
    if not colon or not name.strip():
        raise MalformedMessageError("A header line is malformed.")
    return name.strip(), value.strip()


async def read_body(
    reader: asyncio.StreamReader, head: RequestHead, trailers: dict[str, str]
) -> AsyncIterator[bytes]:
    """Yield pieces of a request's body as they arrive: one for each chunk, or the available bytes.

    Args:
        reader: Stands behind the head.
        head: Says how the body is framed.
        trailers: Filled at the end of a chunked body, by lower-case name.

    Raises:
        MalformedMessageError: The framing is broken.
        IncompleteReadError: The connection ended within the body.
    """
    if head.is_chunked:
        async for piece in _chunks(reader, trailers):
            yield piece
        return
    length = head.get("content-length", "0")
    if not length.isdecimal():
        raise MalformedMessageError("The content length is no number.")
    left = int(length)
    while left:
        piece = await reader.read(min(left, _PIECE_BYTES))
        if not piece:
            raise asyncio.IncompleteReadError(b"", left)
        left -= len(piece)
        yield piece


async def _chunks(reader: asyncio.StreamReader, trailers: dict[str, str]) -> AsyncIterator[bytes]:
    while True:
        line = await _line(reader)
        digits = line.split(";", 1)[0].rstrip(" \t")
        if not _CHUNK_SIZE.fullmatch(digits):  # int() takes signs and underscores, too
            raise MalformedMessageError("A chunk's size is no number.")
        size = int(digits, 16)
        if size == 0:
            break
        for start in range(0, size, MAX_HEAD_BYTES):  # one chunk may announce any size
            yield await reader.readexactly(min(MAX_HEAD_BYTES, size - start))
        if await reader.readexactly(2) != b"\r\n":
            raise MalformedMessageError("A chunk is longer than its size.")
    while line := await _line(reader):
        name, value = _header(line)
        trailers[name.lower()] = value


async def _line(reader: asyncio.StreamReader) -> str:
    try:
        line = await reader.readuntil(b"\r\n")
    except asyncio.LimitOverrunError as exc:
        raise MalformedMessageError("A line is too long.") from exc
    return line[:-2].decode("latin-1")


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
    async def exchange(
        self, head: RequestHead, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
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
            await self._serve_requests(reader, writer)
            writer.close()
            await writer.wait_closed()
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.transport.abort()  # the client is gone
        except asyncio.CancelledError:
            writer.transport.abort()  # the server closes
        finally:
            self._connections.discard(task)

    async def _serve_requests(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while not writer.is_closing() and (head := await read_head(reader)) is not None:
                if "100-continue" in head.get("expect").lower():
                    writer.write(response_head(100, ()))
                await self.exchange(head, reader, writer)
                await writer.drain()
                if head.version == "HTTP/1.0" or "close" in head.get("connection").lower():
                    return
        except MalformedMessageError:
            writer.write(response_head(400, [("content-length", "0"), ("connection", "close")]))
