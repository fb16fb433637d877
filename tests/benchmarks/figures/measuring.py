"""What the figures are made of: rows of a table, percentiles, CPU time and memory of processes."""

import os
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
progress = Console(stderr=True)
"""Where the script says what it is doing; stdout is for the result."""


@dataclass(slots=True)
class Table:
    """One table of the report."""

    title: str
    columns: Sequence[str]
    rows: list[Sequence[Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def add(self, *cells: Any) -> None:
        """Append a row; as many cells as columns."""
        if len(cells) != len(self.columns):
            raise ValueError(f"{len(cells)} cells for {len(self.columns)} columns")
        self.rows.append(cells)

    def markdown(self) -> str:
        """The table as GitHub renders it."""
        lines = [f"### {self.title}", "", _line(self.columns), _line("---" for _ in self.columns)]
        lines += [_line(map(_cell, row)) for row in self.rows]
        return "\n".join([*lines, "", *(f"{note}\n" for note in self.notes)])

    def as_json(self) -> dict[str, Any]:
        """The same for programs."""
        return asdict(self)


def _line(cells: Any) -> str:
    return f"| {' | '.join(cells)} |"


def _cell(value: Any) -> str:
    if not isinstance(value, float):
        return f"{value:,}" if isinstance(value, int) else str(value)
    return f"{value:.3f}" if value < 1 else f"{value:.1f}" if value < 100 else f"{value:,.0f}"


def percentile(values: Sequence[float], percent: int) -> float:
    """The value that this percentage of all values does not exceed."""
    return statistics.quantiles(values, n=100, method="inclusive")[percent - 1]


def cpu_s(*pids: int) -> float:
    """Seconds of CPU that the processes have used, all their threads included; in steps of 10 ms."""
    return sum(sum(_stat(pid)[11:13]) for pid in pids) / _TICKS_PER_S


def postgres_cpu_s(postmaster: int) -> float:
    """Seconds of CPU that a PostgreSQL server has used: its living processes and those that have ended."""
    user, system, ended_user, ended_system = _stat(postmaster)[11:15]
    children = Path(f"/proc/{postmaster}/task/{postmaster}/children").read_text().split()
    living = sum(sum(_stat(int(child))[11:13]) for child in children)
    return (user + system + ended_user + ended_system + living) / _TICKS_PER_S


def resident_mb(pid: int) -> float:
    """Resident memory of a process in MB (10^6 bytes)."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def _stat(pid: int) -> list[int]:
    # After the name, which may hold blanks: https://man7.org/linux/man-pages/man5/proc_pid_stat.5.html
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return [0, *map(int, fields[1:])]
