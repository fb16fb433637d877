"""Trace of the project's own files and function calls in another Python process, while it serves a query.

The traced process loads ``site/sitecustomize.py``, which counts calls while the file ``record`` exists.
``python -m tests.support.query_trace`` prints the trace of one streamed hybrid query on a laptop.
"""

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[3]
_SITE = Path(__file__).parent / "site"
_TIMEOUT_S = 20.0


@dataclass(frozen=True, slots=True)
class Trace:
    """Calls of the project's functions during one recording."""

    calls: dict[str, int]
    """Calls by file, relative to the repository's root."""

    @property
    def files(self) -> list[str]:
        """The files, sorted."""
        return sorted(self.calls)

    @property
    def total_calls(self) -> int:
        """Calls in all files."""
        return sum(self.calls.values())

    @property
    def lines(self) -> int:
        """Lines of all files."""
        return sum(len((ROOT / file).read_text(encoding="utf-8").splitlines()) for file in self.calls)


def common(traces: Sequence[Trace]) -> Trace:
    """Return the files that all traces have in common, with their fewest calls.

    Files in only some of the traces belong to background work that happened to run at the same time.
    """
    files = set.intersection(*(set(trace.calls) for trace in traces))
    return Trace({file: min(trace.calls[file] for trace in traces) for file in files})


class Tracer:
    """Controls the recording in one traced process.

    Args:
        folder: Empty folder for the files that both processes share.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    @property
    def environment(self) -> dict[str, str]:
        """Variables that the traced process needs."""
        return {"PYTHONPATH": str(_SITE), "QUERY_TRACE_FOLDER": str(self._folder)}

    @contextmanager
    def recording(self) -> Iterator[list[Trace]]:
        """Record the calls that the traced process makes during the block, into the yielded list.

        Raises:
            TimeoutError: The traced process does not respond.
        """
        switch, result = self._folder / "record", self._folder / "calls.json"
        result.unlink(missing_ok=True)
        switch.touch()
        _wait_for(self._folder / "recording")
        traces: list[Trace] = []
        try:
            yield traces
        finally:
            switch.unlink()
        _wait_for(result)
        traces.append(Trace(json.loads(result.read_text(encoding="utf-8"))))


def _wait_for(file: Path) -> None:
    end = time.monotonic() + _TIMEOUT_S
    while not file.exists():
        if time.monotonic() > end:
            raise TimeoutError(f"The traced process did not write {file.name}.")
        time.sleep(0.01)
