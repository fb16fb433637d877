"""Life of a function's process: init phase, awslambdaric's loop, SIGTERM, shutdown.

awslambdaric's loop (``awslambdaric.bootstrap.run``) accepts a client, so its handling of events, contexts,
logs, X-Ray and errors is unchanged; the clients here add handlers that stream their response.
"""

import json
import logging
import os
import signal
import sys
import traceback
from collections.abc import Callable
from types import FrameType, ModuleType
from typing import Any

from awslambdaric import bootstrap
from awslambdaric.lambda_config import LambdaConfigProvider
from awslambdaric.lambda_runtime_client import (
    BaseLambdaRuntimeClient,
    InvocationRequest,
    LambdaMultiConcurrentRuntimeClient,
    LambdaRuntimeClient,
)
from awslambdaric.lambda_runtime_exception import FaultException

from vectorforge.runtime.errors import ProcessExitError
from vectorforge.runtime.event_loop import begin_shutdown, close_event_loop, event_loop, event_loop_is_running
from vectorforge.runtime.response_stream import StreamingInvocation, use_client

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


_PATIENCE_S = 0.06
"""Longest block of the event loop before it is interrupted."""


class Terminated(SystemExit):
    """SIGTERM came."""


class Termination:
    """Raises :class:`Terminated` in the main thread, once, after SIGTERM."""

    def __init__(self) -> None:
        self._requested = False
        self._raised = False

    def install(self) -> None:
        """Handle SIGTERM from now on; only the main thread may call this."""
        signal.signal(signal.SIGTERM, self._handle)

    def check(self) -> None:
        """Raise after a pending SIGTERM; called before the process waits.

        A callback of the loop's last iteration would only run in the next invocation.
        """
        if self._requested:
            self._raise()

    def _handle(self, _signal: int, _frame: FrameType | None) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        self._requested = True
        begin_shutdown()
        if not event_loop_is_running():
            self._raise()
        # Between two steps of its tasks, unless one of them blocks.
        signal.signal(signal.SIGALRM, lambda _signal, _frame: self._raise())
        signal.setitimer(signal.ITIMER_REAL, _PATIENCE_S)
        event_loop().call_soon_threadsafe(self._raise)

    def _raise(self) -> None:
        if self._raised:
            return
        self._raised = True
        signal.setitimer(signal.ITIMER_REAL, 0)
        raise Terminated(0)


_POLL_IN_A_THREAD = True
"""Python handles a signal in the main thread only, and not while that is inside the C client."""


class InitPhase(ModuleType):
    """Module in which awslambdaric looks up the handler.

    Its loop imports a module and reads an attribute, with its own handling of errors in the init phase and
    before SnapStart's snapshot. Reading ``handler`` loads the real one and calls its ``startup()``.
    """

    def __init__(self, handler_name: str) -> None:
        super().__init__(f"{__package__}.init_phase")
        self._handler_name = handler_name
        self._loaded: Any = None

    @property
    def handler(self) -> Callable[[Any, Any], Any]:
        """The function's handler, started.

        Raises:
            FaultException: It cannot be loaded, or its ``startup()`` failed.
        """
        try:
            loaded = bootstrap._get_handler(self._handler_name)  # noqa: SLF001  # its messages and error types
            _call_hook(loaded, "startup")
        except FaultException:
            raise
        except Exception as exc:  # an AttributeError would be taken for a missing handler
            trace = traceback.format_list(traceback.extract_tb(exc.__traceback__))
            raise FaultException(type(exc).__name__, str(exc), trace) from exc
        self._loaded = loaded
        return loaded  # type: ignore[no-any-return]  # whatever the module holds under that name

    def shutdown(self) -> None:
        """Call the handler's ``shutdown()``, if it was started and has one."""
        if self._loaded is not None:
            _call_hook(self._loaded, "shutdown")


def main(arguments: list[str]) -> None:
    """Run a function: ``[program, "module.handler"]``; without a handler the one in ``_HANDLER``."""
    if len(arguments) < 2 and "_HANDLER" in os.environ:
        arguments = [*arguments, os.environ["_HANDLER"]]
    config = LambdaConfigProvider(arguments)
    if config.is_multi_concurrent:
        _run_concurrently(config)
    else:
        serve(config.handler, StreamingRuntimeClient(config.api_address, _POLL_IN_A_THREAD))


def _run_concurrently(config: LambdaConfigProvider) -> None:
    """Fork the processes that share an environment (``AWS_LAMBDA_MAX_CONCURRENCY``), and wait for their end.

    Each has its own client and loop; SIGTERM is passed on to them.
    """
    from multiprocessing import active_children

    from awslambdaric.lambda_multi_concurrent_utils import MultiConcurrentRunner

    class Runner(MultiConcurrentRunner):  # type: ignore[misc]  # awslambdaric is untyped
        @classmethod
        def run_single(cls, handler: str, api_addr: str, use_thread: bool, socket_path: str | None) -> None:
            if socket_path:
                cls._redirect_output(socket_path)
            serve(handler, StreamingMultiConcurrentClient(api_addr, use_thread))

    def pass_on(_signal: int, _frame: FrameType | None) -> None:
        for process in active_children():
            process.terminate()

    signal.signal(signal.SIGTERM, pass_on)
    Runner.run_concurrent(
        config.handler,
        config.api_address,
        _POLL_IN_A_THREAD,
        config.lmi_socket_path,
        int(config.max_concurrency),
    )


def serve(handler_name: str, client: StreamingRuntimeClient | StreamingMultiConcurrentClient) -> None:
    """Run awslambdaric's loop in this process until it ends; then the handler's ``shutdown()``."""
    use_client(client)
    init_phase = InitPhase(handler_name)
    sys.modules[init_phase.__name__] = init_phase
    termination = Termination()
    termination.install()
    client.before_next = termination.check
    terminated = False
    try:
        bootstrap.run(f"{init_phase.__name__}.handler", client)
    except Terminated:
        terminated = True
        client.report_shutdown()
    finally:
        _end(init_phase)
    if terminated:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)  # a normal exit would wait for the thread inside /next


def _end(init_phase: InitPhase) -> None:
    try:
        init_phase.shutdown()
    except Exception:  # noqa: BLE001  # the process ends in any case
        traceback.print_exc()
    finally:
        close_event_loop()


def _call_hook(handler: Any, name: str) -> None:
    """Call a method of the handler, or of the one inside its decorators, if there is one."""
    while handler is not None:
        hook = getattr(handler, name, None)
        if callable(hook):
            hook()
            return
        handler = getattr(handler, "__wrapped__", None)
