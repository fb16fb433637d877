"""The Lambda Runtime API (2018-06-01) on a socket of 127.0.0.1: the service's side of a runtime.

Rules and texts follow https://docs.aws.amazon.com/lambda/latest/dg/runtimes-api.html and AWS's emulator,
https://github.com/aws/aws-lambda-runtime-interface-emulator (internal/lambda/rapi).
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from infra.emulator.lambda_service.http_server import HttpServer, RequestHead, RequestReader
from infra.emulator.lambda_service.invocation import (
    FunctionError,
    Hook,
    HookPoint,
    Invocation,
)
from infra.emulator.lambda_service.runtime_replies import (
    ResponseReceiver,
    read_error,
    refuse,
    reply,
    reply_error,
    state_refusal,
)

_PREFIX = "/2018-06-01/runtime/"
_KNOWN_LIMIT = 256


class RuntimeApi(HttpServer):
    """Runtime API of one execution environment.

    Args:
        function_arn: Reported to the function as its invoked ARN.
        hooks: Callbacks awaited at the points of every invocation.
        buffered_limit: Bytes of a buffered response; more is 413.
        streaming_limit: Bytes of a streamed response; more is 413.
        concurrency: Concurrent events (multi-concurrent environments poll several times).
        snap_start: Serves the restore endpoints; without it they are 404, as on AWS.
    """

    def __init__(
        self,
        *,
        function_arn: str,
        hooks: Mapping[HookPoint, Hook],
        buffered_limit: int,
        streaming_limit: int,
        concurrency: int,
        snap_start: bool,
    ) -> None:
        super().__init__()
        self.init_error: FunctionError | None = None
        """Error of POST /init/error or /restore/error."""
        self.ready = asyncio.Event()
        """Set by the first GET /next, which ends the init phase."""
        self.restore_polled = asyncio.Event()
        """Set by GET /restore/next: this is where the snapshot is taken."""
        self.restored = asyncio.Event()
        """GET /restore/next waits for it; set unless a test clears it."""
        self.restored.set()
        self._arn = function_arn
        self._hooks = hooks
        self._receiver = ResponseReceiver(self._call, buffered_limit, streaming_limit)
        self.on_idle: Callable[[], None] | None = None
        """Called when a poll starts to wait: the environment is idle."""
        self._concurrency = concurrency
        self._snap_start = snap_start
        self._pending: deque[Invocation] = deque()
        self._pollers: deque[asyncio.Future[Invocation]] = deque()
        self._known: dict[str, Invocation] = {}
        self._current: Invocation | None = None

    def submit(self, invocation: Invocation) -> None:
        """Queue an invocation for the next poll."""
        while self._pollers:
            poller = self._pollers.popleft()
            if not poller.done():
                poller.set_result(invocation)
                return
        self._pending.append(invocation)

    def withdraw(self, invocation: Invocation) -> bool:
        """Withdraw an undispatched invocation. False: it was dispatched."""
        if invocation not in self._pending:
            return False
        self._pending.remove(invocation)
        return True

    def fail_outstanding(self, error: FunctionError) -> None:
        """Fail every dispatched invocation with ``error``."""
        for invocation in self._known.values():
            invocation.fail(error)
            invocation.completed.set()
        self._known.clear()

    async def exchange(self, head: RequestHead, reader: RequestReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request of the runtime."""
        path = head.target.removeprefix(_PREFIX) if head.target.startswith(_PREFIX) else ""
        match [head.method, *path.split("/")]:
            case ["GET", "invocation", "next"]:
                await self._next(reader, writer)
            case ["POST", "invocation", request_id, "response" | "error" as kind]:
                invocation = self._known.get(request_id)
                if invocation is None:
                    await refuse(reader, writer, 400, "InvalidRequestID", "Invalid request ID")
                else:
                    await self._receiver.receive(invocation, kind, head, reader, writer)
                    self._release(invocation)
            case ["POST", "init" | "restore" as phase, "error"] if phase == "init" or self._snap_start:
                self.init_error = await read_error(reader, head)
                reply(writer, 202)
            case ["GET", "restore", "next"] if self._snap_start:
                self.restore_polled.set()
                await self.restored.wait()
                reply(writer, 200)
            case _:
                await refuse(reader, writer, 404, "NotFound", "404 page not found")

    def _release(self, invocation: Invocation) -> None:
        """Complete an invocation by its answer with concurrent events; otherwise the next poll does."""
        if self._concurrency > 1 and invocation.ended.is_set():
            invocation.completed.set()
            if len(self._known) > _KNOWN_LIMIT:
                ended = [key for key, known in self._known.items() if known.completed.is_set()]
                for key in ended[: len(ended) // 2]:
                    del self._known[key]

    async def _next(self, reader: RequestReader, writer: asyncio.StreamWriter) -> None:
        self.ready.set()
        previous = self._current if self._concurrency == 1 else None
        if previous is not None and not previous.claimed:
            reply_error(writer, 403, "InvalidStateTransition", state_refusal("Running", "Ready"))
            return
        if previous is not None:
            await self._call("next_polled_again", previous)
            previous.completed.set()
            self._known.pop(previous.request_id, None)
            self._current = None
        invocation = await self._take(reader)
        if invocation is None:
            writer.transport.abort()
            return
        self._known[invocation.request_id] = self._current = invocation
        invocation.deadline_ms = int((time.time() + invocation.timeout_s) * 1000)
        await self._call("before_next_reply", invocation)
        reply(writer, 200, invocation.payload, _event_headers(invocation, self._arn))
        invocation.dispatched.set()
        await writer.drain()
        await self._call("after_next_reply", invocation)

    async def _take(self, reader: RequestReader) -> Invocation | None:
        """Return the next event, or None if the poller disconnected."""
        if self._pending:
            return self._pending.popleft()
        waiting: asyncio.Future[Invocation] = asyncio.get_running_loop().create_future()
        self._pollers.append(waiting)
        if self.on_idle is not None:
            self.on_idle()
        gone = asyncio.create_task(reader.disconnect())
        try:
            both: tuple[asyncio.Future[Any], ...] = (waiting, gone)
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            if not gone.done():
                return waiting.result()
            if waiting.done():
                self.submit(waiting.result())
            return None
        finally:
            waiting.cancel()
            gone.cancel()
            await asyncio.gather(gone, return_exceptions=True)

    async def _call(self, point: HookPoint, invocation: Invocation, data: bytes = b"") -> None:
        for hooks in (invocation.hooks, self._hooks):
            if (hook := hooks.get(point)) is not None:
                await hook(invocation, data)


def _event_headers(invocation: Invocation, arn: str) -> list[tuple[str, str]]:
    headers = {
        "Content-Type": "application/json",
        "Lambda-Runtime-Aws-Request-Id": invocation.request_id,
        "Lambda-Runtime-Deadline-Ms": str(invocation.deadline_ms),
        "Lambda-Runtime-Invoked-Function-Arn": invocation.function_arn or arn,
        "Lambda-Runtime-Trace-Id": invocation.trace_id,
        "Lambda-Runtime-Invocation-Id": invocation.invocation_id,
        "Lambda-Runtime-Client-Context": invocation.client_context,
        "Lambda-Runtime-Cognito-Identity": invocation.cognito_identity,
        "Lambda-Runtime-Aws-Tenant-Id": invocation.tenant_id,
    }
    return [(name, value) for name, value in headers.items() if value is not None]
