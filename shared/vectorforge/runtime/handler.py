"""Lambda handler that serves an ASGI app and streams its responses."""

import asyncio
import logging
from functools import partial
from typing import Any

from vectorforge.runtime.event_loop import (
    GeneratorFinaliser,
    call_before_close,
    event_loop,
    shutdown_remaining_s,
)
from vectorforge.runtime.http_cycle import HttpCycle, OpenStream
from vectorforge.runtime.http_event import HttpRequest, bad_request, read_event
from vectorforge.runtime.invocation import (
    AsgiApp,
    DeadlineExceededError,
    LifespanMode,
    ProtocolError,
    ResponseLostError,
    StreamingInvocation,
    StreamingUnavailableError,
    can_stream,
    current_invocation,
)
from vectorforge.runtime.lifespan import Lifespan
from vectorforge.runtime.response_stream import ResponseStream

_logger = logging.getLogger(__name__)

_LOOP_S = 0.04  # of the shutdown, for the end of the event loop


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
        cycle = HttpCycle(request, _opener(invocation), self._generators)
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


def _opener(invocation: StreamingInvocation) -> OpenStream:
    return partial(ResponseStream.open, invocation)


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
