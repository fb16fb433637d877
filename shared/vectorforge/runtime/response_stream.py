"""One streamed response: a chunked POST to the Lambda Runtime API over asyncio streams.

The Runtime API (https://docs.aws.amazon.com/lambda/latest/dg/runtimes-custom.html, "Response streaming")
reads HTTP/1.1 chunks whose boundaries carry no meaning, and takes a failure after the first byte as two
trailers. Its answer normally comes after the last chunk; one that comes earlier means that it stopped
reading.
"""

import asyncio
import base64
import json
import re
from collections.abc import Callable
from contextlib import suppress

from vectorforge.runtime.invocation import Invocation, ResponseLostError
from vectorforge.runtime.prelude import CONTENT_TYPE

PIECE_BYTES = 64 * 1024
"""A larger body message is written in pieces of this size, so that a slow reader bounds what is in memory."""
BUFFER_BYTES = 64 * 1024
"""What may wait in the process for the socket; a write beyond it waits for the reader."""

_ERROR_TYPE = "Lambda-Runtime-Function-Error-Type"
_ERROR_BODY = "Lambda-Runtime-Function-Error-Body"
_USER_AGENT = "asgi-streaming-runtime/1"
_MAX_ANSWER_BYTES = 64 * 1024


class ResponseStream:
    """The POST of one response: made by ``open``, ended by ``finish``, ``fail`` or ``abort``."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        invocation: Invocation,
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
    async def open(cls, invocation: Invocation, on_lost: Callable[[], None]) -> "ResponseStream":
        """Connect to the Runtime API. Nothing is sent before the first :meth:`write`.

        Args:
            invocation: Whose response this is.
            on_lost: Called once if the service stops taking the response before it has ended.

        Raises:
            OSError: The Runtime API cannot be reached.
        """
        host, _, port = invocation.runtime_api.rpartition(":")
        limit = _MAX_ANSWER_BYTES
        reader, writer = await asyncio.open_connection(host.strip("[]"), int(port), limit=limit)
        return cls(reader, writer, invocation, on_lost)

    @property
    def lost(self) -> bool:
        """Whether the service stopped taking the response before it had ended."""
        return self._answer.done() and not self._ended

    async def write(self, data: bytes) -> None:
        """Send bytes; waits while more than ``BUFFER_BYTES`` are on their way.

        Raises:
            ResponseLostError: The service no longer takes the response.
        """
        for start in range(0, len(data), PIECE_BYTES):
            piece = data[start : start + PIECE_BYTES]
            await self._send(b"%x\r\n%b\r\n" % (len(piece), piece))

    async def finish(self) -> None:
        """End the response as complete.

        Raises:
            ResponseLostError: The service no longer takes the response.
        """
        await self._send(b"0\r\n\r\n", last=True)

    async def fail(self, error_type: str, message: str) -> None:
        """End the response as failed: the front door cuts its client off.

        Args:
            error_type: A class name; characters that do not belong in one are replaced.
            message: For the service's log. It must not be secret.

        Raises:
            ResponseLostError: The service no longer takes the response.
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
        """Drop the connection, whatever is still unsent."""
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


def _request_head(invocation: Invocation) -> bytes:
    lines = [
        f"POST /2018-06-01/runtime/invocation/{invocation.request_id}/response HTTP/1.1",
        f"Host: {invocation.runtime_api}",
        f"User-Agent: {_USER_AGENT}",
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
