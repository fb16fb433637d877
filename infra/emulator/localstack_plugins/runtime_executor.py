"""Runs Lambda functions as processes of this machine, in place of LocalStack's Docker containers.

LocalStack keeps one executor for each execution environment, starts another one when all are busy, and
stops one that has been idle for ten minutes.
"""

import time
from typing import Any

from localstack.services.lambda_.invocation.executor_endpoint import StatusErrorException
from localstack.services.lambda_.invocation.lambda_models import InvocationResult
from localstack.services.lambda_.invocation.plugins import RuntimeExecutorPlugin
from localstack.services.lambda_.invocation.runtime_executor import (
    LambdaRuntimeException,
    RuntimeExecutor,
)

from .process_output import ProcessOutput
from .runtime_api import Event, InitError, Outcome
from .sandbox import Sandbox, SandboxConfiguration, python_version
from .settings import Settings

_HOST = "127.0.0.1"
_STARTS_PER_EVENT = 3
"""Processes that may die one after another before one takes the event."""


class ProcessRuntimeExecutorPlugin(RuntimeExecutorPlugin):  # type: ignore[misc]  # LocalStack is not installed here
    """Makes the executor known to LocalStack as ``LAMBDA_RUNTIME_EXECUTOR=process``."""

    name = "process"

    def load(self, *_: Any, **__: Any) -> type["ProcessRuntimeExecutor"]:
        """The executor's class."""
        return ProcessRuntimeExecutor


class ProcessRuntimeExecutor(RuntimeExecutor):  # type: ignore[misc]  # LocalStack is not installed here
    """One execution environment. A process that died or was killed is replaced by the next event.

    Its methods are LocalStack's: see ``localstack.services.lambda_.invocation.runtime_executor``.
    """

    def __init__(self, id: str, function_version: Any) -> None:  # noqa: A002 - LocalStack's name
        super().__init__(id, function_version)
        logs = Settings.from_environment().logs
        name = function_version.id.function_name
        self._output = ProcessOutput(logs / f"{name}.log" if logs else None)
        self._configuration: SandboxConfiguration | None = None
        self._sandbox: Sandbox | None = None
        self._stopped = False

    def start(self, env_vars: dict[str, Any]) -> None:
        """Start a process and wait for the end of its init phase; LocalStack ends one that takes too long."""
        settings = Settings.from_environment()
        code = self.function_version.config.code.get_unzipped_code_location()
        self._configuration = SandboxConfiguration(code, env_vars, settings.python, settings.mounts)
        try:
            self._ready_sandbox()
        except InitError as exc:
            raise StatusErrorException("The init phase failed", payload=exc.payload) from exc

    def stop(self) -> None:
        """End the process."""
        self._stopped = True
        if self._sandbox is not None:
            self._sandbox.stop()

    def invoke(self, payload: dict[str, str]) -> InvocationResult:
        """Hand over an event and wait for its end, at most for the function's timeout."""
        request_id = payload["invoke-id"]
        timeout_s = float(self.function_version.config.timeout)
        event = Event(
            request_id,
            payload["payload"].encode(),
            {
                "Lambda-Runtime-Deadline-Ms": str(int((time.time() + timeout_s) * 1000)),
                "Lambda-Runtime-Invoked-Function-Arn": payload["invoked-function-arn"],
                "Lambda-Runtime-Trace-Id": payload["trace-id"],
            },
        )
        qualifier = self.function_version.id.qualifier
        self._output.add(f"START RequestId: {request_id} Version: {qualifier}\n".encode())
        started = time.monotonic()
        outcome = self._outcome(event, timeout_s)
        milliseconds = (time.monotonic() - started) * 1000
        self._output.add(_report(request_id, milliseconds, self.function_version.config.memory_size))
        return InvocationResult(
            request_id, outcome.payload, is_error=outcome.is_error, logs=self._output.take()
        )

    def get_logs(self) -> str:
        """What was written since the last invocation."""
        return self._output.take()

    def get_address(self) -> str:
        """Of the process."""
        return _HOST

    def get_endpoint_from_executor(self) -> str:
        """Host of LocalStack, as the process sees it."""
        return _HOST

    def get_runtime_endpoint(self) -> str:
        """Where LocalStack's own containers report to; these processes do not."""
        return "http://127.0.0.1/unused"

    @classmethod
    def prepare_version(cls, function_version: Any) -> None:
        """Unzip the code.

        Raises:
            LambdaRuntimeException: It is a container image, or was made for another interpreter.
        """
        configuration = function_version.config
        if configuration.code is None:
            raise LambdaRuntimeException("Functions in container images cannot be run as processes.")
        here = f"python{python_version(Settings.from_environment().python)}"
        if configuration.runtime != here:
            raise LambdaRuntimeException(
                f"{function_version.id.function_name} is made for {configuration.runtime}; "
                f"functions are run by {here} here."
            )
        configuration.code.prepare_for_execution()

    @classmethod
    def cleanup_version(cls, function_version: Any) -> None:
        """Nothing: other versions may have the same code."""

    def _outcome(self, event: Event, timeout_s: float) -> Outcome:
        try:
            for _ in range(_STARTS_PER_EVENT):
                outcome = self._ready_sandbox().invoke(event, timeout_s)
                if outcome is not None:
                    return outcome
                event = Event(event.request_id, event.payload, event.headers)
        except InitError as exc:
            return Outcome(exc.payload, is_error=True)
        raise LambdaRuntimeException(
            f"The function's process ended {_STARTS_PER_EVENT} times without a word."
        )

    def _ready_sandbox(self) -> Sandbox:
        """The process; a new one in place of one that died."""
        if self._sandbox is not None and self._sandbox.is_running:
            return self._sandbox
        if self._sandbox is not None:
            self._sandbox.stop()
        if self._configuration is None or self._stopped:
            raise LambdaRuntimeException("The execution environment does not run.")
        self._sandbox = Sandbox(self._configuration, self._output)
        self._sandbox.wait_until_ready()
        return self._sandbox


def _report(request_id: str, milliseconds: float, memory_mb: int) -> bytes:
    lines = [
        f"END RequestId: {request_id}",
        f"REPORT RequestId: {request_id}\tDuration: {milliseconds:.2f} ms\tMemory Size: {memory_mb} MB",
    ]
    return ("\n".join(lines) + "\n").encode()
