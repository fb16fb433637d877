"""POST /response and /error of the Runtime API, and its replies."""

import asyncio
import json
from collections.abc import Awaitable, Iterable
from typing import Literal, Protocol

import h11

from infra.emulator.lambda_service.http_server import RequestHead, RequestReader, response_head
from infra.emulator.lambda_service.invocation import FunctionError, HookPoint, Invocation

BUFFERED_LIMIT_BYTES = 6 * 1024 * 1024 + 100
"""Limit of a buffered response: 6 MB and room for wrapping (MaxPayloadSize in AWS's emulator)."""
STREAMING_LIMIT_BYTES = 200 * 1024 * 1024
"""Limit of a streamed response: https://docs.aws.amazon.com/lambda/latest/dg/configuration-response-streaming.html"""
_DRAIN_LIMIT_BYTES = 16 * 1024 * 1024
_ERROR_LIMIT_BYTES = 6 * 1024 * 1024


class _Call(Protocol):
    def __call__(self, point: HookPoint, invocation: Invocation, data: bytes = b"") -> Awaitable[None]: ...


class ResponseReceiver:
    """Receiver of a runtime's responses and errors.

    Args:
        call: Calls the hook of a point.
        buffered_limit: Bytes.
        streaming_limit: Bytes.
    """

    def __init__(self, call: _Call, buffered_limit: int, streaming_limit: int) -> None:
        self._call = call
        self._buffered_limit = buffered_limit
        self._streaming_limit = streaming_limit

    async def receive(
        self,
        invocation: Invocation,
        kind: Literal["response", "error"],
        head: RequestHead,
        reader: RequestReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        """Read one POST for a known request id and reply to it."""
        echoed = head.get("lambda-runtime-invocation-id")
        if echoed and echoed != invocation.invocation_id:
            text = "The invocation id is stale: the event was delivered again."
            await refuse(reader, writer, 410, "InvocationIdExpired", text)
            return
        if invocation.claimed:
            text = state_refusal("Ready", _STATES[kind])
            await refuse(reader, writer, 403, "InvalidStateTransition", text)
            return
        invocation.claimed = True
        invocation.request_headers = head.lowercase()
        if kind == "error":
            await self._receive_error(invocation, head, reader, writer)
        else:
            await self._receive_response(invocation, head, reader, writer)

    async def _receive_error(
        self,
        invocation: Invocation,
        head: RequestHead,
        reader: RequestReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        invocation.fail(await read_error(reader, head))
        self._reply(invocation, writer, 202)
        await writer.drain()
        await self._call("error_reported", invocation)

    async def _receive_response(
        self,
        invocation: Invocation,
        head: RequestHead,
        reader: RequestReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        mode = head.get("lambda-runtime-function-response-mode")
        if mode not in ("", "streaming"):
            invocation.fail(FunctionError("Runtime.InvalidResponseModeHeader", b""))
            invocation.reply_status = 400
            text = "Invalid function response mode"
            await refuse(reader, writer, 400, "InvalidFunctionResponseMode", text)
            return
        invocation.opened.set()
        await self._call("response_opened", invocation)
        limit = self._streaming_limit if mode else self._buffered_limit
        try:
            within_limit = await self._copy(invocation, reader, limit)
        except (ConnectionError, h11.RemoteProtocolError):
            invocation.fail(_TRUNCATED)
            raise
        if within_limit is None:
            invocation.fail(_TRUNCATED)
            writer.transport.abort()
        elif within_limit:
            invocation.finish()
            await self._call("before_response_reply", invocation)
            self._reply(invocation, writer, 202)
            await writer.drain()
            await self._call("after_response", invocation)
        else:
            text = f"Response payload size exceeded maximum allowed payload size ({limit} bytes)."
            invocation.fail(FunctionError.of("Function.ResponseSizeTooLarge", text))
            invocation.reply_status = 413
            text = f"Exceeded maximum allowed payload size ({limit} bytes)."
            await refuse(reader, writer, 413, "RequestEntityTooLarge", text)

    async def _copy(self, invocation: Invocation, reader: RequestReader, limit: int) -> bool | None:
        """Copy the body. False: it exceeds ``limit``; None: ``abort_after`` is reached."""
        total = 0
        async for piece in reader.body(invocation.trailers):
            total += len(piece)
            if total > limit:
                return False
            invocation.add(piece)
            await self._call("chunk", invocation, piece)
            if invocation.abort_after is not None and total >= invocation.abort_after:
                return None
        return True

    def _reply(self, invocation: Invocation, writer: asyncio.StreamWriter, status: int) -> None:
        invocation.reply_status = status
        reply(writer, status)


_STATES = {"response": "RuntimeInvocationResponse", "error": "RuntimeInvocationErrorResponse"}
_TRUNCATED = FunctionError.of("Runtime.TruncatedResponse", "The response ended before its end.")


def state_refusal(state: str, wanted: str) -> str:
    """Return the text of a 403 InvalidStateTransition."""
    transition = f"State transition from {state} to {wanted} failed for runtime"
    return f"{transition}. Error: State transition is not allowed"


async def read_error(reader: RequestReader, head: RequestHead) -> FunctionError:
    """Read the error that a runtime reports: its type from the header, its body unchanged.

    Raises:
        h11.RemoteProtocolError: The framing is broken, or the body is over 6 MB.
    """
    body = bytearray()
    async for piece in reader.body({}):
        body += piece
        if len(body) > _ERROR_LIMIT_BYTES:
            raise h11.RemoteProtocolError("The error is over 6 MB.")
    named = head.get("lambda-runtime-function-error-type")  # awslambdaric names it in the body only
    return FunctionError(named or _error_type(body), bytes(body))


def _error_type(body: bytes | bytearray) -> str:
    try:
        named = json.loads(body)["errorType"]
    except (ValueError, TypeError, KeyError):
        named = None
    return named if isinstance(named, str) and named else "Runtime.UnknownReason"


def reply(
    writer: asyncio.StreamWriter,
    status: int,
    body: bytes = b'{"status":"OK"}\n',
    headers: Iterable[tuple[str, str]] = (("Content-Type", "application/json"),),
) -> None:
    """Write a response with a length."""
    writer.write(response_head(status, [("Content-Length", str(len(body))), *headers]) + body)


def reply_error(writer: asyncio.StreamWriter, status: int, error_type: str, text: str) -> None:
    """Write an error in the format of the Runtime API."""
    body = json.dumps({"errorMessage": text, "errorType": error_type}).encode()
    reply(writer, status, body)


async def refuse(
    reader: RequestReader, writer: asyncio.StreamWriter, status: int, error_type: str, text: str
) -> None:
    """Reply before the body has been read, so that a streaming runtime sees it at once.

    The rest of the body is read and dropped: closing with unread bytes would reset the connection, and the
    runtime might never see the answer.
    """
    body = json.dumps({"errorMessage": text, "errorType": error_type}).encode()
    headers = [("Content-Type", "application/json"), ("Connection", "close")]
    reply(writer, status, body, headers)
    await writer.drain()
    dropped = 0
    async for piece in reader.body({}):
        dropped += len(piece)
        if dropped > _DRAIN_LIMIT_BYTES:
            break
    writer.close()
