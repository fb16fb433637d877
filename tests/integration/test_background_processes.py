"""Processes that outlive a command: identified by pid and start time, ended with their children."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from infra.emulator.deployment.background import BackgroundProcesses, end
from vectorforge.errors import ConfigurationError

SLEEPER = [sys.executable, "-c", "import time; time.sleep(600)"]
PARENT = """\
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print(child.pid, flush=True)
time.sleep(600)
"""
DEAF = """\
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("deaf", flush=True)
time.sleep(600)
"""


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[BackgroundProcesses]:
    made = BackgroundProcesses(tmp_path / "processes.json")
    yield made
    for name in made.names():
        made.stop(name)


def wait_for(file: Path) -> str:
    give_up_at = time.monotonic() + 30
    while not file.exists() or not file.read_text().endswith("\n"):
        assert time.monotonic() < give_up_at
        time.sleep(0.02)
    return file.read_text()


def test_started_process_is_detached_and_found_again(processes: BackgroundProcesses, tmp_path: Path) -> None:
    log = tmp_path / "log"
    code = (
        "import os, sys, time; print(os.getsid(0), sys.stdin.read(), os.environ, flush=True); time.sleep(600)"
    )
    processes.start("one", [sys.executable, "-c", code], log=log, environment={"ONLY": "this"})
    pid = processes.pid("one")
    session, _, variables = wait_for(log).partition(" ")
    assert int(session) != os.getsid(0)
    assert "'ONLY': 'this'" in variables
    assert "'HOME'" not in variables
    assert psutil.Process(pid) not in psutil.Process().children(recursive=True)
    assert BackgroundProcesses(tmp_path / "processes.json").is_running("one")


def test_running_process_is_not_started_again(processes: BackgroundProcesses, tmp_path: Path) -> None:
    processes.start("one", SLEEPER, log=tmp_path / "log")
    pid = processes.pid("one")
    processes.start("one", SLEEPER, log=tmp_path / "log")
    assert processes.pid("one") == pid
    os.kill(pid, signal.SIGKILL)
    psutil.wait_procs([psutil.Process(pid)] if psutil.pid_exists(pid) else [], timeout=10)
    assert not processes.is_running("one")
    processes.start("one", SLEEPER, log=tmp_path / "log")
    assert processes.pid("one") != pid


def test_stop_ends_child_processes(processes: BackgroundProcesses, tmp_path: Path) -> None:
    processes.start("parent", [sys.executable, "-c", PARENT], log=tmp_path / "log")
    child = psutil.Process(int(wait_for(tmp_path / "log")))
    assert processes.stop("parent")
    assert psutil.wait_procs([child], timeout=10)[1] == []
    assert processes.names() == []
    assert not processes.stop("parent")


def test_process_ignoring_sigterm_is_killed(processes: BackgroundProcesses, tmp_path: Path) -> None:
    processes.start("deaf", [sys.executable, "-c", DEAF], log=tmp_path / "log")
    wait_for(tmp_path / "log")
    assert processes.stop("deaf", timeout_s=0.2)
    assert not processes.is_running("deaf")


def test_reused_pid_of_other_process_is_not_stopped(processes: BackgroundProcesses, tmp_path: Path) -> None:
    processes.start("one", SLEEPER, log=tmp_path / "log")
    ours = processes.pid("one")
    file = tmp_path / "processes.json"
    content = file.read_text()
    time.sleep(2 / os.sysconf("SC_CLK_TCK"))  # the other one has another start time
    with subprocess.Popen(SLEEPER) as other:
        recorded = json.loads(content)
        recorded["one"]["pid"] = other.pid  # as if the pid had been reused
        file.write_text(json.dumps(recorded))
        assert not processes.is_running("one")
        assert not processes.stop("one")
        assert other.poll() is None
        other.kill()
    file.write_text(content)
    assert psutil.pid_exists(ours)


def test_start_without_writable_record_runs_nothing(tmp_path: Path) -> None:
    """The program starts only after its process is recorded."""
    processes = BackgroundProcesses(tmp_path / "missing" / "processes.json")
    with pytest.raises(FileNotFoundError):
        processes.start("one", ["/bin/touch", str(tmp_path / "ran")], log=tmp_path / "log")
    time.sleep(0.5)
    assert not (tmp_path / "ran").exists()


def test_damaged_record_raises_configuration_error(tmp_path: Path) -> None:
    file = tmp_path / "processes.json"
    file.write_text('{"one": {"pid": 1')
    with pytest.raises(ConfigurationError, match="is damaged"):
        BackgroundProcesses(file).names()


def test_ended_process_is_not_waited_for_until_its_parent_reaps_it() -> None:
    with subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child = psutil.Process(int(parent.stdout.readline()))
        waits = waits_for_the_end_of(child)
        was_zombie = child.status() == psutil.STATUS_ZOMBIE
        parent.kill()
    assert was_zombie
    assert not waits


def test_other_process_with_a_reused_pid_is_neither_waited_for_nor_ended() -> None:
    with subprocess.Popen(SLEEPER) as other:
        ended = psutil.Process(other.pid)
        vars(ended)["_ident"] = (other.pid, 1.0)  # as of an earlier process with the pid
        waits = waits_for_the_end_of(ended)
        runs = other.poll() is None
        other.kill()
    assert runs
    assert not waits


def waits_for_the_end_of(process: psutil.Process) -> bool:
    """End a process; return True if that waits for what does not come, which would take an hour."""
    ending = threading.Thread(target=end, args=(process,), kwargs={"timeout_s": 3_600}, daemon=True)
    ending.start()
    ending.join(30)
    return ending.is_alive()
