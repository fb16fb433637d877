"""Cold start: from the start of a process to its first answer."""

import asyncio
import statistics
import time
from collections.abc import Sequence
from itertools import count
from typing import Any

import aiohttp
from figures.measuring import Table, progress
from rich.progress import track

from peers.arena import Arena
from peers.processes import cpu_s
from peers.roster import FLOOR, Entry

_BASE = "raw_sdk"
"""Typical hand-written code; this part also has ratios to it."""


def measure_starts(arena: Arena, entries: Sequence[Entry], rounds: int) -> dict[str, Any]:
    """Start every contestant's server in turns, send it one query, stop it."""
    numbers = count(500_000_000)
    runs: dict[str, list[dict[str, float]]] = {entry.name: [] for entry in entries}
    for entry in entries:  # bytecode and the file system's cache
        asyncio.run(_start(arena, entry, next(numbers)))
    for _ in track(range(rounds), "  starting", console=progress, transient=True):
        for entry in entries:
            runs[entry.name].append(asyncio.run(_start(arena, entry, next(numbers))))
    return {entry.name: {"title": entry.title, **_medians(runs[entry.name], runs)} for entry in entries}


async def _start(arena: Arena, entry: Entry, number: int) -> dict[str, float]:
    async with aiohttp.ClientSession() as session:
        with arena.server(entry) as server:
            ready = await server.wait_until_ready(session)
            cost = await server.ask(session, first=number, count=1, in_flight=1, stream=False)
            return {
                "ready_s": ready,
                "first_answer_s": time.perf_counter() - server.spawned,
                "first_question_ms": cost.latency_s[0] * 1000,
                "cpu_s": cpu_s(server.pid),
                "resident_mb": server.resident_mb(),
            }


def _medians(own: Sequence[dict[str, float]], runs: dict[str, list[dict[str, float]]]) -> dict[str, float]:
    figures = {name: statistics.median(run[name] for run in own) for name in own[0]}
    for base in (FLOOR, _BASE):
        if base in runs:
            pairs = zip(own, runs[base], strict=True)
            ratios = [run["first_answer_s"] / other["first_answer_s"] for run, other in pairs]
            figures[f"first_answer_to_{base}"] = statistics.median(ratios)
    return figures


def tables(results: dict[str, Any]) -> list[Table]:
    """Return one table."""
    table = Table(
        "Process start to first answer over HTTP",
        (
            "contestant", "health s", "first answer s", "relative to the floor",
            "relative to OpenAI's SDK by hand", "first query ms", "CPU s", "resident MB",
        ),
    )  # fmt: skip
    names = (
        "ready_s", "first_answer_s", f"first_answer_to_{FLOOR}", f"first_answer_to_{_BASE}",
        "first_question_ms", "cpu_s", "resident_mb",
    )  # fmt: skip
    for result in results.values():
        table.add(result["title"], *(result.get(name, "") for name in names))
    return [table]
