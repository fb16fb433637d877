"""``make deploy-local`` killed while it starts LocalStack."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from infra.emulator.deployment.background import BackgroundProcesses
from tests.infra.local_deployment import command_line, environment, run

pytestmark = pytest.mark.slow


def test_destroy_after_a_killed_deploy_stops_its_processes(private_dir: Callable[[str], Path]) -> None:
    folder = private_dir("killed")
    command = subprocess.Popen(
        command_line(folder, "deploy", "--port", "0"), env=environment(), stderr=subprocess.PIPE
    )
    assert command.stderr is not None
    processes = BackgroundProcesses(folder / "deployment" / "processes.json")
    with command.stderr:
        for line in command.stderr:  # until LocalStack starts
            if b"LocalStack" in line:
                break
    synthesis = psutil.Process(command.pid).children(recursive=True)
    command.kill()
    command.wait()
    started = [psutil.Process(processes.pid(name)) for name in processes.names()]
    assert len(started) >= 2
    done = run(folder, "destroy", "--delete-data")
    assert (done.returncode, done.stderr.splitlines()[0]) == (0, "Stopped.")
    assert psutil.wait_procs(started, timeout=10)[1] == []
    assert psutil.wait_procs(synthesis, timeout=1)[1] == []
    assert not (folder / "deployment").exists()
