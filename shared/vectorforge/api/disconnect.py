"""Notices that the client has gone, and cancels what was being done for it."""

import asyncio
from contextlib import suppress
from types import TracebackType

from starlette.requests import ClientDisconnect
from starlette.types import Receive

_UNWATCHED_S = 0.05
"""An answer that comes sooner needs no task that looks for the client."""


async def disconnected(receive: Receive) -> None:
    """Wait until the client is gone; the request's own body must have been read."""
    while (await receive())["type"] != "http.disconnect":
        pass


class cancelled_on_disconnect:  # noqa: N801 - read as the statement that it makes with "async with"
    """Cancels the body when the client goes away; the request's own body must have been read.

    The task itself is cancelled once, as ``asyncio.timeout`` does, and not a scope that cancels again and
    again: what is being closed still has to await, for example to log that the query was aborted.

    Raises:
        ClientDisconnect: The client went away and the body was cancelled.
    """

    __slots__ = ("_gone", "_host", "_listener", "_receive", "_timer")

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._gone = False
        self._listener: asyncio.Task[None] | None = None

    async def __aenter__(self) -> None:
        host = asyncio.current_task()
        if host is None:
            raise RuntimeError("needs a running task")
        self._host = host
        self._timer = asyncio.get_running_loop().call_later(_UNWATCHED_S, self._start)

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        is_own = isinstance(exc, asyncio.CancelledError) and self._gone and self._host.uncancel() == 0
        self._timer.cancel()
        if self._listener is not None:
            self._listener.cancel()
            with suppress(asyncio.CancelledError):
                await self._listener
        if is_own:
            raise ClientDisconnect from None

    def _start(self) -> None:
        self._listener = asyncio.create_task(self._listen())

    async def _listen(self) -> None:
        await disconnected(self._receive)
        self._gone = True
        self._host.cancel()
