"""What can go wrong between a Lambda invocation and an ASGI app.

The texts name the limit or the setting that helps. They never copy a header's value, a body or another
error's text, for the first line of an error is what the Lambda service is told.
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
