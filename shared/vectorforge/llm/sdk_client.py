"""A vendor's SDK client: built on first use, off the event loop, one for each loop at most."""

import asyncio
import weakref
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class SDKClient(Generic[T]):
    """Holds a client whose connections belong to the event loop that runs.

    When another loop runs than before (another thread, or the next ``asyncio.run``), a new client is
    built: connections of a loop that is gone cannot be used and cannot be closed.
    """

    def __init__(self, build: Callable[[], T], close: Callable[[T], Awaitable[None]]) -> None:
        """Builds nothing yet.

        Args:
            build: Imports the SDK and makes the client; called in a thread, since an import takes up to
                a second.
            close: Closes the client's connections.
        """
        self._build = build
        self._close = close
        self._loop: weakref.ref[asyncio.AbstractEventLoop] | None = None
        self._building: asyncio.Future[T] | None = None

    async def get(self) -> T:
        """The client of the running loop."""
        loop = asyncio.get_running_loop()
        if self._building is None or self._loop is None or self._loop() is not loop:
            self._loop = weakref.ref(loop)
            self._building = loop.create_task(asyncio.to_thread(self._build))
        try:
            return await asyncio.shield(self._building)  # others wait for it too
        except Exception:
            self._building = None
            raise

    async def aclose(self) -> None:
        """Close the running loop's client, if there is one; ``get`` builds anew."""
        building, self._building = self._building, None
        if building is not None and self._loop is not None and self._loop() is asyncio.get_running_loop():
            await self._close(await building)
