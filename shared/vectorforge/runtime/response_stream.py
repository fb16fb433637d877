"""Streamed HTTP response: metadata prelude, then a chunked POST to the Lambda Runtime API over asyncio.

The prelude is status, headers and cookies as JSON, then eight NUL bytes ("Lambda proxy integration format for
response streaming"). The Runtime API ("Response streaming") reads HTTP/1.1 chunks, whose boundaries carry no
meaning, and a failure after the first byte as two trailers. It responds after the last chunk; an earlier
response means that it stopped reading.

https://docs.aws.amazon.com/apigateway/latest/developerguide/response-transfer-mode-lambda.html
https://docs.aws.amazon.com/lambda/latest/dg/runtimes-custom.html
"""

import asyncio
import base64
import json
import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

from vectorforge.runtime.errors import ProtocolError, ResponseLostError

CONTENT_TYPE = "application/vnd.awslambda.http-integration-response"
DELIMITER = b"\0" * 8
MAX_PRELUDE_BYTES = 16 * 1024
"""API Gateway looks for the delimiter in the first 16 KB."""

_TOKEN = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")  # RFC 9110, 5.6.2
_FORBIDDEN_IN_VALUE = re.compile(rb"[\0\r\n]")  # RFC 9110, 5.5
_HOP_BY_HOP = {
    "connection",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
}


def prelude(status: object, headers: Iterable[tuple[bytes, bytes]], *, multi_value_headers: bool) -> bytes:
    """Return the bytes that precede the body.

    Args:
        status: HTTP status, 100 to 599.
        headers: ASGI header pairs. Hop-by-hop headers are omitted: the front door has its own connection.
        multi_value_headers: Put repeated headers under ``multiValueHeaders`` (payload 1.0) instead of joining
            their values with commas.

    Raises:
        ProtocolError: A header that would split the response, an invalid status, or more than 16 KB.
    """
    if not isinstance(status, int) or not 100 <= status <= 599:
        raise ProtocolError("The app's response status is not a number from 100 to 599.")
    values, cookies = _collect(headers)
    metadata: dict[str, Any] = {"statusCode": int(status)}
    if multi_value_headers:
        metadata["headers"] = {name: value[0] for name, value in values.items() if len(value) == 1}
        repeated = {name: value for name, value in values.items() if len(value) > 1}
        if repeated:
            metadata["multiValueHeaders"] = repeated
    else:
        metadata["headers"] = {name: ", ".join(value) for name, value in values.items()}
    if cookies:
        metadata["cookies"] = cookies
    # JSON escapes every control character, so that the delimiter cannot appear before its place.
    encoded = json.dumps(metadata, separators=(",", ":")).encode("ascii") + DELIMITER
    if len(encoded) > MAX_PRELUDE_BYTES:
        raise ProtocolError(f"The response's headers take more than {MAX_PRELUDE_BYTES} bytes.")
    return encoded


def _collect(headers: Iterable[tuple[bytes, bytes]]) -> tuple[dict[str, list[str]], list[str]]:
    """Header values by lower-case name, in the app's order, and the cookies apart."""
    values: dict[str, list[str]] = {}
    cookies: list[str] = []
    for raw_name, raw_value in headers:
        name, value = bytes(raw_name), bytes(raw_value)
        if not _TOKEN.fullmatch(name):
            raise ProtocolError("The name of a response header has characters that HTTP does not allow.")
        if _FORBIDDEN_IN_VALUE.search(value):
            raise ProtocolError(f"The response header {name.decode('ascii')!r} has a line break or a NUL.")
        key = name.decode("ascii").lower()
        if key == "set-cookie":
            cookies.append(_text(value))
        elif key not in _HOP_BY_HOP:
            values.setdefault(key, []).append(_text(value))
    return values, cookies


def _text(value: bytes) -> str:
    """Decode UTF-8, as Mangum does, else ISO 8859-1 (RFC 9110, 5.5)."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")


@dataclass
class StreamingInvocation:
    """Invocation whose response may be streamed."""

    runtime_api: str
    """``host:port`` of the Runtime API."""
    request_id: str
    invocation_id: str | None
    """Sent with the response, so that a late one is not attributed to another invocation."""
    answered: bool = False
    """True from the first byte of a response: nothing else may be posted."""


class StreamingClient(Protocol):
    """Runtime API client that supports a streamed response."""

    @property
    def invocation(self) -> StreamingInvocation | None:
        """Invocation returned by the last ``/next``; None before the first."""


_client: StreamingClient | None = None


def use_client(client: StreamingClient) -> None:
    """Set the client of this process."""
    global _client
    _client = client


def can_stream() -> bool:
    """Return True if the Runtime API client of this process can stream."""
    return _client is not None


def current_invocation() -> StreamingInvocation | None:
    """Return the current invocation, or None if there is none that can be streamed."""
    return None if _client is None else _client.invocation


PIECE_BYTES = 64 * 1024
"""A larger body message is written in pieces of this size, so that a slow reader bounds what is in memory."""
BUFFER_BYTES = 64 * 1024
"""Bytes buffered for the socket; a write beyond waits for the reader."""

_ERROR_TYPE = "Lambda-Runtime-Function-Error-Type"
_ERROR_BODY = "Lambda-Runtime-Function-Error-Body"
_MAX_ANSWER_BYTES = 64 * 1024


class ResponseStream:
    """The POST of one response: made by ``open``, ended by ``finish``, ``fail`` or ``abort``."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        invocation: StreamingInvocation,
        on_lost: Callable[[], None],
    ) -> None:
        self._writer = writer
        self._invocation = invocation
        self._head = _request_head(invocation)
        self._ended = False
        self._on_lost = on_lost
        writer.transport.set_write_buffer_limits(high=BUFFER_BYTES)
        # The answer is awaited from the start: an early one, or a lost connection, is noticed while the app
        # still waits for its next token.
        self._answer = asyncio.get_running_loop().create_task(_read_status(reader), name="runtime-api-answer")
        self._answer.add_done_callback(self._notice_answer)

    @classmethod
    async def open(cls, invocation: StreamingInvocation, on_lost: Callable[[], None]) -> "ResponseStream":
        """Connect to the Runtime API. Nothing is sent before the first :meth:`write`.

        Args:
            invocation: Whose response this is.
            on_lost: Called once if the service stops taking the response before it has ended.

        Raises:
            OSError: The Runtime API cannot be reached.
        """
        host, _, port = invocation.runtime_api.rpartition(":")
        reader, writer = await asyncio.open_connection(host.strip("[]"), int(port), limit=_MAX_ANSWER_BYTES)
        return cls(reader, writer, invocation, on_lost)

    async def write(self, data: bytes) -> None:
        """Send bytes; wait while more than ``BUFFER_BYTES`` are buffered.

        Raises:
            ResponseLostError: The service stopped reading the response.
        """
        for start in range(0, len(data), PIECE_BYTES):
            piece = data[start : start + PIECE_BYTES]
            await self._send(b"%x\r\n%b\r\n" % (len(piece), piece))

    async def finish(self) -> None:
        """End the response as complete.

        Raises:
            ResponseLostError: The service stopped reading the response.
        """
        await self._send(b"0\r\n\r\n", last=True)

    async def fail(self, error_type: str, message: str) -> None:
        """End the response as failed: the front door disconnects its client.

        Args:
            error_type: A class name; characters that do not belong in one are replaced.
            message: For the service's log. It must not be secret.

        Raises:
            ResponseLostError: The service stopped reading the response.
        """
        error_type = re.sub(r"[^A-Za-z0-9_.]", "_", error_type)
        error = {"errorType": error_type, "errorMessage": message, "stackTrace": []}
        body = base64.b64encode(json.dumps(error).encode()).decode()
        await self._send(
            f"0\r\n{_ERROR_TYPE}: {error_type}\r\n{_ERROR_BODY}: {body}\r\n\r\n".encode(), last=True
        )

    async def status(self) -> int | None:
        """Wait for the service's answer: an HTTP status (202: taken), None if the connection broke."""
        status = await asyncio.shield(self._answer)
        self._writer.close()
        with suppress(OSError):
            await self._writer.wait_closed()
        return status

    async def abort(self) -> None:
        """Drop the connection and all unsent bytes."""
        self._ended = True
        self._writer.transport.abort()
        await asyncio.wait({self._answer})

    async def _send(self, data: bytes, *, last: bool = False) -> None:
        if self._answer.done() or self._ended:
            raise ResponseLostError("The Lambda service stopped taking the response.")
        self._ended = last
        head, self._head = self._head, b""
        try:
            self._writer.write(head + data)
            if not self._writer.transport.is_closing():  # it is when the first bytes could not leave
                self._invocation.answered = True
            await self._writer.drain()
        except OSError as exc:
            self._ended = False
            raise ResponseLostError("The connection to the Lambda service broke.") from exc

    def _notice_answer(self, _answer: asyncio.Task[int | None]) -> None:
        if not self._ended or self._writer.transport.get_write_buffer_size():
            self._writer.transport.abort()  # wakes a write that waits for the reader
        if not self._ended:
            self._on_lost()


def _request_head(invocation: StreamingInvocation) -> bytes:
    lines = [
        f"POST /2018-06-01/runtime/invocation/{invocation.request_id}/response HTTP/1.1",
        f"Host: {invocation.runtime_api}",
        "User-Agent: asgi-streaming-runtime/1",
        f"Content-Type: {CONTENT_TYPE}",
        "Lambda-Runtime-Function-Response-Mode: streaming",
        "Transfer-Encoding: chunked",
        f"Trailer: {_ERROR_TYPE}, {_ERROR_BODY}",
    ]
    if invocation.invocation_id:
        lines.append(f"Lambda-Runtime-Invocation-Id: {invocation.invocation_id}")
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


async def _read_status(reader: asyncio.StreamReader) -> int | None:
    """The status of the service's answer; None if the connection ends without one."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
        return int(head.split(b" ", 2)[1])
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, OSError, ValueError, IndexError):
        return None
