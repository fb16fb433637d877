"""Execution environment of a function on the Lambda service, driven from LocalStack's threads."""

import asyncio
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, Unpack

from infra.emulator.lambda_service.function_configuration import FunctionConfiguration
from infra.emulator.lambda_service.function_process import FunctionProcess
from infra.emulator.lambda_service.invocation import InvocationOptions
from infra.emulator.lambda_service.proxy_responses import STREAM_CONTENT_TYPE
from infra.emulator.localstack_plugins.streamed_response import as_proxy_response

T = TypeVar("T")
TASK_ROOT = "/var/task"
"""Folder of the function's code on Lambda; paths below it in its variables become real ones."""

_INTERNAL = ("LOCALSTACK_", "_LOCALSTACK_", "EDGE_PORT", "AWS_LAMBDA_RUNTIME_API")
"""Variables that LocalStack sets for its own containers."""
_WRAPPER = "AWS_LAMBDA_EXEC_WRAPPER"
_PATH = "/usr/local/bin:/usr/bin:/bin"
_INIT_TIMEOUT_S = 3600.0  # LocalStack stops an environment whose init phase takes too long


@dataclass(frozen=True)
class SandboxConfiguration:
    """Code, variables and interpreter of a function."""

    code: Path
    """The unzipped code, which holds the only packages that the process sees."""
    variables: Mapping[str, object]
    """Variables of the function, and those that Lambda sets."""
    name: str = "function"
    timeout_s: float = 30.0
    python: str = sys.executable
    """Interpreter of the version that the code was bundled for."""
    mounts: Mapping[str, str] = field(default_factory=dict)
    """Files of this machine by the path that the function reads."""

    def function(self, temporary: str) -> FunctionConfiguration:
        """Return the configuration for the Lambda service.

        Args:
            temporary: Folder for temporary files.
        """
        # Without site-packages: what the bundle lacks is missing. No bytecode is written, as on Lambda.
        command = [self.python, "-S", "-B", "-m", "awslambdaric"]
        wrapper = self.variables.get(_WRAPPER)
        return FunctionConfiguration(
            handler=str(self.variables["_HANDLER"]),
            environment=self._environment(temporary),
            command=[self._local(str(wrapper)), *command] if wrapper else command,
            name=self.name,
            timeout_s=self.timeout_s,
            init_timeout_s=_INIT_TIMEOUT_S,
            task_root=self.code,
            recursive_loop="Allow",
        )

    def _environment(self, temporary: str) -> dict[str, str]:
        own = {
            "LANG": "C.UTF-8",
            "PATH": _PATH,
            "TMPDIR": temporary,
            **{
                name: self._local(str(value))
                for name, value in self.variables.items()
                if not name.startswith(_INTERNAL)
            },
            "AWS_EXECUTION_ENV": f"AWS_Lambda_python{python_version(self.python)}",
            "LAMBDA_TASK_ROOT": str(self.code),
            "PYTHONPATH": str(self.code),
        }
        if "AWS_LAMBDA_LOG_LEVEL" in own:  # LocalStack writes "Info"
            own["AWS_LAMBDA_LOG_LEVEL"] = own["AWS_LAMBDA_LOG_LEVEL"].upper()
        return own

    def _local(self, text: str) -> str:
        """Replace Lambda's paths by those of this machine."""
        for path, local in self.mounts.items():
            text = text.replace(path, local)
        return str(self.code) if text == TASK_ROOT else text.replace(f"{TASK_ROOT}/", f"{self.code}/")


@dataclass(frozen=True)
class Outcome:
    """Result of an invocation: the response, or the error as JSON."""

    payload: bytes
    is_error: bool


class FunctionSandbox:
    """Runs a function's process; one that died is replaced by the next event. End it with ``stop``.

    Args:
        configuration: Configuration of the function.
        log: File to append the output to; None: not kept.
    """

    def __init__(self, configuration: SandboxConfiguration, log: Path | None = None) -> None:
        self._temporary = tempfile.mkdtemp(prefix="lambda-")
        self._log = log
        self._unread: list[str] = []
        self.process = FunctionProcess(configuration.function(self._temporary), on_log=self._keep)

    def start(self) -> None:
        """Start the process, and wait for the end of its init phase.

        Raises:
            FunctionFailedError: The init phase failed, or the sandbox was stopped.
        """
        _on_loop(self.process.start())

    def invoke(self, payload: bytes, **options: Unpack[InvocationOptions]) -> Outcome:
        """Pass an event to the function and wait for its result, at most for its timeout."""
        return _on_loop(self._invoke(payload, options))

    def write(self, line: str) -> None:
        """Add a line to the output."""
        _on_loop(self._write(line))

    def take_output(self) -> str:
        """Return the output since the last call."""
        return _on_loop(self._take())

    def stop(self) -> None:
        """Send SIGTERM, after two seconds SIGKILL; an invocation under way fails."""
        _on_loop(self.process.stop())
        shutil.rmtree(self._temporary, ignore_errors=True)

    async def _invoke(self, payload: bytes, options: InvocationOptions) -> Outcome:
        invocation = await self.process.invoke(payload, **options)
        await invocation.ended.wait()
        self.process.environment.read_output()
        if invocation.error is not None:
            return Outcome(invocation.error.payload, is_error=True)
        streamed = invocation.content_type == STREAM_CONTENT_TYPE
        return Outcome(as_proxy_response(invocation.body) if streamed else invocation.body, is_error=False)

    async def _write(self, line: str) -> None:
        self.process.output.add(line.encode())

    async def _take(self) -> str:
        unread, self._unread = self._unread, []
        return "".join(unread)

    def _keep(self, line: str) -> None:
        self._unread.append(f"{line}\n")
        if self._log is not None:
            with self._log.open("a", encoding="utf-8") as opened:
                opened.write(f"{line}\n")


@cache
def python_version(python: str) -> str:
    """Return the version of an interpreter, such as "3.13"."""
    code = "import sys; print('%d.%d' % sys.version_info[:2])"
    found = subprocess.run([python, "-I", "-S", "-c", code], capture_output=True, text=True, check=True)  # noqa: S603 - as configured
    return found.stdout.strip()


@cache
def _event_loop() -> asyncio.AbstractEventLoop:
    """Start the thread that serves all sandboxes of this process."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="lambda-service", daemon=True).start()
    return loop


def _on_loop(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run_coroutine_threadsafe(work, _event_loop()).result()
