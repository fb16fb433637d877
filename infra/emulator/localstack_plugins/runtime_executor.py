"""Lambda functions as processes of this machine, in place of LocalStack's Docker containers.

LocalStack keeps one executor for each execution environment, starts another when all are busy, and stops one
that has been idle for ten minutes.
"""

import time
from pathlib import Path
from typing import Any

from localstack.services.lambda_.invocation.executor_endpoint import StatusErrorException
from localstack.services.lambda_.invocation.lambda_models import InvocationResult
from localstack.services.lambda_.invocation.plugins import RuntimeExecutorPlugin
from localstack.services.lambda_.invocation.runtime_executor import (
    LambdaRuntimeException,
    RuntimeExecutor,
)

from infra.emulator.lambda_service.invocation import FunctionFailedError
from infra.emulator.localstack_plugins.function_sandbox import (
    FunctionSandbox,
    SandboxConfiguration,
    python_version,
)
from infra.emulator.localstack_plugins.settings import Settings

_HOST = "127.0.0.1"


class ProcessRuntimeExecutorPlugin(RuntimeExecutorPlugin):  # type: ignore[misc]  # LocalStack is not installed here
    """Registers the executor as ``LAMBDA_RUNTIME_EXECUTOR=process``."""

    name = "process"

    def load(self, *_: Any, **__: Any) -> type["ProcessRuntimeExecutor"]:
        """Return the class of the executor."""
        return ProcessRuntimeExecutor


class ProcessRuntimeExecutor(RuntimeExecutor):  # type: ignore[misc]  # LocalStack is not installed here
    """One execution environment, with the interface of LocalStack's ``RuntimeExecutor``."""

    def __init__(self, id: str, function_version: Any) -> None:  # noqa: A002 - LocalStack's name
        super().__init__(id, function_version)
        self._sandbox: FunctionSandbox | None = None

    def start(self, env_vars: dict[str, Any]) -> None:
        """Start a process and wait for the end of its init phase."""
        settings, configuration = Settings.from_environment(), self.function_version.config
        name = self.function_version.id.function_name
        self._sandbox = FunctionSandbox(
            SandboxConfiguration(
                code=configuration.code.get_unzipped_code_location(),
                variables=env_vars,
                name=name,
                timeout_s=float(configuration.timeout),
                python=settings.python,
                mounts=settings.mounts,
            ),
            Path(settings.logs, f"{name}.log") if settings.logs else None,
        )
        try:
            self._sandbox.start()
        except FunctionFailedError as exc:
            raise StatusErrorException("The init phase failed", payload=exc.error.payload) from exc

    def stop(self) -> None:
        """Stop the process."""
        if self._sandbox is not None:
            self._sandbox.stop()

    def invoke(self, payload: dict[str, str]) -> InvocationResult:
        """Pass an event to the function and wait for its result, at most for its timeout."""
        sandbox, request_id = self._sandbox, payload["invoke-id"]
        if sandbox is None:
            raise LambdaRuntimeException("The execution environment is not running.")
        sandbox.write(f"START RequestId: {request_id} Version: {self.function_version.id.qualifier}")
        started = time.monotonic()
        outcome = sandbox.invoke(
            payload["payload"].encode(),
            request_id=request_id,
            function_arn=payload["invoked-function-arn"],
            trace_id=payload["trace-id"],
        )
        duration_ms = (time.monotonic() - started) * 1000
        memory_mb = self.function_version.config.memory_size
        sandbox.write(f"END RequestId: {request_id}")
        sandbox.write(
            f"REPORT RequestId: {request_id}\tDuration: {duration_ms:.2f} ms\tMemory Size: {memory_mb} MB"
        )
        logs = sandbox.take_output()
        return InvocationResult(request_id, outcome.payload, is_error=outcome.is_error, logs=logs)

    def get_logs(self) -> str:
        """Return the output since the last invocation."""
        return self._sandbox.take_output() if self._sandbox is not None else ""

    def get_address(self) -> str:
        """Return the host of the process."""
        return _HOST

    def get_endpoint_from_executor(self) -> str:
        """Return LocalStack's host as the process sees it."""
        return _HOST

    def get_runtime_endpoint(self) -> str:
        """Return the address that LocalStack's own containers report to; these processes do not."""
        return "http://127.0.0.1/unused"

    @classmethod
    def prepare_version(cls, function_version: Any) -> None:
        """Unzip the code.

        Raises:
            LambdaRuntimeException: The function is a container image, or was made for another interpreter.
        """
        configuration = function_version.config
        if configuration.code is None:
            raise LambdaRuntimeException("Functions in container images cannot run as processes.")
        local = f"python{python_version(Settings.from_environment().python)}"
        if configuration.runtime != local:
            raise LambdaRuntimeException(
                f"{function_version.id.function_name} is made for {configuration.runtime}; this machine runs "
                f"functions with {local}."
            )
        configuration.code.prepare_for_execution()

    @classmethod
    def cleanup_version(cls, function_version: Any) -> None:
        """Do nothing: other versions may have the same code."""
