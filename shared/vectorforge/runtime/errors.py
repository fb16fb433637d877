"""Errors of the runtime.

Their texts name the limit or the setting that helps. They never copy a header's value, a body or another
error's text, since the Lambda service receives their first line.
"""


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
