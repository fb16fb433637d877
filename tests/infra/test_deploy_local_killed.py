"""``make deploy-local`` ended by signals while it starts LocalStack."""

import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from infra.emulator.deployment.background import BackgroundProcesses
from tests.infra.local_deployment import command_line, environment, run

pytestmark = pytest.mark.slow


def deploying(folder: Path) -> "tuple[subprocess.Popen[bytes], list[psutil.Process]]":
    """Start the command as a shell's background job does; return it and the synthesis, which is under way."""
    ignoring = ["sh", "-c", 'trap "" INT && exec "$@"', "sh"]
    command = subprocess.Popen(
        [*ignoring, *command_line(folder, "deploy", "--port", "0")],
        env=environment(),
        stderr=subprocess.PIPE,
    )
    assert command.stderr is not None
    for line in command.stderr:
        if b"LocalStack" in line:
            break
    return command, psutil.Process(command.pid).children(recursive=True)


def test_sigterm_ends_a_background_deploy_and_its_synthesis(private_dir: Callable[[str], Path]) -> None:
    folder = private_dir("ended")
    command, synthesis = deploying(folder)
    assert synthesis
    command.send_signal(signal.SIGTERM)
    errors = command.communicate(timeout=60)[1].decode()
    left = psutil.wait_procs(synthesis, timeout=10)[1]
    run(folder, "destroy", "--delete-data")
    assert (command.returncode, left) == (130, [])
    assert errors.splitlines()[-1] == "Interrupted: repeat the command, or run make destroy-local."
    assert "Traceback" not in errors


def test_destroy_after_a_killed_deploy_stops_its_processes(private_dir: Callable[[str], Path]) -> None:
    folder = private_dir("killed")
    command, synthesis = deploying(folder)
    processes = BackgroundProcesses(folder / "deployment" / "processes.json")
    command.kill()
    command.communicate()
    started = [psutil.Process(processes.pid(name)) for name in processes.names()]
    assert len(started) >= 2
    done = run(folder, "destroy", "--delete-data")
    assert (done.returncode, done.stderr.splitlines()[0]) == (0, "Stopped.")
    assert psutil.wait_procs(started, timeout=10)[1] == []
    assert psutil.wait_procs(synthesis, timeout=1)[1] == []
    assert not (folder / "deployment").exists()
