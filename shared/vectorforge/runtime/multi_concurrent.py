"""Processes that share an environment (``AWS_LAMBDA_MAX_CONCURRENCY``), each with its own client and loop."""

import signal
from collections.abc import Callable
from multiprocessing import active_children
from types import FrameType

from awslambdaric.lambda_config import LambdaConfigProvider
from awslambdaric.lambda_multi_concurrent_utils import MultiConcurrentRunner


def run_concurrently(
    config: LambdaConfigProvider, serve: Callable[[str, str, bool], None], *, use_thread: bool
) -> None:
    """Fork the processes and wait for their end; SIGTERM is passed on to them.

    Args:
        config: Configuration of the environment.
        serve: Runs one process: called with the handler's name, the address of the Runtime API and
            ``use_thread``.
        use_thread: Poll in a thread.
    """

    class Runner(MultiConcurrentRunner):  # type: ignore[misc]  # awslambdaric is untyped
        @classmethod
        def run_single(cls, handler: str, api_addr: str, use_thread: bool, socket_path: str | None) -> None:
            if socket_path:
                cls._redirect_output(socket_path)
            serve(handler, api_addr, use_thread)

    signal.signal(signal.SIGTERM, _pass_on)
    Runner.run_concurrent(
        config.handler, config.api_address, use_thread, config.lmi_socket_path, int(config.max_concurrency)
    )


def _pass_on(_signal: int, _frame: FrameType | None) -> None:
    for process in active_children():
        process.terminate()
