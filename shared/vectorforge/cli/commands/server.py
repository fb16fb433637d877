"""HTTP server of ``vectorforge up``, with limits that uvicorn lacks: connections, header time and size."""

import asyncio
import contextlib
import logging
import signal
import socket
from collections.abc import Awaitable, Callable, Iterator
from typing import TYPE_CHECKING, ClassVar
from uuid import uuid4

import uvicorn
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from vectorforge.api.problems import http_problem
from vectorforge.api.request_state import RequestState

if TYPE_CHECKING:
    from fastapi import FastAPI

    from vectorforge.config import ServerSettings


_KEEP_ALIVE_S = 75
"""Longer than clients and load balancers keep an idle connection (aiohttp 15 s, an ALB 60 s), as in nginx:
the side that closes first races with the other's next request, and a query lost in that race is not
retried."""


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, on_started: Callable[[], Awaitable[None]]) -> None:
        super().__init__(config)
        self._on_started = on_started

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=sockets)
        await self._on_started()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        # uvicorn would raise SIGTERM again after serving, which ends the process before the database stops.
        yield


def new_event_loop() -> asyncio.AbstractEventLoop:
    """Return a uvloop event loop, which needs less CPU; asyncio's own on Windows."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


def _is_no_cancellation(record: logging.LogRecord) -> bool:
    """Return False for the trace of a response that the end of the server has cut: a warning counts these."""
    return not (record.exc_info and isinstance(record.exc_info[1], asyncio.CancelledError))


async def serve(
    app: "FastAPI",
    bound: socket.socket,
    settings: "ServerSettings",
    *,
    on_started: Callable[[], Awaitable[None]],
) -> None:
    """Serve until SIGINT or SIGTERM; running responses then get five seconds to finish."""
    config = uvicorn.Config(
        app,
        http=bounded_connection(settings.header_timeout_s, settings.max_connections),
        log_level="warning",
        access_log=False,
        timeout_graceful_shutdown=5,
        timeout_keep_alive=_KEEP_ALIVE_S,
        server_header=False,
        ws="none",
        lifespan="on",
    )
    logging.getLogger("uvicorn.error").addFilter(_is_no_cancellation)
    server = _Server(config, on_started)

    def stop() -> None:
        server.force_exit = server.should_exit  # the second signal stops immediately
        server.should_exit = True

    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop)
    await server.serve(sockets=[bound])


MAX_HEADER_BYTES = 64 * 1024
"""Maximum size of a request's line and headers; the read that contains their end is not counted."""
_LAST_READ_S = 0.001
"""Not 0: an event loop runs such callbacks before it reads sockets again."""
_LINGER_S = 1.0
"""Time for a rejected client to read the response before its connection is reset."""


class BoundedConnection(HttpToolsProtocol):
    """An HTTP connection with limits on header time, header size and the number of connections."""

    header_timeout_s: ClassVar[float]
    max_connections: ClassVar[int]
    lingering: ClassVar[set["BoundedConnection"]]
    """Rejected connections that are not closed yet."""

    _header_timer: asyncio.TimerHandle | None = None
    """Runs from a connection's start, and from a request's first byte, to the end of its headers."""
    _header_bytes = 0
    _in_headers = False
    _is_refused = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as uvicorn's
        """Accept the connection, or reject it."""
        if len(self.connections) >= self.max_connections:
            self.transport = transport
            detail = f"The server has {self.max_connections} open connections; try again later."
            self._refuse(503, "too_many_connections", detail, {"Retry-After": "1"})
            return
        super().connection_made(transport)
        self._start_header_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._stop_header_timer()
        self.lingering.discard(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse the data; that of a rejected connection is dropped."""
        if self._is_refused:
            return
        super().data_received(data)
        if self._in_headers:
            self._header_bytes += len(data)
            if self._header_bytes > MAX_HEADER_BYTES:
                detail = f"The headers must have at most {MAX_HEADER_BYTES} bytes."
                self._refuse(431, "headers_too_large", detail, {})
        elif self._header_timer is None and not self._is_answering():
            self._start_header_timer()  # blank lines end the keep-alive timeout without a request

    def on_message_begin(self) -> None:
        """Begin a request."""
        super().on_message_begin()
        self._in_headers, self._header_bytes = True, 0
        self._start_header_timer()

    def on_headers_complete(self) -> None:
        """Serve a request."""
        self._in_headers = False
        self._stop_header_timer()
        super().on_headers_complete()

    def _is_answering(self) -> bool:
        return not getattr(self.cycle, "response_complete", True)  # None before the first request

    def _start_header_timer(self) -> None:
        self._stop_header_timer()
        self._header_timer = self.loop.call_later(self.header_timeout_s, self._read_once_more)

    def _stop_header_timer(self) -> None:
        if self._header_timer is not None:
            self._header_timer.cancel()
            self._header_timer = None

    def _read_once_more(self) -> None:
        # After a stall of the event loop the timer runs before bytes that have arrived in time are read.
        self._header_timer = self.loop.call_later(_LAST_READ_S, self._headers_are_late)

    def _headers_are_late(self) -> None:
        if self._is_answering():  # an earlier request of the connection, whose response must not be cut
            self._start_header_timer()
        elif self._in_headers:
            detail = f"The headers must arrive within {self.header_timeout_s:g} seconds."
            self._refuse(408, "headers_too_slow", detail, {})
        else:
            self.transport.close()  # browsers open connections in advance, and expect no response

    def _refuse(self, status: int, code: str, detail: str, headers: dict[str, str]) -> None:
        """Send a problem document, and close the connection after a delay."""
        self._is_refused = True
        self._stop_header_timer()
        self.connections.discard(self)
        if self.transport.is_closing():
            return
        if len(self.lingering) >= self.max_connections:
            self.transport.abort()
            return
        self.lingering.add(self)
        request_id = uuid4()
        state = RequestState(request_id, str(request_id))
        headers = {"Connection": "close", "X-Request-Id": state.request_id, **headers}
        response = http_problem(status, detail, state=state, code=code, headers=headers)
        fields = b"".join(b"%b: %b\r\n" % field for field in response.raw_headers)
        self.transport.write(b"%b%b\r\n%b" % (STATUS_LINE[status], fields, bytes(response.body)))
        self.transport.write_eof()
        self.loop.call_later(_LINGER_S, self.transport.abort)


def bounded_connection(header_timeout_s: float, max_connections: int) -> type[BoundedConnection]:
    """Return the protocol of one server's connections, for ``uvicorn.Config(http=...)``."""
    bounds = {"header_timeout_s": header_timeout_s, "max_connections": max_connections, "lingering": set()}
    return type("BoundedConnection", (BoundedConnection,), bounds)
