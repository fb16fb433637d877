"""One invocation of a function: its event and its response."""

import asyncio
import base64
import binascii
import json
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, TypedDict

HookPoint: TypeAlias = Literal[
    "before_next_reply",  # the event is chosen, not yet written to the runtime's socket
    "after_next_reply",  # written
    "response_opened",  # the head of POST /response has been read
    "chunk",  # a piece of the body has been passed on to the caller
    "before_response_reply",  # the response is complete for the caller; the runtime has no answer yet
    "after_response",  # the runtime has its 202
    "error_reported",  # POST /error has been read and answered
    "next_polled_again",  # the runtime polls for the next event: the invocation is over
]
"""Points at which the service awaits a callback, in the order of an invocation."""


@dataclass(frozen=True, slots=True)
class FunctionError:
    """Failure of an invocation."""

    error_type: str
    """AWS's name: ``Runtime.ExitError``, ``Sandbox.Timedout``, or the exception's class."""
    payload: bytes
    """Payload for the caller of Invoke: JSON with errorMessage and errorType, or empty."""

    @classmethod
    def of(cls, error_type: str, message: str) -> "FunctionError":
        """Return an error raised by the service."""
        payload = json.dumps({"errorType": error_type, "errorMessage": message}).encode()
        return cls(error_type, payload)

    @property
    def message(self) -> str:
        """``errorMessage`` of the payload, or empty."""
        try:
            body = json.loads(self.payload)
        except ValueError:
            return ""
        return str(body.get("errorMessage", "")) if isinstance(body, dict) else ""


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of a response's body."""

    at: float
    """``time.monotonic()`` of its arrival, seconds."""
    data: bytes


@dataclass(eq=False, slots=True)
class Invocation:
    """An invocation; async iteration yields the pieces of its response's body, for any number of readers."""

    payload: bytes
    """The event, encoded."""
    timeout_s: float
    """Timeout from the dispatch of the event."""
    request_id: str = field(default_factory=lambda: str(uuid.uuid4()))
    trace_id: str = field(default_factory=lambda: _new_trace_id())
    """X-Ray header: ``Root=1-...;Parent=...;Sampled=...``."""
    client_context: str | None = None
    """JSON, as an SDK's ClientContext."""
    cognito_identity: str | None = None
    """JSON with cognitoIdentityId and cognitoIdentityPoolId."""
    tenant_id: str | None = None
    function_arn: str | None = None
    """Invoked ARN; None: the unqualified ARN of the function."""
    abort_after: int | None = None
    """The service cuts the runtime's connection when it has this many bytes of the response."""
    hooks: "Mapping[HookPoint, Hook]" = field(default_factory=dict)
    """Called before those of the Runtime API."""
    invocation_id: str = field(default_factory=lambda: uuid.uuid4().hex)
    """Id of each delivery of an event, echoed by the runtime."""

    deadline_ms: int | None = None
    """Epoch milliseconds; set when the event is handed out."""
    request_headers: dict[str, str] = field(default_factory=dict)
    """Headers of POST /response or /error by lower-case name."""
    chunks: list[Chunk] = field(default_factory=list)
    trailers: dict[str, str] = field(default_factory=dict)
    """Trailers by lower-case name."""
    error: FunctionError | None = None
    reply_status: int | None = None
    """Status sent to the runtime's POST."""
    claimed: bool = False
    """True once a POST has started to answer it; further ones are refused."""
    dispatched: asyncio.Event = field(default_factory=asyncio.Event)
    """The event is with the runtime."""
    opened: asyncio.Event = field(default_factory=asyncio.Event)
    """The response's head is known, or it failed."""
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    """The response is complete for the caller, or failed."""
    completed: asyncio.Event = field(default_factory=asyncio.Event)
    """The environment is free again: the runtime polled for the next event, or died."""
    _arrival: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def body(self) -> bytes:
        """Bytes of the response so far."""
        return b"".join(chunk.data for chunk in self.chunks)

    @property
    def content_type(self) -> str:
        """Content type of the response, or empty."""
        return self.request_headers.get("content-type", "")

    @property
    def is_streamed(self) -> bool:
        """True if the runtime uses the streaming response mode."""
        return self.request_headers.get("lambda-runtime-function-response-mode") == "streaming"

    async def result(self) -> Any:
        """Wait for the end and read the response as JSON.

        Raises:
            FunctionFailedError: The function failed.
            ValueError: The response is not JSON.
        """
        await self.ended.wait()
        if self.error is not None:
            raise FunctionFailedError(self.error)
        return json.loads(self.body)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        read = 0
        while True:
            arrival = self._arrival
            if read < len(self.chunks):
                yield self.chunks[read].data
                read += 1
            elif self.ended.is_set():
                return
            else:
                await arrival.wait()

    def add(self, data: bytes) -> None:
        """Add a piece of the response."""
        self.chunks.append(Chunk(time.monotonic(), data))
        self._wake()

    def finish(self) -> None:
        """Complete the response; an error in its trailers becomes the invocation's."""
        error_type = self.trailers.get("lambda-runtime-function-error-type")
        if error_type and self.error is None:
            encoded = self.trailers.get("lambda-runtime-function-error-body", "")
            try:
                payload = base64.b64decode(encoded, validate=True)
            except binascii.Error:
                payload = encoded.encode("latin-1")
            self.error = FunctionError(error_type, payload)
        self._end()

    def fail(self, error: FunctionError) -> None:
        """Fail the invocation, unless it has ended."""
        if not self.ended.is_set():
            self.error = error
            self._end()

    def expire(self) -> None:
        """Replace the delivery id, as when the event is delivered again: the old one is stale (410)."""
        self.invocation_id = uuid.uuid4().hex

    def _end(self) -> None:
        self.claimed = True
        self.opened.set()
        self.ended.set()
        self._wake()

    def _wake(self) -> None:
        arrival, self._arrival = self._arrival, asyncio.Event()
        arrival.set()


class FunctionFailedError(Exception):
    """An invocation ended with an error.

    Args:
        error: Cause.
    """

    def __init__(self, error: FunctionError) -> None:
        super().__init__(f"{error.error_type}: {error.message}")
        self.error = error


Hook: TypeAlias = Callable[[Invocation, bytes], Awaitable[None]]
"""Callback with the invocation and, at ``chunk``, the piece of the body."""


class InvocationOptions(TypedDict, total=False):
    """Options of an event; see ``Invocation``."""

    request_id: str
    trace_id: str
    function_arn: str | None
    client_context: str | None
    cognito_identity: str | None
    tenant_id: str | None
    abort_after: int | None
    hooks: Mapping[HookPoint, Hook]


def _new_trace_id() -> str:
    digits = uuid.uuid4().hex + uuid.uuid4().hex
    return f"Root=1-{int(time.time()):08x}-{digits[:24]};Parent={digits[24:40]};Sampled=1"
