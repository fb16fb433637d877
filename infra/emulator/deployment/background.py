"""Processes that outlive the command that started them, until a later one stops them."""

import contextlib
import json
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from vectorforge.errors import ConfigurationError
from vectorforge.local.cluster import wait_until

if TYPE_CHECKING:  # only a laptop has it
    import psutil

_KILL_TIMEOUT_S = 5.0
_START_TIME = 19
"""Field 22 of /proc/<pid>/stat, counted after the name."""

# An orphan in its own session, so that the terminal's Ctrl-C does not reach it. It waits for a line on fd 3
# before it becomes the program: if we end before the process is recorded, it ends, too.
_GATED = 'exec 3<&0; { read -r go <&3 && exec "$@" 3<&-; } </dev/null >>"$0" 2>&1 & echo $!'


@dataclass(frozen=True, slots=True)
class _Record:
    pid: int
    started: str
    """Boot of the machine, and clock ticks since then: process ids are reused."""


class BackgroundProcesses:
    """Processes recorded in a file, by name.

    Args:
        file: Created with the first process; its folder must exist.
    """

    def __init__(self, file: Path) -> None:
        self._file = file

    def start(
        self, name: str, command: Sequence[str], *, log: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        """Start a process, unless the one of this name is running.

        Args:
            name: In the record.
            command: Program and arguments.
            log: File to append its output to.
            environment: All of it; None: this process's.
        """
        if self.is_running(name):
            return
        launcher = subprocess.Popen(  # noqa: S603 - a constant script; the command is arguments
            ["/bin/sh", "-c", _GATED, str(log), *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=None if environment is None else dict(environment),
            cwd="/",
            start_new_session=True,
        )
        if launcher.stdin is None or launcher.stdout is None:
            raise RuntimeError("The launcher has no pipes.")
        with launcher, launcher.stdin as gate:
            pid = int(launcher.stdout.readline())
            started = _started(pid)
            if started is not None:  # else it could not be ended later, and ends now
                self._record({**self._recorded(), name: _Record(pid, started)})
                gate.write(b"go\n")

    def is_running(self, name: str) -> bool:
        """Return whether the process of this name is running."""
        record = self._recorded().get(name)
        return record is not None and _find(record) is not None

    def pid(self, name: str) -> int:
        """Return the id of the process of this name, running or not.

        Raises:
            KeyError: It is not recorded.
        """
        return self._recorded()[name].pid

    def names(self) -> list[str]:
        """Return the names of all recorded processes, running or not, in the order of their start."""
        return list(self._recorded())

    def stop(self, name: str, *, timeout_s: float = 15.0) -> bool:
        """Stop a process and its children.

        Args:
            name: In the record.
            timeout_s: Between SIGTERM and SIGKILL.

        Returns:
            Whether it was running.
        """
        recorded = self._recorded()
        record = recorded.pop(name, None)
        process = _find(record) if record is not None else None
        if process is not None:
            end(process, timeout_s=timeout_s)
        self._record(recorded)
        return process is not None

    def _recorded(self) -> dict[str, _Record]:
        try:
            found = json.loads(self._file.read_text())
            return {name: _Record(**record) for name, record in found.items()}
        except FileNotFoundError:
            return {}
        except (ValueError, TypeError, AttributeError) as exc:
            raise ConfigurationError(
                f"{self._file} is damaged: end this deployment's processes yourself, and delete the file."
            ) from exc

    def _record(self, records: Mapping[str, _Record]) -> None:
        """Write the record atomically: what it lacks is never stopped."""
        written = self._file.with_suffix(".new")
        written.write_text(json.dumps({name: asdict(record) for name, record in records.items()}))
        written.replace(self._file)


def end(process: "psutil.Process", *, timeout_s: float) -> None:
    """Send SIGTERM to a process, and kill it after this time, and its children in any case."""
    import psutil

    family = [process]
    with contextlib.suppress(psutil.NoSuchProcess):
        family += process.children(recursive=True)
        process.send_signal(signal.SIGTERM)
    _wait_for_end([process], timeout_s)
    for member in family:
        with contextlib.suppress(psutil.NoSuchProcess):
            member.kill()  # by number and start time
    _wait_for_end(family, _KILL_TIMEOUT_S)


def _wait_for_end(family: "Sequence[psutil.Process]", timeout_s: float) -> None:
    # psutil's own wait takes a zombie for running, and in a container PID 1 may never reap an orphan.
    wait_until(lambda: not any(map(_has_not_ended, family)), timeout_s, 0.02)


def _has_not_ended(process: "psutil.Process") -> bool:
    """Return True if this process, identified by number and start time, runs on."""
    import psutil

    with contextlib.suppress(psutil.NoSuchProcess):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


def _find(record: _Record) -> "psutil.Process | None":
    """Return the process, or None if it has ended."""
    import psutil

    with contextlib.suppress(psutil.NoSuchProcess):
        process = psutil.Process(record.pid)
        if _started(record.pid) == record.started and _has_not_ended(process):
            return process
    return None


def _started(pid: int) -> str | None:
    """Return the start of a process, or None if it does not exist.

    https://man7.org/linux/man-pages/man5/proc_pid_stat.5.html
    """
    try:
        after_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{boot} {after_name[_START_TIME]}"
