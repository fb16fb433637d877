"""Streaming Lambda runtime for ASGI apps.

Serve a FastAPI, Starlette or any ASGI app from AWS Lambda as a stream, without a sidecar::

    # app.py
    from fastapi import FastAPI
    from vectorforge.runtime import StreamingHandler

    app = FastAPI()
    handler = StreamingHandler(app)

Run it as ``python -m vectorforge.runtime app.handler`` in a container image, or on a managed Python runtime
with ``AWS_LAMBDA_EXEC_WRAPPER=/var/task/vectorforge/runtime/exec_wrapper``; behind a Function URL with
``InvokeMode: RESPONSE_STREAM`` or an API Gateway REST API with ``ResponseTransferMode: STREAM``.

The loop is that of AWS's own runtime interface client (``awslambdaric``), so contexts, logs, X-Ray, SnapStart
and errors work as usual, and plain handlers run unchanged. Only the loop's client object is a subclass: when
a handler has streamed its response, nothing more is posted for that invocation. Mangum's code converts events
to ASGI scopes.

Details: ``docs/design/streaming-on-lambda.md``. This package imports nothing else of the library.
"""

from vectorforge.runtime.errors import (
    DeadlineExceededError,
    LifespanError,
    ProtocolError,
    StreamingRuntimeError,
    StreamingUnavailableError,
    UnsupportedEventError,
)
from vectorforge.runtime.event_loop import event_loop, run_in_loop
from vectorforge.runtime.handler import StreamedResponse, StreamingHandler
from vectorforge.runtime.http_event import mounted
from vectorforge.runtime.response_stream import can_stream

__all__ = [
    "DeadlineExceededError",
    "LifespanError",
    "ProtocolError",
    "StreamedResponse",
    "StreamingHandler",
    "StreamingRuntimeError",
    "StreamingUnavailableError",
    "UnsupportedEventError",
    "can_stream",
    "event_loop",
    "mounted",
    "run_in_loop",
]
