"""awslambdaric's Runtime API clients, extended for handlers that stream their response.

awslambdaric's loop (``awslambdaric.bootstrap.run``) accepts a client, so its handling of events, contexts,
logs, X-Ray and errors is unchanged.
"""

import json
import logging
from collections.abc import Callable
from typing import Any

from awslambdaric.lambda_runtime_client import (
    BaseLambdaRuntimeClient,
    InvocationRequest,
    LambdaMultiConcurrentRuntimeClient,
    LambdaRuntimeClient,
)

from vectorforge.runtime.invocation import ProcessExitError, StreamingInvocation

_logger = logging.getLogger(__name__)

_REFUSED = "Failed to post"
"""Prefix of the C client's RuntimeError for a rejected response. Its other errors, such as invalid Unicode,
mean that nothing was posted: hidden, they would make the caller wait for the timeout."""


class _LeavesRoomForStreams(BaseLambdaRuntimeClient):  # type: ignore[misc]  # awslambdaric is untyped
    """Client that tracks the current invocation and posts nothing after a streamed response."""

    invocation: StreamingInvocation | None = None
    before_next: Callable[[], None] | None = None
    """Called before each wait for an event; may raise to end the loop."""

    def wait_next_invocation(self) -> InvocationRequest:
        if self.before_next is not None:
            self.before_next()
        request = super().wait_next_invocation()
        self.invocation = StreamingInvocation(
            self.lambda_runtime_address, request.invoke_id, request.invocation_id
        )
        return request

    def post_invocation_result(self, invoke_id: str, *args: Any, **kwargs: Any) -> None:
        if not self._answered(invoke_id):
            super().post_invocation_result(invoke_id, *args, **kwargs)
            self._end(invoke_id)

    def post_invocation_error(self, invoke_id: str, *args: Any, **kwargs: Any) -> None:
        # awslambdaric has logged the error; after the first byte the stream's trailers report it.
        if not self._answered(invoke_id):
            super().post_invocation_error(invoke_id, *args, **kwargs)
            self._end(invoke_id)

    def report_shutdown(self) -> None:
        """Fail the current invocation because the process ends, unless its response has started."""
        invocation = self.invocation
        if invocation is None or invocation.answered:
            return
        invocation.answered = True
        error = ProcessExitError()
        payload = {"errorMessage": str(error), "errorType": error.error_type, "stackTrace": []}
        try:
            super().post_invocation_error(
                invocation.request_id, json.dumps(payload), "", invocation.invocation_id
            )
        except Exception as exc:  # noqa: BLE001  # the service may have gone first
            _logger.warning("The shutdown could not be reported (%s).", type(exc).__name__)

    def _end(self, invoke_id: str) -> None:
        if self.invocation is not None and self.invocation.request_id == invoke_id:
            self.invocation.answered = True

    def _answered(self, invoke_id: str) -> bool:
        invocation = self.invocation
        return invocation is not None and invocation.answered and invocation.request_id == invoke_id


class StreamingRuntimeClient(_LeavesRoomForStreams, LambdaRuntimeClient):  # type: ignore[misc]  # untyped base
    """The client of a process that works on one invocation at a time."""

    def handle_exception(self, exc: Exception, func_to_retry: Any = None, use_backoff: bool = False) -> None:
        """Survive a response that the service rejects, e.g. as 410 (stale) or 413 (too large).

        awslambdaric's own client would end the process, which costs the next caller a cold start; its client
        for concurrent invocations continues, as this does. If the service is gone, ``/next`` fails.

        Raises:
            Exception: ``exc``, if it is from ``/next`` or not a response of the service.
        """
        is_refusal = isinstance(exc, RuntimeError) and str(exc).startswith(_REFUSED)
        if func_to_retry is not None or not is_refusal:
            raise exc
        # The C client only prints the status (410 stale, 413 too large).
        _logger.warning(
            "The Lambda service did not take this response (%s: %s; the line before has its status); going "
            "on to the next invocation.",
            type(exc).__name__,
            exc,
        )


class StreamingMultiConcurrentClient(
    _LeavesRoomForStreams,
    LambdaMultiConcurrentRuntimeClient,  # type: ignore[misc]  # untyped base
):
    """The client of one of the processes that share an environment (``AWS_LAMBDA_MAX_CONCURRENCY``)."""
