"""Ingestion of ready chunks: embed, store."""

import statistics
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

from figures.measuring import Table, postgres_cpu_s, progress
from rich.progress import track

from peers.arena import Arena
from peers.roster import FLOOR, Entry


def measure_storing(arena: Arena, entries: Sequence[Entry], rounds: int, chunks: int) -> dict[str, Any]:
    """Let every contestant's module store chunks in turns, in separate tables and collections.

    Args:
        arena: The arena.
        entries: The contestants.
        rounds: Number of rounds.
        chunks: Chunks per round.
    """
    runs: dict[str, list[dict[str, float]]] = {entry.name: [] for entry in entries}
    with ExitStack() as stack:
        workers = {entry.name: stack.enter_context(arena.worker(entry, "_anew")) for entry in entries}
        for number in track(range(rounds), "  storing", console=progress, transient=True):
            for name, worker in workers.items():
                before = postgres_cpu_s(arena.database.server.pid)
                # Different chunks each time, so that no vector comes from a cache.
                run = worker.run("ingest", count=chunks, first=1_000_000 * (number + 1))
                run["database_cpu_s"] = postgres_cpu_s(arena.database.server.pid) - before
                runs[name].append(run)
        memory = {name: worker.resident_mb() for name, worker in workers.items()}
    return {
        entry.name: {
            "title": entry.title,
            "resident_mb": memory[entry.name],
            "chunks": chunks,
            **_figures(runs[entry.name], runs, chunks),
        }
        for entry in entries
    }


def _figures(
    own: Sequence[dict[str, float]], runs: dict[str, list[dict[str, float]]], chunks: int
) -> dict[str, float]:
    figures = {
        "chunks_per_s": statistics.median(chunks / run["wall_s"] for run in own),
        "cpu_us": statistics.median(run["cpu_s"] * 1e6 / chunks for run in own),
        "database_cpu_us": statistics.median(run["database_cpu_s"] * 1e6 / chunks for run in own),
    }
    for base in (FLOOR, "langchain"):
        if base in runs:
            pairs = zip(own, runs[base], strict=True)
            speeds = [other["wall_s"] / run["wall_s"] for run, other in pairs]
            figures[f"speed_to_{base}"] = statistics.median(speeds)
    return figures


def tables(results: dict[str, Any]) -> list[Table]:
    """Return one table."""
    table = Table(
        f"{next(iter(results.values()))['chunks']:,} ready-made chunks, embedded and stored",
        (
            "contestant", "chunks/s", "relative to the floor", "relative to LangChain", "CPU µs per chunk",
            "database CPU µs per chunk", "resident MB",
        ),
    )  # fmt: skip
    names = (
        "chunks_per_s", f"speed_to_{FLOOR}", "speed_to_langchain", "cpu_us", "database_cpu_us", "resident_mb",
    )  # fmt: skip
    for result in results.values():
        table.add(result["title"], *(result.get(name, "") for name in names))
    return [table]
