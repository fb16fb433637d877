"""The exec wrapper: the streaming runtime in place of the managed runtime's command."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.functions.runtime_driver import (
    ROOT,
    function,
    json_body,
)

EXEC_WRAPPER = ROOT / "shared" / "vectorforge" / "runtime" / "exec_wrapper"


@pytest.mark.parametrize("options", [[], ["-X", "dev", "-W", "ignore"]])
async def test_exec_wrapper_replaces_managed_runtime(tmp_path: Path, options: list[str]) -> None:
    bootstrap = tmp_path / "with space" / "bootstrap.py"
    bootstrap.parent.mkdir()
    bootstrap.write_text("raise SystemExit('not to be run')")
    command = [str(EXEC_WRAPPER), sys.executable, *options, str(bootstrap)]
    service = tmp_path / "service"  # Lambda names the handler in _HANDLER only
    service.write_text(f"#!/bin/sh\nexec {shlex.join(command)}\n")
    service.chmod(0o755)
    command = [str(service)]
    async with function("handler", command=command) as process:
        assert (await json_body(process, "/echo"))["path"] == "/echo"
        assert process.pid == (await json_body(process, "/echo"))["pid"]  # replaced, not started in addition


def test_exec_wrapper_preserves_option_order(tmp_path: Path) -> None:
    bootstrap = tmp_path / "bootstrap.py"
    command = [str(EXEC_WRAPPER), "/bin/echo", "-X a", "-m", "debugpy", "*", str(bootstrap)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == f"-X a -m debugpy * {EXEC_WRAPPER.with_name('managed_runtime.py')} {bootstrap}\n"


@pytest.mark.parametrize("options", [[], ["-X", "dev", "-W", "ignore"]])
@pytest.mark.parametrize("handler", [[], ["tests.functions.runtime_app.handler"]])
async def test_exec_wrapper_with_module_command_replaces_awslambdaric(
    tmp_path: Path, options: list[str], handler: list[str]
) -> None:
    command = [str(EXEC_WRAPPER), sys.executable, *options, "-m", "awslambdaric", *handler]
    service = tmp_path / "service"
    service.write_text(f"#!/bin/sh\nexec {shlex.join(command)}\n")
    service.chmod(0o755)
    async with function("handler", command=[str(service)]) as process:
        assert (await json_body(process, "/echo"))["path"] == "/echo"


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["/usr/bin/node", "index.mjs"],
        ["/usr/bin/python3", "-m", "flask"],
        ["/usr/bin/python3", "awslambdaric"],
        ["/usr/bin/python3", "-m", "awslambdaric", "app.handler", "surplus"],
    ],
)
def test_exec_wrapper_rejects_other_commands(arguments: list[str]) -> None:
    done = subprocess.run([EXEC_WRAPPER, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 64
    assert "ends in bootstrap.py or -m awslambdaric" in done.stderr


def test_exec_wrapper_is_executable() -> None:
    assert os.access(EXEC_WRAPPER, os.X_OK)
