"""Queries and streams of all contestants in turns, as modules and as servers."""

import statistics
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import count
from typing import Any, TypeAlias

import aiohttp
from figures.measuring import percentile, progress
from rich.progress import track

from peers import job
from peers.arena import Arena
from peers.processes import Asked
from peers.roster import FLOOR, Entry

IN_FLIGHT = 16
_WARMING_UP = 48


@dataclass(frozen=True, slots=True)
class Case:
    """A kind of query."""

    name: str
    title: str
    stream: bool
    questions: int
    """Queries per round of each contestant."""
    in_flight: int


CASES = (
    Case("query", "One query at a time", False, 60, 1),
    Case("query_parallel", f"{IN_FLIGHT} concurrent queries", False, 160, IN_FLIGHT),
    Case("stream", "One stream at a time", True, 12, 1),
    Case("stream_parallel", f"{IN_FLIGHT} concurrent streams", True, 48, IN_FLIGHT),
)

Ask: TypeAlias = Callable[[int, Case], Awaitable[Asked]]
"""Runs queries from this number on."""
Rounds: TypeAlias = dict[str, dict[str, list[Asked]]]
"""Results by contestant and case, one for each round."""


async def measure_modules(arena: Arena, entries: Sequence[Entry], rounds: int) -> dict[str, Any]:
    """Query the contestants' modules, each in a separate process."""
    with ExitStack() as stack:
        workers = {entry.name: stack.enter_context(arena.worker(entry)) for entry in entries}

        def asker(name: str) -> Ask:
            async def ask(first: int, case: Case) -> Asked:
                return workers[name].ask(
                    first=first, count=case.questions, in_flight=case.in_flight, stream=case.stream
                )

            return ask

        found = await _take_turns({name: asker(name) for name in workers}, rounds)
        memory = {name: worker.resident_mb() for name, worker in workers.items()}
    return _summary(entries, found, memory)


async def measure_servers(arena: Arena, entries: Sequence[Entry], rounds: int) -> dict[str, Any]:
    """Query the contestants' servers over HTTP."""
    with ExitStack() as stack:
        # uvicorn closes an idle connection after 5 s, perhaps just when it is used again
        connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=2)
        async with aiohttp.ClientSession(connector=connector) as session:
            servers = {entry.name: stack.enter_context(arena.server(entry)) for entry in entries}
            for server in servers.values():
                await server.wait_until_ready(session)

            def asker(name: str) -> Ask:
                async def ask(first: int, case: Case) -> Asked:
                    return await servers[name].ask(
                        session,
                        first=first,
                        count=case.questions,
                        in_flight=case.in_flight,
                        stream=case.stream,
                    )

                return ask

            found = await _take_turns({name: asker(name) for name in servers}, rounds)
            memory = {name: server.resident_mb() for name, server in servers.items()}
    return _summary(entries, found, memory)


async def _take_turns(askers: Mapping[str, Ask], rounds: int) -> Rounds:
    """Run every case of every contestant in each round, without repeated queries."""
    found: Rounds = {name: {case.name: [] for case in CASES} for name in askers}
    firsts = count(0, 1000)
    for stream in (False, True):
        warm_up = Case("warm_up", "", stream, _WARMING_UP, 4)
        for ask in askers.values():
            await ask(next(firsts), warm_up)
    for _ in track(range(rounds), "  taking turns", console=progress, transient=True):
        for case in CASES:
            for name, ask in askers.items():
                found[name][case.name].append(await ask(next(firsts), case))
    return found


def _summary(entries: Sequence[Entry], found: Rounds, memory: Mapping[str, float]) -> dict[str, Any]:
    return {
        entry.name: {
            "title": entry.title,
            "resident_mb": memory[entry.name],
            "cases": {
                case.name: _figures(found[entry.name][case.name], found.get(FLOOR, {}).get(case.name))
                for case in CASES
            },
        }
        for entry in entries
    }


def _figures(rounds: Sequence[Asked], floor: Sequence[Asked] | None) -> dict[str, float]:
    """Return medians over the rounds; ratios to the baseline are medians of each round's ratio."""
    measures = _STREAM_MEASURES if rounds[0].first_token_s else _MEASURES
    figures = {}
    for name, measure in measures.items():
        values = [measure(cost) for cost in rounds]
        figures[name] = statistics.median(values)
        if floor is not None:
            pairs = zip(values, map(measure, floor), strict=True)
            figures[f"{name}_ratio"] = statistics.median(own / least for own, least in pairs)
    if rounds[0].sources is not None:
        figures["sources"] = statistics.median(cost.sources or 0.0 for cost in rounds)
    return figures


_MEASURES: dict[str, Callable[[Asked], float]] = {
    "p50_ms": lambda cost: statistics.median(cost.latency_s) * 1000,
    "p95_ms": lambda cost: percentile(cost.latency_s, 95) * 1000,
    "per_s": lambda cost: len(cost.latency_s) / cost.wall_s,
    "cpu_ms": lambda cost: cost.cpu_s * 1000 / len(cost.latency_s),
}
_STREAM_MEASURES = {
    **_MEASURES,
    "first_token_p50_ms": lambda cost: statistics.median(cost.first_token_s) * 1000,
    "tokens_per_s": lambda cost: len(cost.latency_s) * job.ANSWER_TOKENS / cost.wall_s,
}
