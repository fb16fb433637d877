"""Progress of a tool call as ``notifications/progress``: what a query has done so far.

https://modelcontextprotocol.io/specification/2025-11-25/basic/utilities/progress

Over stdio the package sends them. Over HTTP they are server-sent events of ours, since those of the package
leave a task behind that Lambda would freeze, and end when the server begins to shut down.
"""

import json
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from typing import Any, Final

from mcp.server.context import ServerRequestContext
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from vectorforge.api.streaming.stream import STREAM_HEADERS, ClientStream, cancelled_on_disconnect
from vectorforge.pipeline.step_types import StepEvent
from vectorforge.pipeline.types import DegradedEvent, MetaEvent, QueryEvent, SourcesEvent, TokenEvent

Notify = Callable[[dict[str, Any]], Awaitable[None]]

_INTERVAL_S: Final = 0.25
"""Shortest time between two reports of written text."""
_CHARS_PER_TOKEN: Final = 4
_SCOPE_KEY: Final = "vectorforge.mcp_notify"
_EVENT_STREAM: Final = "text/event-stream"


class Progress:
    """Reports the events of one query to a client that has sent a token."""

    def __init__(self, token: str | int, notify: Notify) -> None:
        self._token = token
        self._notify = notify
        self._events = 0
        self._chars = 0
        self._due = 0.0

    @classmethod
    def of_call(cls, context: ServerRequestContext[Any]) -> "Progress | None":
        """Return the progress of a call; None if its client requests or can read none."""
        token = (context.meta or {}).get("progress_token")
        if token is None:
            return None
        if context.request is not None:
            notify = context.request.scope.get(_SCOPE_KEY)
            return None if notify is None else cls(token, notify)

        async def over_stdio(params: dict[str, Any]) -> None:
            await context.session.report_progress(params["progress"], message=params["message"])

        return cls(token, over_stdio)

    async def observe(self, event: QueryEvent) -> None:
        """Report an event: the start, each step, the sources, a fallback, or tokens written so far."""
        match event:
            case MetaEvent():
                message = "Searching"
            case StepEvent(step=step):
                message = step.summary
            case SourcesEvent(retrieved_chunks=chunks):
                message = f"Passages found: {len(chunks)}"
            case DegradedEvent(step=step, reason=reason):
                message = f"Fallback: {step} ({reason})"
            case TokenEvent(text=text):
                self._chars += len(text)
                message = f"Tokens written: about {self._chars // _CHARS_PER_TOKEN}"
            case _:
                return
        self._events += 1
        if isinstance(event, TokenEvent):
            now = time.monotonic()
            if now < self._due:
                return
            self._due = now + _INTERVAL_S
        await self._notify({"progressToken": self._token, "progress": self._events, "message": message})


def may_report(accept: str, body: bytes) -> bool:
    """Return True if a message may ask for progress and its client reads event streams."""
    return b'"progressToken"' in body and _EVENT_STREAM in accept


class CallResponse(Response):
    """Response to a call: events from its first progress on, or one JSON document if it reports none.

    A disconnect cancels ``answer``, which returns the JSON document.
    """

    def __init__(self, answer: Callable[[], Awaitable[Response]]) -> None:
        super().__init__(media_type=_EVENT_STREAM, headers=STREAM_HEADERS)
        del self.headers["content-length"]
        self._answer = answer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the notifications while the call runs, and then its response."""
        client = ClientStream(send, self.raw_headers)
        has_begun = False
        with suppress(ClientDisconnect):
            async with cancelled_on_disconnect(receive), AsyncExitStack() as stack:

                async def notify(params: dict[str, Any]) -> None:
                    nonlocal has_begun
                    if not has_begun:
                        has_begun = True
                        await stack.enter_async_context(client)
                    message = {"jsonrpc": "2.0", "method": "notifications/progress", "params": params}
                    await client.send(_event(json.dumps(message).encode()))

                scope[_SCOPE_KEY] = notify
                response = await self._answer()
                if has_begun:
                    await client.send(_event(bytes(response.body)), at_once=True)
                else:
                    await response(scope, receive, send)


def _event(message: bytes) -> bytes:
    return b"event: message\ndata: " + message + b"\n\n"
