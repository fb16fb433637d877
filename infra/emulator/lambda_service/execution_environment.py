"""Execution environment: a process with its own Runtime API."""

import asyncio
import contextlib
import os
import signal
from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import Self

from infra.emulator.lambda_service.function_configuration import FunctionConfiguration
from infra.emulator.lambda_service.invocation import FunctionError, Hook, HookPoint
from infra.emulator.lambda_service.process_output import OutputPipe, ProcessOutput
from infra.emulator.lambda_service.runtime_api import RuntimeApi

_SHUTDOWN_S = 2.0
"""Between SIGTERM and SIGKILL: https://docs.aws.amazon.com/lambda/latest/dg/lambda-runtime-environment.html"""
_LAST_BYTES_S = 2.0
"""Time to read what a dead process left in its sockets."""


class ExecutionEnvironment:
    """One process from start to end.

    Args:
        runtime_api: Its Runtime API, which is open.
        process: The process.
        pipe: Its output.

    Attributes:
        exit: Task that ends with the process; its result is the return code.
        pid: Id of the process, which is also its group.
    """

    def __init__(
        self, runtime_api: RuntimeApi, process: asyncio.subprocess.Process, pipe: OutputPipe
    ) -> None:
        self.runtime_api = runtime_api
        self.exit = asyncio.create_task(process.wait())
        self.pid = process.pid
        self._process = process
        self._pipe = pipe
        self._closing = asyncio.Lock()

    @classmethod
    async def start(
        cls, configuration: FunctionConfiguration, hooks: Mapping[HookPoint, Hook], output: ProcessOutput
    ) -> Self:
        """Listen, and start the process.

        Args:
            configuration: Configuration of the function.
            hooks: For its Runtime API.
            output: Receives the lines of the process.

        Raises:
            OSError: The command cannot be run.
        """
        runtime_api = RuntimeApi(
            function_arn=configuration.arn,
            hooks=hooks,
            buffered_limit=configuration.buffered_limit,
            streaming_limit=configuration.streaming_limit,
            concurrency=configuration.max_concurrency,
            snap_start=configuration.snap_start,
        )
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(runtime_api)
            pipe = OutputPipe(output)
            stack.callback(pipe.close)
            try:
                process = await asyncio.create_subprocess_exec(
                    *configuration.command,
                    configuration.handler,
                    env=configuration.variables(runtime_api.address),
                    cwd=configuration.task_root,
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=pipe.write_end,
                    stderr=pipe.write_end,
                    start_new_session=True,  # signals reach its children, too, as in a sandbox
                )
            finally:
                pipe.started()
            stack.pop_all()
        environment = cls(runtime_api, process, pipe)
        if configuration.freeze_between_invocations:
            runtime_api.on_idle = environment.freeze
        return environment

    @property
    def is_running(self) -> bool:
        """True while the process is alive, running or frozen."""
        return self._process.returncode is None

    def freeze(self) -> None:
        """SIGSTOP."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """SIGCONT."""
        self._signal(signal.SIGCONT)

    async def kill(self) -> None:
        """SIGKILL, and wait for the end."""
        self._signal(signal.SIGKILL)
        await asyncio.wait([self.exit])

    async def terminate(self) -> None:
        """SIGTERM; after two seconds SIGKILL."""
        if self.is_running:
            self.thaw()
            self._signal(signal.SIGTERM)
            await asyncio.wait([self.exit], timeout=_SHUTDOWN_S)
        await self.close()

    def read_output(self) -> None:
        """Collect what the process has written so far."""
        self._pipe.catch_up()

    async def close(self) -> None:
        """Kill the rest of it, read its last bytes and stop listening."""
        async with self._closing:
            await self._close()

    async def _close(self) -> None:
        if self.is_running:
            await self.kill()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)  # children that outlived it
        await self.runtime_api.drain(_LAST_BYTES_S)
        self.runtime_api.fail_outstanding(self.exit_error(""))
        await self.runtime_api.__aexit__()
        self._pipe.close()

    def exit_error(self, request_id: str) -> FunctionError:
        """Return the error of an invocation whose process ended before it answered."""
        if (reported := self.runtime_api.init_error) is not None:
            return reported
        code = self.exit.result() if self.exit.done() else 0
        if code < 0:
            reason = f"Runtime exited with error: signal: {_SIGNAL_WORDS.get(-code, str(-code))}"
        elif code > 0:
            reason = f"Runtime exited with error: exit status {code}"
        else:
            reason = "Runtime exited without providing a reason"
        prefix = f"RequestId: {request_id} " if request_id else ""
        return FunctionError.of("Runtime.ExitError", f"{prefix}Error: {reason}")

    def _signal(self, number: signal.Signals) -> None:
        if self.is_running:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, number)


_SIGNAL_WORDS: dict[int, str] = {
    signal.SIGKILL: "killed",
    signal.SIGTERM: "terminated",
    signal.SIGSEGV: "segmentation fault",
}
