"""Notices that the client has gone, and cancels what was being done for it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from starlette.requests import ClientDisconnect
from starlette.types import Receive


async def disconnected(receive: Receive) -> None:
    """Wait until the client is gone; the request's own body must have been read."""
    while (await receive())["type"] != "http.disconnect":
        pass


@asynccontextmanager
async def cancelled_on_disconnect(receive: Receive) -> AsyncIterator[None]:
    """Cancel the body when the client goes away; the request's own body must have been read.

    The task itself is cancelled once, as ``asyncio.timeout`` does, and not a scope that cancels again and
    again: what is being closed still has to await, for example to log that the query was aborted.

    Raises:
        ClientDisconnect: The client went away and the body was cancelled.
    """
    host = asyncio.current_task()
    if host is None:
        raise RuntimeError("needs a running task")
    gone = False

    async def listen() -> None:
        nonlocal gone
        await disconnected(receive)
        gone = True
        host.cancel()

    listener = asyncio.create_task(listen())
    try:
        yield
    except asyncio.CancelledError:
        if gone and host.uncancel() == 0:
            raise ClientDisconnect from None
        raise
    finally:
        listener.cancel()
        with suppress(asyncio.CancelledError):
            await listener
