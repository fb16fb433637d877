"""ASGI types (https://asgi.readthedocs.io), errors of the runtime, and the current invocation.

Error texts name the limit or the setting that helps. They never copy a header's value, a body or another
error's text, since the Lambda service receives their first line. Separate from the client, so that a handler
module can be imported without awslambdaric.
"""

from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
AsgiApp = Callable[[Scope, Receive, Send], Awaitable[None]]
LifespanMode = Literal["auto", "on", "off"]


class StreamingRuntimeError(Exception):
    """Base of all errors of this package."""


class StreamingUnavailableError(StreamingRuntimeError):
    """A :class:`StreamingHandler` was called in a process whose Runtime API client cannot stream."""

    def __init__(self) -> None:
        super().__init__(
            "This process cannot stream its response. Start it with `python -m vectorforge.runtime HANDLER` "
            "(on a managed runtime: AWS_LAMBDA_EXEC_WRAPPER=/var/task/vectorforge/runtime/exec_wrapper), "
            "or serve the app buffered through Mangum."
        )


class UnsupportedEventError(StreamingRuntimeError):
    """The event is not an HTTP request of a Function URL, an API Gateway REST API or an HTTP API."""


class ProtocolError(StreamingRuntimeError):
    """The app violated the ASGI protocol, or its response is not valid HTTP."""


class LifespanError(StreamingRuntimeError):
    """The app's lifespan did not start."""


class DeadlineExceededError(StreamingRuntimeError):
    """The app was still running shortly before the timeout of its invocation."""


class ProcessExitError(StreamingRuntimeError):
    """The process was shut down before the response was complete."""

    error_type = "Runtime.ExitError"
    """Error type that Lambda itself reports for a process that ended too early."""

    def __init__(self) -> None:
        super().__init__("The process was shut down (SIGTERM) before the response was complete.")


class ResponseLostError(StreamingRuntimeError):
    """The Lambda service stopped reading this response: it disconnected or responded before the end."""


@dataclass
class StreamingInvocation:
    """Invocation whose response may be streamed."""

    runtime_api: str
    """``host:port`` of the Runtime API."""
    request_id: str
    invocation_id: str | None
    """Sent with the response, so that a late one is not attributed to another invocation."""
    answered: bool = False
    """True from the first byte of a response: nothing else may be posted."""


class StreamingClient(Protocol):
    """Runtime API client that supports a streamed response."""

    @property
    def invocation(self) -> StreamingInvocation | None:
        """Invocation returned by the last ``/next``; None before the first."""


_client: StreamingClient | None = None


def use_client(client: StreamingClient) -> None:
    """Set the client of this process."""
    global _client
    _client = client


def can_stream() -> bool:
    """Return True if the Runtime API client of this process can stream."""
    return _client is not None


def current_invocation() -> StreamingInvocation | None:
    """Return the current invocation, or None if there is none that can be streamed."""
    return None if _client is None else _client.invocation
