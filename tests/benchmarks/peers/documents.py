"""Documents of one chunk: through this service's REST API until its jobs end, and the others' modules."""

import asyncio
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any
from uuid import uuid4

import aiohttp
from figures.measuring import Table, postgres_cpu_s, progress
from rich.progress import track

from peers import job
from peers.arena import Arena
from peers.processes import ServerProcess, cpu_s
from peers.roster import Entry

IN_REQUEST = 1_000
"""Documents in one request: the API's limit."""
_POLL_S = 0.1


def measure_documents(arena: Arena, entries: Sequence[Entry], rounds: int, documents: int) -> dict[str, Any]:
    """Store the documents in turns: every round new ones, in collections and tables made for it.

    Args:
        arena: Database, model and environments.
        entries: Contestants.
        rounds: Number of rounds.
        documents: Documents in a round.
    """
    runs: dict[str, list[dict[str, float]]] = {entry.name: [] for entry in entries}
    with ExitStack() as stack:
        stores = {entry.name: _store(arena, entry, stack) for entry in entries}
        for number in track(range(rounds), "  storing", console=progress, transient=True):
            for name, store in stores.items():
                before = postgres_cpu_s(arena.database.server.pid)
                run = store(documents, 3_000_000 + number * documents)
                run["database_cpu_s"] = postgres_cpu_s(arena.database.server.pid) - before
                runs[name].append(run)
    return {
        entry.name: {
            "title": entry.title,
            "documents": documents,
            **_figures(runs[entry.name], runs.get("langchain"), documents),
        }
        for entry in entries
    }


_Store = Callable[[int, int], dict[str, float]]
"""Given the number of documents and the number of the first one."""


def _store(arena: Arena, entry: Entry, stack: ExitStack) -> _Store:
    if entry.collection is None:
        worker = stack.enter_context(arena.worker(entry, "_documents"))
        return lambda documents, first: worker.run("ingest", count=documents, first=first)
    server = stack.enter_context(arena.server(entry))
    mode = "hybrid" if entry.name.endswith("hybrid") else "dense"
    return lambda documents, first: asyncio.run(_send(server, mode, documents, first))


async def _send(server: ServerProcess, mode: str, documents: int, first: int) -> dict[str, float]:
    """Send the documents in requests of the largest size, and wait until all of their jobs have succeeded."""
    chunks = job.chunks(documents, first=first)
    bodies = [{"source": chunk.id, "text": chunk.text, "metadata": chunk.metadata} for chunk in chunks]
    async with aiohttp.ClientSession() as session:
        await server.wait_until_ready(session)

        async def call(method: str, path: str, body: Any = None) -> dict[str, Any]:
            async with session.request(method, server.url + path, json=body) as response:
                answer: dict[str, Any] = await response.json()
                if not response.ok:
                    raise RuntimeError(f"{method} {path}: status {response.status}, {answer}")
                return answer

        collection = await call(
            "POST", "/v1/collections", {"name": f"documents-{uuid4()}", "search_mode": mode}
        )
        cpu, begun = cpu_s(server.pid), time.perf_counter()
        path = f"/v1/collections/{collection['id']}/documents"
        jobs = [
            (await call("POST", path, {"documents": bodies[start : start + IN_REQUEST]}))["id"]
            for start in range(0, documents, IN_REQUEST)
        ]
        for job_id in jobs:
            # without the results of its 1,000 documents, which only grow old between two polls
            progress_path = f"/v1/jobs/{job_id}?documents_limit=1"
            while (state := await call("GET", progress_path))["status"] in ("queued", "running"):  # noqa: ASYNC110 -- the job runs in another process
                await asyncio.sleep(_POLL_S)
            if state["status"] != "succeeded":
                raise RuntimeError(f"A job ended as {state['status']}: {state}")
        run = {"wall_s": time.perf_counter() - begun, "cpu_s": cpu_s(server.pid) - cpu}
        await call("DELETE", f"/v1/collections/{collection['id']}")
        return run


def _figures(
    own: Sequence[dict[str, float]], base: Sequence[dict[str, float]] | None, documents: int
) -> dict[str, float]:
    figures = {
        "documents_per_s": statistics.median(documents / run["wall_s"] for run in own),
        "cpu_ms": statistics.median(run["cpu_s"] * 1e3 / documents for run in own),
        "database_cpu_ms": statistics.median(run["database_cpu_s"] * 1e3 / documents for run in own),
    }
    if base is not None:
        speeds = [other["wall_s"] / run["wall_s"] for run, other in zip(own, base, strict=True)]
        figures["speed_to_langchain"] = statistics.median(speeds)
    return figures


def tables(results: dict[str, Any]) -> list[Table]:
    """Return one table."""
    table = Table(
        f"{next(iter(results.values()))['documents']:,} documents of one chunk",
        ("contestant", "documents/s", "relative to LangChain", "CPU ms per document", "database CPU ms"),
    )
    for result in results.values():
        names = ("documents_per_s", "speed_to_langchain", "cpu_ms", "database_cpu_ms")
        table.add(result["title"], *(result.get(name, "") for name in names))
    return [table]
