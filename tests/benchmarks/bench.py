"""Measure the service beside a hand-written floor and other frameworks, and write docs/performance.md.

make bench, or: uv run python tests/benchmarks/bench.py [PART ...]
"""

import argparse
import asyncio
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from figures.measuring import progress
from peers.arena import CHUNKS, Arena, arena
from peers.comparison import measure_modules, measure_servers
from peers.processes import ContestantError
from peers.report import tables
from peers.roster import ROSTER, Entry
from results import Results

from vectorforge.local.laptop import default_data_dir


@dataclass(frozen=True)
class Options:
    """What the command line says."""

    entries: list[Entry]
    rounds: int
    chunks: int


def _modules(arena: Arena, options: Options) -> dict[str, Any]:
    arena.load(options.entries, options.chunks)
    return asyncio.run(measure_modules(arena, options.entries, options.rounds))


def _servers(arena: Arena, options: Options) -> dict[str, Any]:
    arena.load(options.entries, options.chunks)
    return asyncio.run(measure_servers(arena, options.entries, options.rounds))


COMPARISONS: dict[str, tuple[str, Callable[[Arena, Options], dict[str, Any]]]] = {
    "modules": ("questions and streams of each contestant's module, in process", _modules),
    "servers": ("the same over HTTP: this service as `vectorforge up`, the others behind FastAPI", _servers),
}


def main() -> None:
    """Parse the command line and measure."""
    options = _arguments()
    if not sys.platform.startswith("linux"):
        sys.exit("CPU and memory of processes are read from /proc, which only Linux has.")
    results = Results(options.results)
    entries = [ROSTER[name] for name in options.only]
    options.folder.mkdir(parents=True, exist_ok=True)
    try:
        with arena(options.folder, entries) as place:
            entries = [entry for entry in entries if place.can_run(entry)]
            chosen = Options(entries, options.rounds, options.chunks)
            for part in options.parts:
                progress.print(f"[bold]{part}[/bold]: {COMPARISONS[part][0]}")
                found = COMPARISONS[part][1](place, chosen)
                versions = {entry.name: place.versions(entry) for entry in entries}
                settings = {"rounds": chosen.rounds, "chunks": chosen.chunks, "versions": versions}
                results.write(part, found, settings)
                for table in tables(found, part):
                    print(table.markdown())
    except ContestantError as exc:
        sys.exit(str(exc))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").splitlines()[0], formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parts", nargs="*", choices=list(COMPARISONS), default=list(COMPARISONS))
    parser.add_argument("--only", nargs="+", choices=list(ROSTER), default=list(ROSTER), metavar="NAME")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--chunks", type=int, default=CHUNKS)
    parser.add_argument("--folder", type=Path, default=default_data_dir() / "benchmarks" / "peers")
    parser.add_argument("--results", type=Path, default=Path(__file__).parent / "results")
    return parser.parse_args()


if __name__ == "__main__":
    main()
