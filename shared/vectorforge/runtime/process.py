"""Life of a function's process: init phase, awslambdaric's loop, SIGTERM, shutdown."""

import os
import signal
import sys
import traceback
from collections.abc import Callable
from multiprocessing import active_children
from types import FrameType, ModuleType
from typing import Any

from awslambdaric import bootstrap
from awslambdaric.lambda_config import LambdaConfigProvider
from awslambdaric.lambda_multi_concurrent_utils import MultiConcurrentRunner
from awslambdaric.lambda_runtime_exception import FaultException

from vectorforge.runtime.client import StreamingMultiConcurrentClient, StreamingRuntimeClient
from vectorforge.runtime.event_loop import begin_shutdown, close_event_loop, event_loop, event_loop_is_running
from vectorforge.runtime.invocation import use_client

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
        signal.signal(signal.SIGALRM, self._handle_alarm)
        signal.setitimer(signal.ITIMER_REAL, _PATIENCE_S)
        event_loop().call_soon_threadsafe(self._raise)

    def _handle_alarm(self, _signal: int, _frame: FrameType | None) -> None:
        self._raise()

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


class _Runner(MultiConcurrentRunner):  # type: ignore[misc]  # awslambdaric is untyped
    """Forks the processes that share an environment; each has its own client, loop and handler."""

    @classmethod
    def run_single(cls, handler: str, api_addr: str, use_thread: bool, socket_path: str | None) -> None:
        if socket_path:
            cls._redirect_output(socket_path)
        serve(handler, StreamingMultiConcurrentClient(api_addr, use_thread))


def main(arguments: list[str]) -> None:
    """Run a function: ``[program, "module.handler"]``; without a handler the one in ``_HANDLER``."""
    if len(arguments) < 2 and "_HANDLER" in os.environ:
        arguments = [*arguments, os.environ["_HANDLER"]]
    config = LambdaConfigProvider(arguments)
    if not config.is_multi_concurrent:
        serve(config.handler, StreamingRuntimeClient(config.api_address, _POLL_IN_A_THREAD))
        return
    signal.signal(signal.SIGTERM, _pass_on)
    _Runner.run_concurrent(
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


def _pass_on(_signal: int, _frame: FrameType | None) -> None:
    for process in active_children():
        process.terminate()


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
