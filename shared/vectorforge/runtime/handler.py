"""Lambda handler that serves an ASGI app and streams its responses, and the app's lifespan.

https://asgi.readthedocs.io/en/latest/specs/lifespan.html
"""

import asyncio
import logging
from functools import partial
from typing import Any, Literal

from vectorforge.runtime.errors import (
    DeadlineExceededError,
    LifespanError,
    ProtocolError,
    ResponseLostError,
    StreamingUnavailableError,
)
from vectorforge.runtime.event_loop import (
    GeneratorFinaliser,
    call_before_close,
    event_loop,
    shutdown_remaining_s,
)
from vectorforge.runtime.http_cycle import HttpCycle
from vectorforge.runtime.http_event import AsgiApp, HttpRequest, Message, bad_request, read_event
from vectorforge.runtime.response_stream import (
    ResponseStream,
    StreamingInvocation,
    can_stream,
    current_invocation,
)

_logger = logging.getLogger(__name__)

LifespanMode = Literal["auto", "on", "off"]

_LOOP_S = 0.04  # of the shutdown, for the end of the event loop


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


class StreamedResponse(dict[str, Any]):
    """Return value of a StreamingHandler: the response has been sent.

    A dictionary ``{"statusCode": 200, "streamed": True, "complete": True}`` that a decorator can read, log or
    serialize. The Runtime API client ignores it, so a decorator may return another value.
    """

    def __init__(self, status: int | None, *, complete: bool) -> None:
        super().__init__(statusCode=status, streamed=True, complete=complete)


class StreamingHandler:
    """Serve an ASGI app, one invocation at a time, on the one event loop of the process.

    Args:
        app: The ASGI app, for example a ``FastAPI()``.
        lifespan: ``"auto"``: entered if the app has one. ``"on"``: an app without one is an error. ``"off"``.
        api_gateway_base_path: Path under which a custom domain mounts the API: the app's ``root_path``. A
            stage in the URL is read from the event.
        deadline_margin_s: Seconds before the function's timeout at which a running app is canceled, so that
            the process survives. An app with its own deadline should use a longer margin.
    """

    def __init__(
        self,
        app: AsgiApp,
        *,
        lifespan: LifespanMode = "auto",
        api_gateway_base_path: str = "/",
        deadline_margin_s: float = 0.5,
    ) -> None:
        if deadline_margin_s < 0:
            raise ValueError("deadline_margin_s must not be negative")
        self.__name__ = type(self).__name__  # decorators name their traces after it
        self._app = app
        self._lifespan_mode = lifespan
        self._lifespan: Lifespan | None = None
        self._base_path = api_gateway_base_path
        self._margin_s = deadline_margin_s
        self._generators = GeneratorFinaliser()
        self._request: asyncio.Task[bool] | None = None

    def startup(self) -> None:
        """Enter the app's lifespan, once in a process. The runtime calls it in the init phase.

        Raises:
            LifespanError: The app's startup failed; a later call tries again.
        """
        event_loop().run_until_complete(self._enter_lifespan())

    def shutdown(self) -> None:
        """End a running request, then exit the app's lifespan.

        Fits Lambda's time for the shutdown (``vectorforge.runtime.event_loop``), unless the app blocks the
        event loop. A request gets at most half of it, the lifespan the rest.
        """
        loop = event_loop()
        if loop.is_running():
            return
        request, self._request = self._request, None
        lifespan, self._lifespan = self._lifespan, None
        loop.run_until_complete(_end(request, lifespan))

    def __call__(self, event: Any, context: Any) -> StreamedResponse:
        """Answer one event of a Function URL, an API Gateway REST API or an HTTP API.

        Raises:
            StreamingUnavailableError: The process was not started by this package's runtime.
            UnsupportedEventError: The event is not an HTTP request.
            DeadlineExceededError: The function's timeout was near. An app that cannot be canceled keeps
                running; its later output is dropped.
            ResponseLostError: The service disconnected before anything was sent.
            Exception: Error of the app. Before the first byte it becomes an error of the invocation; after it
                the stream has been ended as failed, and the error is only logged.
        """
        invocation = current_invocation()
        if not can_stream() or invocation is None:
            raise StreamingUnavailableError
        if invocation.answered:
            raise ProtocolError("The response of this invocation has been streamed already.")
        loop = event_loop()
        deadline = loop.time() + context.get_remaining_time_in_millis() / 1000 - self._margin_s
        request = read_event(event, context, self._base_path)
        cycle = HttpCycle(request, partial(ResponseStream.open, invocation), self._generators)
        self._request = loop.create_task(self._serve(cycle, request, deadline), name="asgi-request")
        try:
            complete = loop.run_until_complete(self._request)
        finally:
            if self._request.done():
                self._request = None
        _check_begun(invocation)
        return StreamedResponse(cycle.response_status, complete=complete)

    async def _serve(self, cycle: HttpCycle, request: HttpRequest, deadline: float) -> bool:
        try:
            async with asyncio.timeout_at(deadline) as limit:
                lifespan = await self._enter_lifespan()
        except TimeoutError as exc:
            if not limit.expired():
                raise
            raise DeadlineExceededError(
                "The app's lifespan was still starting shortly before the function's timeout."
            ) from exc
        request.scope["state"] = lifespan.state.copy()
        app = self._app if request.body is not None else bad_request
        return await cycle.run(app, deadline, self._margin_s)

    async def _enter_lifespan(self) -> Lifespan:
        if self._lifespan is None:
            call_before_close(self.shutdown)  # a decorator may hide this handler from the runtime
            self._lifespan = Lifespan(self._app, self._lifespan_mode)
        await self._lifespan.startup()
        return self._lifespan


def _check_begun(invocation: StreamingInvocation) -> None:
    if not invocation.answered:
        raise ResponseLostError("The Lambda service hung up before the response had begun.")


async def _end(request: asyncio.Task[bool] | None, lifespan: Lifespan | None) -> None:
    loop = asyncio.get_running_loop()
    limit_s = max(shutdown_remaining_s() - _LOOP_S, 0.0)
    deadline = loop.time() + limit_s
    if request is not None:
        request.cancel()
        await asyncio.wait({request}, timeout=limit_s / 2)
        if request.done() and not request.cancelled():
            request.exception()  # reported to the service; asyncio would log it as never retrieved
    if lifespan is not None:
        await lifespan.shutdown(max(deadline - loop.time(), 0.0))
