"""HTTP/1.1 messages on asyncio streams, as much of it as the Lambda service speaks (RFC 9112).

A general web framework hides what has to be seen here: when each chunk arrives, trailers, a body that is
answered before it ends, a connection that is cut in the middle.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass
from http import HTTPStatus

_CHUNK_SIZE = re.compile("[0-9A-Fa-f]{1,15}")
MAX_HEAD_BYTES = 2 * 1024 * 1024
"""Of one request's line and headers; awslambdaric sends up to 1 MiB of X-Ray cause in a header."""
_PIECE_BYTES = 64 * 1024


class MalformedMessageError(Exception):
    """What arrived is not HTTP/1.1."""


@dataclass(frozen=True, slots=True)
class RequestHead:
    """Request line and headers."""

    method: str
    target: str
    version: str
    headers: tuple[tuple[str, str], ...]
    """(name as sent, value), in order, repeated ones too."""

    def get(self, name: str, default: str = "") -> str:
        """A header's values joined with a comma, by its name in any case."""
        values = [value for key, value in self.headers if key.lower() == name.lower()]
        return ", ".join(values) if values else default

    def lowercase(self) -> dict[str, str]:
        """Headers by lower-case name; repeated ones joined with a comma."""
        return {name.lower(): self.get(name) for name, _ in self.headers}

    @property
    def is_chunked(self) -> bool:
        """Whether the body comes in chunks."""
        return self.get("transfer-encoding").lower().endswith("chunked")


async def read_head(reader: asyncio.StreamReader) -> RequestHead | None:
    """The next request on a connection; None when it was closed in good order.

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
    """Pieces of a request's body as they arrive: one for each chunk, or what there is of a sized body.

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
    """Status line and headers, ended by the empty line."""
    try:
        phrase = HTTPStatus(status).phrase
    except ValueError:  # a function may answer any number
        phrase = ""
    lines = [f"HTTP/1.1 {status} {phrase}", *(f"{name}: {value}" for name, value in headers)]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()
