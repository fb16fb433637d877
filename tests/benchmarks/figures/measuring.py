"""Building blocks of the figures: tables, percentiles, CPU time and memory of processes."""

import os
import statistics
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from threading import Event, Thread
from typing import Any, Self

from rich.console import Console

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
progress = Console(stderr=True)
"""Console for progress; stdout is for the result."""


@dataclass(slots=True)
class Table:
    """One table of the report."""

    title: str
    columns: Sequence[str]
    rows: list[Sequence[Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def add(self, *cells: Any) -> None:
        """Append a row with a cell for each column."""
        if len(cells) != len(self.columns):
            raise ValueError(f"{len(cells)} cells for {len(self.columns)} columns")
        self.rows.append(cells)

    def markdown(self) -> str:
        """Return the table in Markdown."""
        lines = [f"### {self.title}", "", _line(self.columns), _line("---" for _ in self.columns)]
        lines += [_line(map(_cell, row)) for row in self.rows]
        return "\n".join([*lines, "", *(f"{note}\n" for note in self.notes)])

    def as_json(self) -> dict[str, Any]:
        """Return the table as JSON."""
        return asdict(self)


def _line(cells: Any) -> str:
    return f"| {' | '.join(cells)} |"


def _cell(value: Any) -> str:
    if not isinstance(value, float):
        return f"{value:,}" if isinstance(value, int) else str(value)
    return f"{value:.3f}" if value < 1 else f"{value:.1f}" if value < 100 else f"{value:,.0f}"


def percentile(values: Sequence[float], percent: int) -> float:
    """Return the value that this percentage of all values does not exceed."""
    return statistics.quantiles(values, n=100, method="inclusive")[percent - 1]


def cpu_s(*pids: int) -> float:
    """Return the CPU seconds of processes with all their threads, in steps of 10 ms."""
    return sum(sum(_stat(pid)[11:13]) for pid in pids) / _TICKS_PER_S


def postgres_cpu_s(postmaster: int) -> float:
    """Return the CPU seconds of a PostgreSQL server: its running processes and those that have ended."""
    living = 0
    for child in _children(postmaster):
        with suppress(FileNotFoundError):  # it has ended, so the server's own figures count it
            living += sum(_stat(int(child))[11:13])
    return (living + sum(_stat(postmaster)[11:15])) / _TICKS_PER_S


def resident_mb(pid: int) -> float:
    """Return the resident memory of a process in MB (10^6 bytes)."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


class PeakMemory:
    """Largest memory of a server and its child processes while the context is open, read twice a second.

    Memory that processes share is divided among them (PSS,
    https://www.kernel.org/doc/html/latest/filesystems/proc.html), so that it counts once.
    """

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._ended = Event()
        self._thread = Thread(target=self._watch, daemon=True)
        self.bytes = 0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        while True:
            pids = [self._pid, *map(int, _children(self._pid))]
            self.bytes = max(self.bytes, sum(map(_proportional_bytes, pids)))
            if self._ended.wait(0.5):
                return


def _children(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


def _proportional_bytes(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:  # it has ended
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:")), 0)


def _stat(pid: int) -> list[int]:
    # After the name, which may contain blanks: https://man7.org/linux/man-pages/man5/proc_pid_stat.5.html
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return [0, *map(int, fields[1:])]
