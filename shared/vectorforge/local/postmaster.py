"""The server process over a data directory: how it is recognised, started and ended."""

import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_PID_FILE_LINES = 8

# The path and arguments are words of their own, so that no character of a path means anything to the shell.
# It puts the server into the background, where it is nobody's child, and says its number.
_DETACHED = '"$@" >>"$0" 2>&1 </dev/null & echo $!'


@dataclass(frozen=True, slots=True)
class Postmaster:
    """What a server says about itself in ``postmaster.pid``."""

    pid: int
    socket_dir: str
    port: int
    ready: bool


def read_pid_file(data_dir: Path) -> Postmaster | None:
    """What the file says; None when there is none, or not a whole one yet.

    Its lines: https://www.postgresql.org/docs/18/storage-file-layout.html
    """
    try:
        lines = (data_dir / "postmaster.pid").read_text(encoding="utf-8", errors="replace").splitlines()
        if len(lines) < _PID_FILE_LINES:
            return Postmaster(int(lines[0]), "", 0, ready=False)
        return Postmaster(int(lines[0]), lines[4].strip(), int(lines[3]), lines[7].strip() == "ready")
    except (OSError, ValueError, IndexError):
        return None


def is_alive(pid: int) -> bool:
    """Whether there is such a process, and it has not ended."""
    import psutil

    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def is_server(pid: int, data_dir: Path) -> bool:
    """Whether this is a PostgreSQL process over this directory, not one that got its number later."""
    import psutil

    try:
        return _serves(psutil.Process(pid), data_dir)
    except psutil.NoSuchProcess:
        return False
    except psutil.AccessDenied:
        return True  # of another user: PostgreSQL's own check decides


def processes(data_dir: Path) -> Iterator[int]:
    """Every process of a server over this directory; after a kill -9 its children live on for a moment."""
    import psutil

    for process in psutil.process_iter(["name"]):
        try:
            if str(process.info["name"]).startswith("postgres") and _serves(process, data_dir):
                yield process.pid
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue


def launch(command: Sequence[str], log_path: Path, run_as: Mapping[str, Any]) -> int:
    """Start a server that outlives this process; its process id."""
    done = subprocess.run(  # noqa: S603 - a constant script; paths are arguments
        ["/bin/sh", "-c", _DETACHED, str(log_path), *command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        cwd="/",
        start_new_session=True,  # Ctrl-C in our terminal is not meant for the server
        check=True,
        **run_as,
    )
    return int(done.stdout)


def shut_down(pid: int, data_dir: Path, timeout_s: float) -> bool:
    """Ask a server to roll back and end ("fast shutdown"); whether it has ended within the time."""
    give_up_at = time.monotonic() + timeout_s
    try:
        os.kill(pid, signal.SIGINT)
    except ProcessLookupError:
        return True
    while is_server(pid, data_dir):
        if time.monotonic() > give_up_at:
            return False
        time.sleep(0.02)
    return True


def _serves(process: Any, data_dir: Path) -> bool:
    import psutil

    if process.status() == psutil.STATUS_ZOMBIE or not process.name().startswith("postgres"):
        return False
    try:
        return Path(process.cwd()).samefile(data_dir)  # a server lives in its data directory
    except FileNotFoundError:
        return False
