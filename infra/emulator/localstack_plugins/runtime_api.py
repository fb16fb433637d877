"""The Lambda Runtime API for one process: it asks for an event, answers, and asks for the next one.

https://docs.aws.amazon.com/lambda/latest/dg/runtimes-api.html
"""

import base64
import json
import queue
import re
import threading
from concurrent.futures import Future
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from .streamed_response import STREAMED, as_proxy_response

BUFFERED_LIMIT_BYTES = 6 * 1024 * 1024 + 100
"""Of a response that is not streamed (https://docs.aws.amazon.com/lambda/latest/dg/gettingstarted-limits.html)."""

_ROOT = "/2018-06-01/runtime"
_POLL_S = 0.02
"""How often the server looks whether it is to end."""
_EXIT = "Runtime.ExitError"
_INVOCATION = re.compile(rf"{_ROOT}/invocation/([^/]+)/(response|error)")


@dataclass(frozen=True)
class Outcome:
    """What an invocation came to."""

    payload: bytes
    """The answer, or the error as JSON."""
    is_error: bool


@dataclass
class Event:
    """An invocation on its way to the process and back."""

    request_id: str
    payload: bytes
    headers: dict[str, str]
    """Of the answer that hands it to the process."""
    taken: bool = False
    """Whether the process has got it."""
    outcome: "Future[Outcome | None]" = field(default_factory=Future)
    """None: the process ended before it got the event."""


class InitError(Exception):
    """The init phase failed.

    Attributes:
        payload: The error as JSON.
    """

    def __init__(self, payload: bytes) -> None:
        super().__init__(payload.decode(errors="replace"))
        self.payload = payload


class RuntimeApi:
    """Listens on a free port of 127.0.0.1 from the start, until ``close``."""

    def __init__(self) -> None:
        self.ready: Future[None] = Future()
        """Done when the process has asked for its first event; or holds an ``InitError``."""
        self._events: queue.SimpleQueue[Event | None] = queue.SimpleQueue()
        self._current: Event | None = None
        self._lock = threading.Lock()
        api = self

        class Handler(_Handler):
            runtime_api = api

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        threading.Thread(
            target=self._server.serve_forever, args=(_POLL_S,), name="runtime-api", daemon=True
        ).start()

    @property
    def address(self) -> str:
        """Host and port, for AWS_LAMBDA_RUNTIME_API."""
        host, port = self._server.server_address[:2]
        return f"{host!s}:{port}"

    def submit(self, event: Event) -> None:
        """Hand out this event when the process asks for one."""
        with self._lock:
            self._current = event
        self._events.put(event)

    def process_ended(self, reason: str) -> None:
        """So its init phase fails, or the event that it has; one that it has not got comes to None.

        Args:
            reason: As Lambda words it.
        """
        self.fail_init(_problem(_EXIT, f"Error: {reason}"))
        with self._lock:
            event = self._current
        if event is not None:
            text = f"RequestId: {event.request_id} Error: {reason}"
            self._settle(event, Outcome(_problem(_EXIT, text), is_error=True) if event.taken else None)

    def close(self) -> None:
        """Stop listening."""
        self._events.put(None)
        self._server.shutdown()
        self._server.server_close()

    # -- what the process asks

    def next_event(self) -> Event | None:
        """Wait for an event; None when there is no other."""
        with self._lock:
            if not self.ready.done():
                self.ready.set_result(None)
        event = self._events.get()
        if event is not None:
            event.taken = True
        return event

    def take(self, request_id: str, outcome: Outcome) -> bool:
        """Note how an invocation ended; False: it is not the one at hand."""
        with self._lock:
            event = self._current
        if event is None or event.request_id != request_id:
            return False
        return self._settle(event, outcome)

    def fail_init(self, payload: bytes) -> None:
        """Note that the init phase failed, unless it has ended.

        Args:
            payload: The error as JSON.
        """
        with self._lock:
            if not self.ready.done():
                self.ready.set_exception(InitError(payload))

    def _settle(self, event: Event, outcome: Outcome | None) -> bool:
        with self._lock:
            if event.outcome.done():
                return False
            event.outcome.set_result(outcome)
            return True


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    runtime_api: RuntimeApi

    def do_GET(self) -> None:
        if self.path != f"{_ROOT}/invocation/next":
            self._reply(404, _problem("InvalidPath", "There is no such path."))
            return
        event = self.runtime_api.next_event()
        if event is None:
            self.close_connection = True
            return
        self._reply(200, event.payload, {"Lambda-Runtime-Aws-Request-Id": event.request_id, **event.headers})

    def do_POST(self) -> None:
        body, trailers = self._body()
        if self.path == f"{_ROOT}/init/error":
            self.runtime_api.fail_init(body)
            self._reply(202)
            return
        found = _INVOCATION.fullmatch(self.path)
        if found is None:
            self._reply(404, _problem("InvalidPath", "There is no such path."))
            return
        request_id, kind = found.groups()
        outcome = Outcome(body, is_error=True) if kind == "error" else self._outcome(body, trailers)
        known = self.runtime_api.take(request_id, outcome)
        if kind == "response" and _is_too_large(outcome):
            self._reply(413, outcome.payload)
        elif known:
            self._reply(202)
        else:
            self._reply(400, _problem("InvalidRequestID", "Invalid request ID"))

    def _outcome(self, body: bytes, trailers: dict[str, str]) -> Outcome:
        if (failure := trailers.get("lambda-runtime-function-error-body")) is not None:
            return Outcome(base64.b64decode(failure), is_error=True)
        if self.headers.get("Content-Type") == STREAMED:
            return Outcome(as_proxy_response(body), is_error=False)
        is_streamed = self.headers.get("Lambda-Runtime-Function-Response-Mode") == "streaming"
        if len(body) > BUFFERED_LIMIT_BYTES and not is_streamed:
            text = (
                f"Response payload size exceeded maximum allowed payload size ({BUFFERED_LIMIT_BYTES} bytes)."
            )
            return Outcome(_problem(_TOO_LARGE, text), is_error=True)
        return Outcome(body, is_error=False)

    def _body(self) -> tuple[bytes, dict[str, str]]:
        """The body, and the trailers after a chunked one, by lower-case name."""
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0)), {}
        pieces, trailers = [], {}
        while size := int(self.rfile.readline().partition(b";")[0], 16):
            pieces.append(self.rfile.read(size))
            self.rfile.readline()
        while line := self.rfile.readline().decode("latin-1").strip():
            name, _, value = line.partition(":")
            trailers[name.strip().lower()] = value.strip()
        return b"".join(pieces), trailers

    def _reply(self, status: int, body: bytes = b'{"status":"OK"}\n', headers: Any = None) -> None:
        self.send_response(status)
        fields = {"Content-Type": "application/json", "Content-Length": str(len(body)), **(headers or {})}
        for name, value in fields.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
        """Nothing: LocalStack logs the invocations."""


_TOO_LARGE = "Function.ResponseSizeTooLarge"


def _problem(error_type: str, text: str) -> bytes:
    return json.dumps({"errorMessage": text, "errorType": error_type}).encode()


def _is_too_large(outcome: Outcome) -> bool:
    return outcome.is_error and _TOO_LARGE.encode() in outcome.payload
