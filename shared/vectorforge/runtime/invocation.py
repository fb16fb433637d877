"""The words of ASGI (https://asgi.readthedocs.io), as types.

What can go wrong between a Lambda invocation and an ASGI app.

The texts name the limit or the setting that helps. They never copy a header's value, a body or another
error's text, for the first line of an error is what the Lambda service is told.

The invocation at hand, and whether this process can stream its response.

Apart from the client so that a handler module can be imported where awslambdaric is not installed.
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
    """The event is no HTTP request of a Function URL, an API Gateway REST API or an HTTP API."""


class ProtocolError(StreamingRuntimeError):
    """The app broke the ASGI protocol, or its response cannot be said in HTTP."""


class LifespanError(StreamingRuntimeError):
    """The app's lifespan did not start."""


class DeadlineExceededError(StreamingRuntimeError):
    """The app was still at work when the time of its invocation was nearly over."""


class ProcessExitError(StreamingRuntimeError):
    """The process was shut down before the response was complete."""

    error_type = "Runtime.ExitError"
    """What Lambda itself reports of a process that ended too early."""

    def __init__(self) -> None:
        super().__init__("The process was shut down (SIGTERM) before the response was complete.")


class ResponseLostError(StreamingRuntimeError):
    """The Lambda service no longer takes this response: it hung up or answered before the end."""


@dataclass
class Invocation:
    """One invocation, as far as its response is concerned."""

    runtime_api: str
    """``host:port`` of the Runtime API."""
    request_id: str
    invocation_id: str | None
    """Sent back with the response, so that a late one is not taken for another invocation's."""
    answered: bool = False
    """True from the first byte of a response on: nothing else may be posted."""


class StreamingClient(Protocol):
    """A Runtime API client that leaves room for a streamed response."""

    @property
    def invocation(self) -> Invocation | None:
        """The invocation that the last ``/next`` returned; None before the first."""


_client: StreamingClient | None = None


def use_client(client: StreamingClient) -> None:
    """Name the client whose loop this process runs."""
    global _client
    _client = client


def can_stream() -> bool:
    """Whether the Runtime API client of this process can stream, so that a StreamingHandler works in it."""
    return _client is not None


def current_invocation() -> Invocation | None:
    """The invocation at hand; None where there is none or none that can be streamed."""
    return None if _client is None else _client.invocation
