"""HTTP front doors of a function: servers that turn requests into invocations of it."""

import asyncio
import json
from abc import abstractmethod
from collections.abc import AsyncIterator
from typing import Any, ClassVar, Literal, TypeAlias

from infra.emulator.lambda_service.function_configuration import Function, TooManyRequestsError
from infra.emulator.lambda_service.http_server import (
    HttpServer,
    RequestHead,
    RequestReader,
    response_head,
)
from infra.emulator.lambda_service.invocation import Invocation
from infra.emulator.lambda_service.proxy_events import ProxyRequest, payload_2
from infra.emulator.lambda_service.proxy_responses import (
    STREAM_CONTENT_TYPE,
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

    A client that disconnects does not stop the function: AWS documents that a stream is not interrupted.

    Args:
        function: Receives the events.
        response_mode: Invocation mode; must match the function's.
        port: 0 takes a free one.
        timeout_s: Timeout of a buffered answer, or of the start of a streamed one.
    """

    request_limit: ClassVar[int]
    """Limit of a request's body in bytes; more is 413."""
    failed: ClassVar[HttpAnswer]
    """Answer if the function failed before its first byte, or sent a malformed answer."""
    throttled: ClassVar[HttpAnswer]
    """Answer if the function's concurrency is exhausted."""
    timed_out: ClassVar[HttpAnswer]
    """Answer if the function timed out."""
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
        """Return the event of a request."""

    @property
    def url(self) -> str:
        """``http://127.0.0.1:<port>``, without a slash at its end.

        Raises:
            RuntimeError: It is not listening.
        """
        return f"http://{self.address}"

    async def exchange(self, head: RequestHead, reader: RequestReader, writer: asyncio.StreamWriter) -> None:
        """Invoke the function with a request and send its answer."""
        body = await self._read(reader, writer)
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

    async def _read(self, reader: RequestReader, writer: asyncio.StreamWriter) -> bytes | None:
        """Return the request's body, or None after answering that it is too long."""
        body = bytearray()
        total = 0
        async for piece in reader.body({}):
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
        """Return the answer for a buffered response that is not JSON."""
        raise MalformedResponseError(f"Request {invocation.request_id} has an answer that is not JSON.")

    def read_json(self, answer: Any) -> HttpAnswer:
        """Return the answer of a buffered response.

        Raises:
            MalformedResponseError: The response does not have the format of this front door.
        """
        return read_answer(answer)

    async def _begin(self, invocation: Invocation, pieces: AsyncIterator[bytes]) -> HttpAnswer:
        """Return status and headers of a streamed answer."""
        return await read_prelude(invocation, pieces)

    async def _stream(
        self,
        invocation: Invocation,
        answer: HttpAnswer,
        pieces: AsyncIterator[bytes],
        head: RequestHead,
        writer: asyncio.StreamWriter,
    ) -> None:
        """Pass the body on as it arrives; cut the connection if the function fails."""
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


_OPAQUE = (("content-type", "application/octet-stream"),)


class FunctionUrl(FrontDoor):
    """A function URL: payload 2.0, buffered or streamed.

    An answer that is not in the proxy format is the body of a 200, even a prelude sent to a buffered URL:
    https://github.com/awslabs/aws-lambda-web-adapter/issues/476
    """

    request_limit = 6 * 1024 * 1024
    failed = HttpAnswer(502, (("content-type", "text/plain"),), b"Internal Server Error")
    throttled = HttpAnswer(429, _JSON, b'{"Message":"Rate Exceeded."}')
    timed_out = failed

    def __init__(self, function: Function, *, response_mode: ResponseMode = "stream", port: int = 0) -> None:
        super().__init__(function, response_mode=response_mode, port=port)

    def event(self, request: ProxyRequest) -> dict[str, Any]:
        """Return payload 2.0; ``authentication`` and ``authorizer`` are null without IAM."""
        event = payload_2(request)
        event["requestContext"] |= {"authentication": None, "authorizer": None}
        return event

    def not_json(self, invocation: Invocation) -> HttpAnswer:
        """Return the bytes unchanged."""
        return HttpAnswer(200, _OPAQUE, invocation.body)

    def read_json(self, answer: Any) -> HttpAnswer:
        """Return the answer; without a status the whole response is the body."""
        return infer_answer(answer)

    async def _begin(self, invocation: Invocation, pieces: AsyncIterator[bytes]) -> HttpAnswer:
        await invocation.opened.wait()
        if invocation.error is not None and not invocation.chunks:  # what came before a cut is passed on
            raise MalformedResponseError(invocation.error.error_type)
        if invocation.content_type != STREAM_CONTENT_TYPE:
            return HttpAnswer(200, _OPAQUE)
        return await super()._begin(invocation, pieces)


def infer_answer(answer: Any) -> HttpAnswer:
    """Apply payload 2.0's rule: an object with statusCode is an answer, all else a JSON body with 200."""
    if isinstance(answer, dict) and "statusCode" in answer:
        return read_answer(answer)
    body = answer if isinstance(answer, str) else json.dumps(answer)
    return HttpAnswer(200, _JSON, body.encode())
