"""LocalStack without Docker and without a license: installation, settings, and our plug-ins."""

import fcntl
import os
import shutil
import subprocess
import sys
from pathlib import Path

from infra.emulator.localstack_plugins.settings import Settings
from vectorforge.errors import ConfigurationError

LOCALSTACK_VERSION = "4.13.1"
"""The last version that runs on Python 3.11 without Docker and without a license."""
MODULE_WITH_PLUGINS = "infra.emulator.localstack_plugins.start"
"""Module with the plug-ins; needs ``localstack_variables``."""
HEALTH_PATH = "/_localstack/health"

_AS_OF = "2026-02-20"
"""Date of its dependencies: it does not start with newer versions of cbor2 and pyOpenSSL."""
_EMULATOR = Path(__file__).parents[1]
_PLUGIN_PACKAGES = ("lambda_service", "localstack_plugins")
"""Folders of ``infra.emulator`` that need nothing but the standard library and LocalStack."""
_ENTRY_POINTS = """\
[localstack.lambda.runtime_executor]
process = infra.emulator.localstack_plugins.runtime_executor:ProcessRuntimeExecutorPlugin

[localstack.cloudformation.resource_providers]
AWS::CloudFormation::CustomResource = infra.emulator.localstack_plugins.custom_resource:CustomResourcePlugin
"""
_LONGEST_POLL_PAUSE_S = 1  # of an event source whose queue is empty; LocalStack's is 10 s
_INIT_TIMEOUT_S = 60  # AWS gives 10 s, on a machine that does nothing else


def localstack_variables(
    port: int, state: Path, region: str, *, plugins: Path, functions: Settings
) -> dict[str, str]:
    """Return the variables of LocalStack's process.

    Args:
        port: Port of 127.0.0.1.
        state: Folder of its state.
        region: Region of its own calls.
        plugins: Folder of ``install_plugins``.
        functions: Settings of the plug-in that runs functions as processes.
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
        "PYTHONPATH": str(plugins),
        "LAMBDA_RUNTIME_EXECUTOR": "process",
        "LAMBDA_RUNTIME_ENVIRONMENT_TIMEOUT": str(_INIT_TIMEOUT_S),
        "LAMBDA_EVENT_SOURCE_MAPPING_MAX_BACKOFF_ON_EMPTY_POLL_SEC": str(_LONGEST_POLL_PAUSE_S),
        **functions.variables(),
    }


def install_localstack(folder: Path) -> Path:
    """Install LocalStack into a virtual environment once (320 MB), and return its Python.

    Args:
        folder: Folder of the environment.

    Raises:
        ConfigurationError: uv is missing or failed.
    """
    environment = folder / f"localstack-{LOCALSTACK_VERSION}"
    python, complete = environment / "bin" / "python", environment / "complete"
    if complete.exists():
        return python
    requirement = f"localstack-core[runtime]=={LOCALSTACK_VERSION}"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / f".localstack-{LOCALSTACK_VERSION}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # concurrent commands wait, and find it installed
        if not complete.exists():
            _uv("venv", "--clear", "--python", sys.executable, str(environment))
            pinned = ["--python", str(python), "--exclude-newer", _AS_OF]
            _uv("pip", "install", *pinned, requirement, "setuptools")
            complete.touch()
    return python


def install_plugins(folder: Path) -> Path:
    """Copy the plug-ins into a folder for LocalStack's PYTHONPATH, in place of those of an earlier run.

    They stay out of LocalStack's environment, which other checkouts share.

    Args:
        folder: Created; replaced if it exists.
    """
    shutil.rmtree(folder, ignore_errors=True)
    for name in _PLUGIN_PACKAGES:
        shutil.copytree(
            _EMULATOR / name,
            folder / "infra" / "emulator" / name,
            ignore=shutil.ignore_patterns("__pycache__"),
        )
    metadata = folder / "vectorforge_localstack-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: vectorforge-localstack\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(_ENTRY_POINTS)
    return folder


def _uv(*arguments: str) -> None:
    uv = os.environ.get("UV") or shutil.which("uv")
    if uv is None:
        raise ConfigurationError("uv is required to install LocalStack, and is not on PATH.")
    finished = subprocess.run([uv, *arguments, "--quiet"], capture_output=True, text=True, check=False)  # noqa: S603 - our words
    if finished.returncode:
        reason = finished.stderr.strip()[-1000:]
        raise ConfigurationError(f"LocalStack {LOCALSTACK_VERSION} cannot be installed: {reason}")
