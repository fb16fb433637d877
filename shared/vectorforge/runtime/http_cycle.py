"""One HTTP request through an ASGI app, its response streamed as the app makes it."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from http import HTTPStatus

from vectorforge.runtime.errors import (
    DeadlineExceededError,
    ProcessExitError,
    ProtocolError,
    ResponseLostError,
)
from vectorforge.runtime.event_loop import GeneratorFinaliser, shutdown_remaining_s
from vectorforge.runtime.http_event import AsgiApp, HttpRequest, Message
from vectorforge.runtime.response_stream import ResponseStream, prelude

_logger = logging.getLogger(__name__)

FAILED_MESSAGE = "The app failed after its response had begun. The function's log has the details."
"""Text of a failed stream: an exception's own text may hold secrets."""

_WITHOUT_BODY = {HTTPStatus.NO_CONTENT, HTTPStatus.NOT_MODIFIED}
_SETBACKS: dict[int | None, str] = {
    None: "The connection to the Lambda service broke.",
    HTTPStatus.FORBIDDEN: "The Lambda service refused it: this invocation has been answered or is over.",
    HTTPStatus.GONE: "The invocation is stale: another one is at hand.",
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: "It is larger than Lambda allows.",
}

_left_running: set[asyncio.Task[bool]] = set()
"""Apps that outlived their invocation: they go on in later ones, and the event loop refers to them weakly."""

OpenStream = Callable[[Callable[[], None]], Awaitable[ResponseStream]]
"""Opens the response; its argument is called if the service stops taking it."""


class HttpCycle:
    """The two callables of one ASGI connection, and the response behind them.

    The response is opened by the first body byte, or by the end of an empty body. A failure before that is
    raised with nothing sent, so that it can still become an error of the invocation.
    """

    def __init__(self, request: HttpRequest, open_stream: OpenStream, generators: GeneratorFinaliser) -> None:
        self._request = request
        self._open_stream = open_stream
        self._generators = generators
        self._start: Message | None = None
        self._stream: ResponseStream | None = None
        self._body_requested = False
        self._ended = False  # the app's last body message is through
        self._lost = False
        self._is_over = False  # the app is still running; its output is dropped
        self._disconnected = asyncio.Event()

    @property
    def response_status(self) -> int | None:
        """The HTTP status that the app gave; None before."""
        return None if self._start is None else self._start["status"]

    async def run(self, app: AsgiApp, deadline: float, margin_s: float) -> bool:
        """Serve the request to its end, background tasks included.

        Args:
            app: The app, run in a task; one that cannot be canceled keeps running.
            deadline: Time limit of the app and of sending the whole response; on the loop's clock.
            margin_s: Seconds after it for an orderly end; at most five eighths are used.

        Returns:
            True if the service read the whole response.

        Raises:
            DeadlineExceededError: The deadline passed.
            ProcessExitError: The task was canceled because the process shuts down.
            Exception: Error of the app, or ProtocolError for its mistakes. A started response has been ended
                as failed.
        """
        self._generators.watch()
        loop = asyncio.get_running_loop()
        work = loop.create_task(self._serve(app), name="asgi-app")
        cause: Exception | None = None
        try:
            await asyncio.wait({work}, timeout=max(deadline - loop.time(), 0))
            if not work.done():
                cause = DeadlineExceededError(
                    "The app was still at work shortly before the function's timeout."
                )
        except asyncio.CancelledError:
            _logger.info("Ending the request: the process is shutting down.")
            cause = ProcessExitError()
            margin_s = min(margin_s, shutdown_remaining_s() / 2)
            self._lost = self._stream is None  # the runtime has reported it, so nothing may start now
        try:
            exc = await self._end(work, margin_s / 4)
            if exc is None:
                return work.result()
            error = cause or _named(exc)
            if not await self._end_as_failed(error, margin_s / 4):
                return False
            raise error from exc.__cause__ if error is exc else exc
        finally:
            if not await self._generators.wait(max(deadline - loop.time(), margin_s / 8)):
                _logger.warning("Async generators of this request were still closing at its end.")

    async def _serve(self, app: AsgiApp) -> bool:
        await app(self._request.scope, self.receive, self.send)
        return await self._taken()

    async def _end(self, work: asyncio.Task[bool], limit_s: float) -> BaseException | None:
        """Cancel the app if it is still at work; what it failed with, None if it did not."""
        if not work.done():
            work.cancel()
            await asyncio.wait({work}, timeout=limit_s)
        if not work.done():
            # It waits for a thread, as a synchronous generator does, or ignores the cancellation. Waiting for
            # it would end with the process killed by Lambda.
            _logger.warning("The app did not end when it was cancelled; it is left running.")
            self._is_over = True
            self._disconnected.set()
            _left_running.add(work)
            work.add_done_callback(_forget)
            return asyncio.CancelledError()
        return asyncio.CancelledError() if work.cancelled() else work.exception()

    async def receive(self) -> Message:
        """ASGI ``receive``: the request; ``http.disconnect`` once the response has ended or is lost."""
        if not self._body_requested:
            self._body_requested = True
            return {"type": "http.request", "body": self._request.body or b"", "more_body": False}
        await self._disconnected.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        """ASGI ``send``; ignores messages once the service stopped reading.

        Raises:
            ProtocolError: A message in the wrong order.
            ResponseLostError: The invocation ended without this app.
        """
        if self._is_over:
            raise ResponseLostError("The invocation of this request is over.")
        kind = message["type"]
        if kind == "http.response.start" and self._start is None:
            self._start = message
        elif kind == "http.response.body" and self._start is not None and not self._ended:
            try:
                await self._send_body(self._start, message)
            except ResponseLostError:
                self._lose()
            # An app that never awaits would hide the disconnect and the deadline from the loop.
            await asyncio.sleep(0)
        else:
            raise ProtocolError(f"Unexpected ASGI message {str(kind)[:64]!r}.")

    async def _send_body(self, start: Message, message: Message) -> None:
        body = b"" if self._without_body(start["status"]) else message.get("body", b"")
        last = not message.get("more_body", False)
        if self._stream is None and (body or last) and not self._lost:
            head = prelude(
                start["status"],
                start.get("headers", ()),
                multi_value_headers=self._request.multi_value_headers,
            )
            self._stream = await self._open_stream(self._lose)
            await self._stream.write(head)
        if self._stream is not None and not self._lost:
            await self._stream.write(bytes(body))
        if last:
            self._ended = True
            if self._stream is not None and not self._lost:
                await self._stream.finish()
            self._disconnected.set()

    def _without_body(self, status: int) -> bool:
        return self._request.scope["method"] == "HEAD" or status < HTTPStatus.OK or status in _WITHOUT_BODY

    def _lose(self) -> None:
        self._lost = True
        self._disconnected.set()

    async def _taken(self) -> bool:
        """Return True if the service read the whole response; the app has returned."""
        if self._stream is None or not (self._ended or self._lost):
            raise ProtocolError("The app returned without completing its response.")
        status = await self._stream.status()
        if status == HTTPStatus.ACCEPTED and not self._lost:
            return True
        _logger.warning("The response was not taken. %s", _SETBACKS.get(status, f"Status {status}."))
        return False

    async def _end_as_failed(self, error: Exception, limit_s: float) -> bool:
        """Tell the service, as far as it still listens; False if the response had been lost before."""
        if self._stream is None:
            return True
        if self._lost:
            _logger.warning("The app failed after its response was lost.", exc_info=error)
            await self._taken()
            return False
        try:
            async with asyncio.timeout(limit_s):
                if not self._ended:
                    await self._stream.fail(*_reported(error))
                await self._stream.status()
        except (TimeoutError, ResponseLostError):
            _logger.warning("The response could not be ended in time; its connection is dropped.")
            await self._stream.abort()
        return True


def _forget(work: asyncio.Task[bool]) -> None:
    _left_running.discard(work)
    if not work.cancelled() and (error := work.exception()):
        _logger.info("An app that had been left running ended with %s.", type(error).__name__)


def _reported(error: Exception) -> tuple[str, str]:
    """Type and message for the service."""
    if isinstance(error, ProcessExitError):
        return error.error_type, str(error)
    return type(error).__name__, FAILED_MESSAGE


def _named(exc: BaseException) -> Exception:
    """Return the error as an Exception, since others end awslambdaric's process."""
    if isinstance(exc, Exception):
        return exc
    return ProtocolError("The app ended by a cancellation of its own.")
