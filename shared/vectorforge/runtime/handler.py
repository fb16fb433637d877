"""The Lambda handler that serves an ASGI app and streams what it answers."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from vectorforge.runtime.asgi import AsgiApp, LifespanMode
from vectorforge.runtime.errors import ProtocolError, StreamingUnavailableError
from vectorforge.runtime.event_loop import call_before_close, event_loop
from vectorforge.runtime.generators import GeneratorFinaliser
from vectorforge.runtime.http_cycle import HttpCycle, OpenStream
from vectorforge.runtime.http_event import HttpRequest, read_event
from vectorforge.runtime.invocation import Invocation, can_stream, current_invocation
from vectorforge.runtime.lifespan import Lifespan
from vectorforge.runtime.response_stream import ResponseStream

SHUTDOWN_LIMIT_S = 1.0
"""For a request at hand and for the lifespan, each; Lambda's shutdown phase lasts 2 s at most."""


class StreamedResponse(dict[str, Any]):
    """What a StreamingHandler returns: the response has been sent, nothing of it is left to post.

    A dictionary ``{"statusCode": 200, "streamed": True, "complete": True}``, so that a decorator can read it,
    log it or make JSON of it. The Runtime API client goes by what it sent, not by this value, so a decorator
    may also return something else.
    """

    def __init__(self, status: int | None, *, complete: bool) -> None:
        super().__init__(statusCode=status, streamed=True, complete=complete)


class StreamingHandler:
    """Serves an ASGI app, one invocation at a time, on the one event loop of the process.

    Args:
        app: The ASGI app, for example a ``FastAPI()``.
        lifespan: ``"auto"``: entered if the app has one. ``"on"``: an app without one is an error. ``"off"``.
        api_gateway_base_path: Path under which a custom domain mounts the API; taken off the request's path.
        deadline_margin_s: Seconds before the function's timeout at which an app that is still at work is
            ended, so that the process survives. An app with a deadline of its own should keep a longer
            margin.
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
        """End a request that is still at hand, then leave the app's lifespan. Takes 2 s at most."""
        loop = event_loop()
        if loop.is_running():
            return
        if self._request is not None and not self._request.done():
            self._request.cancel()
            ended = asyncio.gather(self._request, return_exceptions=True)
            with suppress(TimeoutError):
                loop.run_until_complete(asyncio.wait_for(ended, SHUTDOWN_LIMIT_S))
        if self._lifespan is not None:
            loop.run_until_complete(self._lifespan.shutdown(SHUTDOWN_LIMIT_S))

    def __call__(self, event: Any, context: Any) -> StreamedResponse:
        """Answer one event of a Function URL, an API Gateway REST API or an HTTP API.

        Raises:
            StreamingUnavailableError: The process was not started by this package's runtime.
            UnsupportedEventError: The event is no HTTP request.
            DeadlineExceededError: The function's timeout was near.
            Exception: What the app raised. Before the first byte it becomes an error of the invocation; after
                it the stream has been ended as failed, and the error goes to the log only.
        """
        invocation = current_invocation()
        if not can_stream() or invocation is None:
            raise StreamingUnavailableError
        if invocation.answered:
            raise ProtocolError("The response of this invocation has been streamed already.")
        request = read_event(event, context, self._base_path)
        loop = event_loop()
        cycle = HttpCycle(request, _opener(invocation), self._generators)
        self._request = loop.create_task(self._serve(cycle, request, context), name="asgi-request")
        try:
            complete = loop.run_until_complete(self._request)
        finally:
            if self._request.done():
                self._request = None
        return StreamedResponse(cycle.response_status, complete=complete)

    async def _serve(self, cycle: HttpCycle, request: HttpRequest, context: Any) -> bool:
        remaining_s = context.get_remaining_time_in_millis() / 1000
        lifespan = await self._enter_lifespan()
        request.scope["state"] = lifespan.state.copy()
        return await cycle.run(self._app, remaining_s - self._margin_s, self._margin_s)

    async def _enter_lifespan(self) -> Lifespan:
        if self._lifespan is None:
            call_before_close(self.shutdown)  # a decorator may hide this handler from the runtime
            self._lifespan = Lifespan(self._app, self._lifespan_mode)
        await self._lifespan.startup()
        return self._lifespan


def _opener(invocation: Invocation) -> OpenStream:
    async def open_stream(on_lost: Callable[[], None]) -> ResponseStream:
        stream = await ResponseStream.open(invocation, on_lost)
        invocation.answered = True
        return stream

    return open_stream
