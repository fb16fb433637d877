"""One function's process: what it is started with, what it may see, and how it ends."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from .process_output import ProcessOutput
from .runtime_api import Event, InitError, Outcome, RuntimeApi

TASK_ROOT = "/var/task"
"""Where Lambda has the function's code; paths below it in its variables are turned into real ones."""
BOOTSTRAP = Path(__file__).with_name("bootstrap.py")

_WRAPPER = "AWS_LAMBDA_EXEC_WRAPPER"
_INTERNAL = ("LOCALSTACK_", "_LOCALSTACK_", "EDGE_PORT")
"""Variables that LocalStack has for its own containers."""
_SHUTDOWN_S = 2.0
"""Between SIGTERM and SIGKILL: https://docs.aws.amazon.com/lambda/latest/dg/lambda-runtime-environment.html"""
_PATH = "/usr/local/bin:/usr/bin:/bin"


@dataclass(frozen=True)
class SandboxConfiguration:
    """What a function's process is started with."""

    code: Path
    """The unzipped code; the only packages the process sees."""
    variables: Mapping[str, object]
    """The function's variables and those that Lambda sets."""
    python: str = sys.executable
    """The interpreter, of the version that the code was bundled for."""
    mounts: Mapping[str, str] = field(default_factory=dict)
    """Files of this machine by the path at which the function looks for them."""

    def command(self) -> list[str]:
        """As Lambda starts a Python function: its own program, or a wrapper around it."""
        # Without site-packages: what the bundle lacks is lacking. No bytecode is written, as on Lambda.
        command = [self.python, "-S", "-B", str(BOOTSTRAP)]
        wrapper = self.variables.get(_WRAPPER)
        return [self.local(str(wrapper)), *command] if wrapper else command

    def environment(self, runtime_api: str, temporary: str) -> dict[str, str]:
        """Of the process: nothing of this machine's.

        Args:
            runtime_api: Host and port.
            temporary: Folder of its own for temporary files.
        """
        version = python_version(self.python)
        own = {
            "LANG": "C.UTF-8",
            "PATH": _PATH,
            "TMPDIR": temporary,
            **{
                name: self.local(str(value))
                for name, value in self.variables.items()
                if not name.startswith(_INTERNAL)
            },
            "AWS_EXECUTION_ENV": f"AWS_Lambda_python{version}",
            "AWS_LAMBDA_RUNTIME_API": runtime_api,
            "LAMBDA_RUNTIME_DIR": str(BOOTSTRAP.parent),
            "LAMBDA_TASK_ROOT": str(self.code),
            "PYTHONPATH": str(self.code),
        }
        if "AWS_LAMBDA_LOG_LEVEL" in own:  # LocalStack writes "Info"
            own["AWS_LAMBDA_LOG_LEVEL"] = own["AWS_LAMBDA_LOG_LEVEL"].upper()
        return own

    def local(self, text: str) -> str:
        """The same text with this machine's paths."""
        for theirs, ours in self.mounts.items():
            text = text.replace(theirs, ours)
        if text == TASK_ROOT:
            return str(self.code)
        return text.replace(f"{TASK_ROOT}/", f"{self.code}/")


class Sandbox:
    """A process with its Runtime API; ``stop`` ends both.

    Args:
        configuration: Of the function.
        output: Takes what it writes.
    """

    def __init__(self, configuration: SandboxConfiguration, output: ProcessOutput) -> None:
        self.runtime_api = RuntimeApi()
        self._temporary = tempfile.mkdtemp(prefix="lambda-")
        try:
            self._process = subprocess.Popen(  # noqa: S603 - the function's own command, no shell
                configuration.command(),
                cwd=configuration.code,
                env=configuration.environment(self.runtime_api.address, self._temporary),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # signals reach its children, too
            )
        except OSError as exc:
            self.runtime_api.close()
            shutil.rmtree(self._temporary, ignore_errors=True)
            text = f"The function cannot be started: {exc.strerror}: {exc.filename}"
            raise InitError(_error("Runtime.InvalidEntrypoint", text)) from exc
        self._output = output.follow(self._process.stdout)
        threading.Thread(target=self._watch, name="lambda-process", daemon=True).start()

    @property
    def is_running(self) -> bool:
        """Whether the process lives."""
        return self._process.poll() is None

    @property
    def pid(self) -> int:
        """Of the process, which is also its group."""
        return self._process.pid

    def wait_until_ready(self) -> None:
        """Wait for the end of its init phase, or of the sandbox.

        Raises:
            InitError: It failed.
        """
        self.runtime_api.ready.result()

    def invoke(self, event: Event, timeout_s: float) -> Outcome | None:
        """Hand over an event and wait for what it comes to.

        Returns:
            None: the process ended before it got the event.
        """
        self.runtime_api.submit(event)
        if not self.is_running:
            self.runtime_api.process_ended(self._end())
        try:
            return event.outcome.result(timeout_s)
        except FutureTimeoutError:
            self.kill()
            text = f"RequestId: {event.request_id} Error: Task timed out after {timeout_s:.2f} seconds"
            return Outcome(_error("Sandbox.Timedout", text), is_error=True)
        finally:
            self._output.catch_up()

    def kill(self) -> None:
        """SIGKILL, to its children, too."""
        self._signal(signal.SIGKILL)
        self._process.wait()

    def stop(self) -> None:
        """SIGTERM, after two seconds SIGKILL; what is under way fails."""
        self._signal(signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_SHUTDOWN_S)
        self._signal(signal.SIGKILL)  # also children that outlived it
        self._process.wait()
        self.runtime_api.process_ended(self._end())
        self.runtime_api.close()
        self._output.close()
        shutil.rmtree(self._temporary, ignore_errors=True)

    def _watch(self) -> None:
        self._process.wait()
        self._output.catch_up()
        self.runtime_api.process_ended(self._end())

    def _end(self) -> str:
        """How the process ended, in Lambda's words."""
        code = self._process.returncode or 0
        if code < 0:
            return f"Runtime exited with error: signal: {_SIGNAL_WORDS.get(-code, str(-code))}"
        if code > 0:
            return f"Runtime exited with error: exit status {code}"
        return "Runtime exited without providing a reason"

    def _signal(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)


_SIGNAL_WORDS: dict[int, str] = {
    signal.SIGKILL: "killed",
    signal.SIGTERM: "terminated",
    signal.SIGSEGV: "segmentation fault",
}


def _error(error_type: str, text: str) -> bytes:
    return json.dumps({"errorType": error_type, "errorMessage": text}).encode()


_versions: dict[str, str] = {}


def python_version(python: str) -> str:
    """Of an interpreter, as "3.13"."""
    if python not in _versions:
        code = "import sys; print('%d.%d' % sys.version_info[:2])"
        found = subprocess.run([python, "-I", "-S", "-c", code], capture_output=True, text=True, check=True)  # noqa: S603 - as configured
        _versions[python] = found.stdout.strip()
    return _versions[python]
