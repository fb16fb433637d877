"""What all front doors share: an HTTP/1.1 server that turns requests into invocations of one function."""

import asyncio
import json
from abc import abstractmethod
from collections.abc import AsyncIterator
from typing import Any, ClassVar, Literal, TypeAlias

from infra.emulator.lambda_service.function_configuration import Function, TooManyRequestsError
from infra.emulator.lambda_service.http_messages import (
    RequestHead,
    read_body,
    response_head,
)
from infra.emulator.lambda_service.http_server import HttpServer
from infra.emulator.lambda_service.invocation import Invocation
from infra.emulator.lambda_service.proxy_events import ProxyRequest
from infra.emulator.lambda_service.proxy_responses import (
    HttpAnswer,
    MalformedResponseError,
    read_answer,
    read_prelude,
)

ResponseMode: TypeAlias = Literal["stream", "buffered"]
_JSON = (("content-type", "application/json"),)
_DROPPED_BYTES = 16 * 1024 * 1024
_HOP_BY_HOP = {"connection", "content-length", "keep-alive", "transfer-encoding"}


class FrontDoor(HttpServer):
    """Listens on 127.0.0.1 while it is an entered context manager.

    A client that goes away does not stop the function: AWS documents that a stream is not interrupted.

    Args:
        function: Gets the events.
        response_mode: How the function is invoked; it must match how it answers.
        port: 0 takes a free one.
        timeout_s: Longest wait for the end of a buffered answer, or the begin of a streamed one.
    """

    request_limit: ClassVar[int]
    """Bytes of a request's body; more is 413."""
    failed: ClassVar[HttpAnswer]
    """When the function failed before its first byte, or answered nonsense."""
    throttled: ClassVar[HttpAnswer]
    """When the function's concurrency is used up."""
    timed_out: ClassVar[HttpAnswer]
    """When the function did not answer in time."""
    too_large: ClassVar[HttpAnswer] = HttpAnswer(413, _JSON, b'{"message":"Request Too Long"}')

    def __init__(
        self,
        function: Function,
        *,
        response_mode: ResponseMode,
        port: int = 0,
        timeout_s: float | None = None,
    ) -> None:
        super().__init__(port=port)
        self.function = function
        self.response_mode: ResponseMode = response_mode
        self._timeout_s = timeout_s

    @abstractmethod
    def event(self, request: ProxyRequest) -> dict[str, Any]:
        """The event of a request."""

    @property
    def url(self) -> str:
        """``http://127.0.0.1:<port>``, without a slash at its end.

        Raises:
            RuntimeError: It does not listen.
        """
        return f"http://{self.address}"

    async def exchange(
        self, head: RequestHead, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Invoke the function with one request and answer it."""
        body = await self._read(head, reader, writer)
        if body is None:
            return
        source_ip = str(writer.get_extra_info("peername")[0])
        request = ProxyRequest(head, body, source_ip)
        try:
            invocation = await self.function.invoke(self.event(request))
        except TooManyRequestsError:
            _send(writer, self.throttled, head)
        else:
            await self._answer(invocation, head, writer)
        await writer.drain()

    async def _read(
        self, head: RequestHead, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bytes | None:
        """The request's body; None when it was too long, which is answered here."""
        body = bytearray()
        total = 0
        async for piece in read_body(reader, head, {}):
            was_within = total <= self.request_limit
            total += len(piece)
            if total <= self.request_limit:
                body += piece
            elif was_within:
                _send(writer, self.too_large)
                await writer.drain()
            elif total > self.request_limit + _DROPPED_BYTES:
                break
        if total <= self.request_limit:
            return bytes(body)
        writer.close()  # the rest was read, or a client that is still sending would not see the answer
        return None

    async def _answer(self, invocation: Invocation, head: RequestHead, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(self._timeout_s):
                if self.response_mode == "buffered":
                    await invocation.ended.wait()
                    _send(writer, self._buffered(invocation), head)
                    return
                pieces = aiter(invocation)
                answer = await self._begin(invocation, pieces)
        except MalformedResponseError:
            _send(writer, self.failed, head)
        except TimeoutError:
            _send(writer, self.timed_out, head)
        else:
            await self._stream(invocation, answer, pieces, head, writer)

    def _buffered(self, invocation: Invocation) -> HttpAnswer:
        if invocation.error is not None:
            raise MalformedResponseError
        try:
            answer = json.loads(invocation.body)
        except ValueError:
            return self.not_json(invocation)
        return self.read_json(answer)

    def not_json(self, invocation: Invocation) -> HttpAnswer:
        """A buffered answer that is no JSON."""
        raise MalformedResponseError(f"Request {invocation.request_id} was not answered with JSON.")

    def read_json(self, answer: Any) -> HttpAnswer:
        """A buffered answer.

        Raises:
            MalformedResponseError: It is not in the format of this door.
        """
        return read_answer(answer)

    async def _begin(self, invocation: Invocation, pieces: AsyncIterator[bytes]) -> HttpAnswer:
        """Status and headers of a streamed answer."""
        return await read_prelude(invocation, pieces)

    async def _stream(
        self,
        invocation: Invocation,
        answer: HttpAnswer,
        pieces: AsyncIterator[bytes],
        head: RequestHead,
        writer: asyncio.StreamWriter,
    ) -> None:
        """Pass the body on as it comes; cut the connection when the function failed on the way."""
        has_body = head.method != "HEAD" and answer.status not in (204, 304)
        framing = [("transfer-encoding", "chunked")] if has_body else []
        headers = [pair for pair in answer.headers if pair[0].lower() not in _HOP_BY_HOP]
        writer.write(response_head(answer.status, [*headers, *framing]))
        if has_body and answer.body:
            writer.write(_chunk(answer.body))
        await writer.drain()
        async for piece in pieces:
            if has_body and piece:
                writer.write(_chunk(piece))
                await writer.drain()
        if invocation.error is not None:
            writer.transport.abort()
        elif has_body:
            writer.write(b"0\r\n\r\n")


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def _send(writer: asyncio.StreamWriter, answer: HttpAnswer, head: RequestHead | None = None) -> None:
    headers = [pair for pair in answer.headers if pair[0].lower() not in _HOP_BY_HOP]
    has_body = answer.status not in (204, 304)
    if has_body:
        headers.append(("content-length", str(len(answer.body))))
    writer.write(response_head(answer.status, headers))
    if has_body and (head is None or head.method != "HEAD"):
        writer.write(answer.body)
