"""The app's lifespan: entered once in a process, left when the process ends.

https://asgi.readthedocs.io/en/latest/specs/lifespan.html
"""

import asyncio
import logging
from typing import Any

from vectorforge.runtime.invocation import AsgiApp, LifespanError, LifespanMode, Message

_logger = logging.getLogger(__name__)


class Lifespan:
    """Startup and shutdown of one ASGI app in one task, as frameworks with cancel scopes require.

    Args:
        app: The app.
        mode: ``"on"``: an app without lifespan support is an error. ``"auto"``: it is served without.
            ``"off"``: the lifespan is not entered.
    """

    def __init__(self, app: AsgiApp, mode: LifespanMode) -> None:
        if mode not in ("auto", "on", "off"):
            raise ValueError('lifespan must be "auto", "on" or "off"')
        self.state: dict[str, Any] = {}
        """State of the app for its requests; each gets a shallow copy as ``scope["state"]``."""
        self._app = app
        self._mode = mode
        self._task: asyncio.Task[None] | None = None
        self._to_app: asyncio.Queue[Message] = asyncio.Queue()
        self._answered = asyncio.Event()
        self._complete = False
        self._started = False

    async def startup(self) -> None:
        """Enter the lifespan. A second call does nothing, one after a failure retries.

        After a cancellation the app's startup continues, and the next call waits for it.

        Raises:
            LifespanError: The app's startup failed or, with mode "on", it has no lifespan.
        """
        if self._mode == "off" or self._started:
            return
        if self._task is None:
            self._to_app.put_nowait({"type": "lifespan.startup"})
            self._task = asyncio.get_running_loop().create_task(self._run(), name="lifespan")
        task = self._task
        answered = asyncio.ensure_future(self._answered.wait())
        try:
            await asyncio.wait({task, answered}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            answered.cancel()
        error = task.exception() if task.done() and not task.cancelled() else None
        if not self._complete and (self._answered.is_set() or self._mode == "on"):
            await self._forget(task)
            raise LifespanError("The app's lifespan did not start; its log says why.") from error
        self._started = True
        if not self._complete:
            # Apps without a lifespan raise or return; one that failed before its first message looks alike.
            reason = "" if error is None else f" It ended with {type(error).__name__}."
            _logger.info("The app takes no part in the lifespan protocol; it is served without.%s", reason)

    async def shutdown(self, limit_s: float) -> None:
        """Leave the lifespan, within ``limit_s`` seconds; the last quarter of them is for cancelling it.

        Never raises an app's error.
        """
        task = self._task
        if task is None or task.done():
            return
        self._to_app.put_nowait({"type": "lifespan.shutdown"})
        await asyncio.wait({task}, timeout=limit_s * 3 / 4)
        if not task.done():
            _logger.warning("The app's lifespan did not end within %.1f s.", limit_s * 3 / 4)
            task.cancel()
            await asyncio.wait({task}, timeout=limit_s / 4)
        elif not task.cancelled() and (error := task.exception()):
            _logger.error("The app's lifespan failed at shutdown.", exc_info=error)

    async def _run(self) -> None:
        scope = {"type": "lifespan", "asgi": {"version": "3.0", "spec_version": "2.0"}, "state": self.state}
        await self._app(scope, self._to_app.get, self._send)

    async def _send(self, message: Message) -> None:
        kind = message["type"]
        if kind == "lifespan.startup.complete":
            self._complete = True
            self._answered.set()
        elif kind in ("lifespan.startup.failed", "lifespan.shutdown.failed"):
            _logger.error("The app sent %s: %s", kind, message.get("message", ""))
            self._answered.set()

    async def _forget(self, task: asyncio.Task[None]) -> None:
        task.cancel()
        await asyncio.wait({task})
        self._task = None
        self._answered.clear()
        self._to_app = asyncio.Queue()
        self.state.clear()
