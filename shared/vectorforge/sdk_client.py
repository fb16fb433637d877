"""A vendor's SDK client: built on first use, off the event loop, and anew when its key is exchanged."""

import asyncio
import weakref
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Generic, TypeVar

from pydantic import SecretStr

from vectorforge.credentials import Credentials

T = TypeVar("T")
R = TypeVar("R")

_REMEMBERED_KEYS = 3
"""An answer that began with an old key may fail after its exchange, and the error quote that key."""


class SDKClient(Generic[T]):
    """Holds a client with one key, whose connections belong to the event loop that runs.

    When another loop runs than before (another thread, or the next ``asyncio.run``), a new client is
    built: connections of a loop that is gone cannot be used and cannot be closed. When the key is another
    one than before, a new client is built too, and the old one is closed once its last answer has ended.
    """

    def __init__(
        self,
        credentials: Credentials,
        build: Callable[[SecretStr], T],
        close: Callable[[T], Awaitable[None]],
        *,
        is_refusal: Callable[[Exception], bool],
    ) -> None:
        """Builds nothing yet.

        Args:
            credentials: The key.
            build: Imports the SDK and makes the client for a key; called in a thread, since an import
                takes up to a second.
            close: Closes the client's connections.
            is_refusal: Whether an exception of the SDK says that the vendor refused the key.
        """
        self._credentials = credentials
        self._build = build
        self._close = close
        self._is_refusal = is_refusal
        self._generation: _Generation[T] | None = None
        self._keys: deque[SecretStr] = deque(maxlen=_REMEMBERED_KEYS)

    async def send(self, stack: AsyncExitStack, request: Callable[[T, AsyncExitStack], Awaitable[R]]) -> R:
        """Send a request, once more when the vendor refuses the key and there is a new one.

        Args:
            stack: Keeps the client, and what ``request`` enters, until it is closed: after the answer.
            request: Sends it with a client; may enter contexts, such as the response's, into its stack.

        Raises:
            Exception: What ``request`` raised.
        """
        key = await self._credentials.current()
        try:
            return await self._send(key, stack, request)
        except Exception as exc:
            if not self._is_refusal(exc):
                raise
            refusal = exc
        # Not within the except: errors from here on would carry the refusal, which may quote the key.
        other = await self._credentials.refresh(key)
        if other == key:
            raise refusal
        return await self._send(other, stack, request)

    async def preload(self) -> None:
        """Import the SDK and build the client ahead of the first request; connects to no vendor."""
        async with self._borrowed(await self._credentials.current()):
            pass

    async def aclose(self) -> None:
        """Close the running loop's client, if there is one; ``send`` builds anew."""
        generation, self._generation = self._generation, None
        if generation is not None:
            generation.users = 0  # the answers on their way end here
            await self._close_unused(generation)

    def without_key(self, exc: Exception) -> Exception:
        """The exception itself, or, when its text holds a key, one with the same text less the key.

        Vendors quote the key they refuse; a traceback in a log would show it.
        """
        text = f"{type(exc).__name__}: {exc}"
        written = text + repr(exc)
        shown = [key.get_secret_value() for key in self._keys if key.get_secret_value() in written]
        for key in shown:
            text = text.replace(key, "**********")
        return RuntimeError(text) if shown else exc

    async def _send(
        self, key: SecretStr, stack: AsyncExitStack, request: Callable[[T, AsyncExitStack], Awaitable[R]]
    ) -> R:
        async with AsyncExitStack() as attempt:
            client = await attempt.enter_async_context(self._borrowed(key))
            result = await request(client, attempt)
            stack.push_async_exit(attempt.pop_all())
            return result

    @asynccontextmanager
    async def _borrowed(self, key: SecretStr) -> AsyncIterator[T]:
        """The client for a key. The last one to give back a client that was replaced closes it."""
        replaced, generation = self._generation, self._generation_for(key)
        generation.users += 1
        try:
            if replaced is not None and replaced is not generation:
                await self._close_unused(replaced)
            yield await generation.client()
        finally:
            generation.users -= 1
            await self._close_unused(generation)

    def _generation_for(self, key: SecretStr) -> "_Generation[T]":
        loop = asyncio.get_running_loop()
        current = self._generation
        if current is None or current.failed or current.key != key or not current.belongs_to(loop):
            if key not in self._keys and key.get_secret_value():
                self._keys.append(key)
            current = self._generation = _Generation(key, loop, self._build)
        return current

    async def _close_unused(self, generation: "_Generation[T]") -> None:
        if generation is self._generation or generation.users or generation.closed:
            return
        if generation.failed or not generation.belongs_to(asyncio.get_running_loop()):
            return
        generation.closed = True
        with suppress(Exception):  # an answer that is there must not fail over this
            await self._close(await generation.client())


class _Generation(Generic[T]):
    """A client with one key in one loop."""

    def __init__(
        self, key: SecretStr, loop: asyncio.AbstractEventLoop, build: Callable[[SecretStr], T]
    ) -> None:
        self.key = key
        self.users = 0
        """Requests that use it now."""
        self.closed = False
        self._loop = weakref.ref(loop)
        self._building = loop.create_task(asyncio.to_thread(build, key))

    def belongs_to(self, loop: asyncio.AbstractEventLoop) -> bool:
        return self._loop() is loop

    @property
    def failed(self) -> bool:
        """Whether it could not be built."""
        done = self._building.done() and not self._building.cancelled()
        return done and self._building.exception() is not None

    async def client(self) -> T:
        return await asyncio.shield(self._building)  # others wait for it too
