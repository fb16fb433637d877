"""Event loop in a thread, for synchronous callers of asynchronous services."""

import asyncio
import concurrent.futures
import threading
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from typing import Any, TypeVar

T = TypeVar("T")


class LoopThread:
    """Event loop in its own thread that holds an asynchronous resource open and runs calls from any thread.

    All calls share one loop, because pools and clients belong to the loop that opened them; ``asyncio.run``
    would create a loop for each call.

    Args:
        resource: Entered and exited in the loop.
        name: Name of the thread.

    Raises:
        Exception: Entering ``resource`` failed; nothing is left running.
    """

    def __init__(self, resource: AbstractAsyncContextManager[Any], *, name: str) -> None:
        self._resource = resource
        self._name = name
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop = asyncio.Event()
        self._lock = threading.Lock()
        self._closed = False
        self._calls: set[asyncio.Task[Any]] = set()
        self._opened: concurrent.futures.Future[None] = concurrent.futures.Future()
        self._thread = threading.Thread(target=self._serve, name=name, daemon=True)
        self._thread.start()
        try:
            self._opened.result()
        except BaseException:  # KeyboardInterrupt, too
            self.close()
            raise

    @property
    def is_running(self) -> bool:
        """False after ``close``, and in a forked child, which does not have the thread."""
        return not self._closed and self._thread.is_alive()

    def run(self, call: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run a call in the loop and wait for its result; calls of several threads run concurrently.

        When the wait is interrupted (Ctrl-C), the call is canceled and the loop stays usable.

        Raises:
            RuntimeError: The thread is closed or was closed during the call, or is the current thread.
        """
        if threading.current_thread() is self._thread:
            raise RuntimeError(
                f"{self._name} cannot wait for itself; await the asynchronous services instead."
            )
        with self._lock:
            if not self.is_running or self._loop is None:
                raise RuntimeError(f"{self._name} is closed.")
            future = asyncio.run_coroutine_threadsafe(self._tracked(call), self._loop)
        try:
            return future.result()
        except concurrent.futures.CancelledError as exc:
            raise RuntimeError(f"{self._name} was closed during the call.") from exc
        except BaseException:
            future.cancel()
            raise

    def close(self) -> None:
        """Cancel running calls, exit the resource and end the thread; safe to call twice."""
        with self._lock:
            self._closed = True
            if self._loop is not None and self._thread.is_alive():
                self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    async def _tracked(self, call: Callable[[], Coroutine[Any, Any, T]]) -> T:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - coroutines run in tasks here
        self._calls.add(task)
        try:
            return await call()
        finally:
            self._calls.discard(task)

    def _serve(self) -> None:
        with asyncio.Runner() as runner:
            self._loop = runner.get_loop()
            runner.run(self._hold())

    async def _hold(self) -> None:
        try:
            async with self._resource:
                self._opened.set_result(None)
                await self._stop.wait()
                calls = set(self._calls)  # not the resource's own tasks
                for call in calls:
                    call.cancel()
                await asyncio.gather(*calls, return_exceptions=True)
        except BaseException as exc:
            if self._opened.done():
                raise
            self._opened.set_exception(exc)
