"""LocalStack without Docker and without a licence: its installation, its settings, our plug-ins for it."""

import fcntl
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from infra.emulator.localstack_plugins import settings as plugin_settings
from vectorforge.errors import ConfigurationError

LOCALSTACK_VERSION = "4.13.1"
"""The last one that runs on Python 3.11 without Docker and without a licence."""
LOCALSTACK_MODULE = "localstack.runtime.main"
MODULE_WITH_PLUGINS = "vectorforge_localstack.start"
"""The same, where ``FunctionProcesses.variables`` are set."""
HEALTH_PATH = "/_localstack/health"

_AS_OF = "2026-02-20"
"""Its dependencies of that day: it does not start with newer ones of cbor2 and pyOpenSSL."""
_PLUGINS = Path(__file__).with_name("localstack_plugins")
_LONGEST_POLL_PAUSE_S = 1  # of an event source whose queue is empty; LocalStack's is 10 s
_INIT_TIMEOUT_S = 60  # AWS gives 10 s, on a machine that does nothing else


@dataclass(frozen=True, slots=True)
class FunctionProcesses:
    """How its Lambda service runs functions: as processes, by our plug-in."""

    plugins: Path
    """Where ``install_plugins`` put them."""
    logs: Path
    """Folder with one file for each function."""
    mounts: Mapping[str, str] = field(default_factory=dict)
    """Files of this machine by the path at which a function looks for them."""
    python: str = sys.executable
    """The interpreter, of the version that the functions are bundled for."""

    def variables(self) -> dict[str, str]:
        """Of LocalStack's process."""
        return {
            "PYTHONPATH": str(self.plugins),
            "LAMBDA_RUNTIME_EXECUTOR": "process",
            "LAMBDA_RUNTIME_ENVIRONMENT_TIMEOUT": str(_INIT_TIMEOUT_S),
            "LAMBDA_EVENT_SOURCE_MAPPING_MAX_BACKOFF_ON_EMPTY_POLL_SEC": str(_LONGEST_POLL_PAUSE_S),
            plugin_settings.PYTHON: self.python,
            plugin_settings.LOGS: str(self.logs),
            plugin_settings.MOUNTS: json.dumps(dict(self.mounts)),
        }


def localstack_variables(port: int, state: Path, region: str) -> dict[str, str]:
    """What LocalStack is told.

    Args:
        port: Of 127.0.0.1.
        state: Folder that it may fill.
        region: Of its own calls.
    """
    return {
        "GATEWAY_LISTEN": f"127.0.0.1:{port}",
        "LOCALSTACK_HOST": f"localhost:{port}",
        "FILESYSTEM_ROOT": str(state),
        "SQS_ENDPOINT_STRATEGY": "path",
        "ACTIVATE_PRO": "0",
        "DISABLE_EVENTS": "1",
        "DNS_ADDRESS": "0",
        "SKIP_SSL_CERT_DOWNLOAD": "1",
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": region,
    }


def install_localstack(folder: Path) -> Path:
    """The Python of an environment that holds LocalStack; made once, 320 MB.

    Args:
        folder: In which the environment is kept.

    Raises:
        ConfigurationError: There is no uv, or it fails.
    """
    environment = folder / f"localstack-{LOCALSTACK_VERSION}"
    python, complete = environment / "bin" / "python", environment / "complete"
    if complete.exists():
        return python
    requirement = f"localstack-core[runtime]=={LOCALSTACK_VERSION}"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / f".localstack-{LOCALSTACK_VERSION}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # whoever comes meanwhile waits, and finds it installed
        if not complete.exists():
            _uv(["venv", "--quiet", "--clear", "--python", sys.executable, str(environment)])
            _uv(_install_with(python, requirement, "setuptools"))
            complete.touch()
    return python


def install_plugins(python: Path, folder: Path) -> Path:
    """Put our plug-ins where a LocalStack finds them on its PYTHONPATH; those of an earlier time go.

    They are not put into LocalStack's environment, which other checkouts use as well.

    Args:
        python: What ``install_localstack`` gave.
        folder: Made anew.

    Raises:
        ConfigurationError: There is no uv, or it fails.
    """
    shutil.rmtree(folder, ignore_errors=True)
    _uv([*_install_with(python, str(_PLUGINS)), "--target", str(folder)])
    return folder


def _install_with(python: Path, *requirements: str) -> list[str]:
    return ["pip", "install", "--quiet", "--python", str(python), "--exclude-newer", _AS_OF, *requirements]


def _uv(arguments: Sequence[str]) -> None:
    uv = os.environ.get("UV") or shutil.which("uv")
    if uv is None:
        raise ConfigurationError("LocalStack is installed with uv, which is not on PATH.")
    finished = subprocess.run([uv, *arguments], capture_output=True, text=True, check=False)  # noqa: S603 - our words
    if finished.returncode:
        reason = finished.stderr.strip()[-1000:]
        raise ConfigurationError(f"LocalStack {LOCALSTACK_VERSION} cannot be installed: {reason}")
