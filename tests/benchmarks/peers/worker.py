"""Run one contestant in a separate process; commands and results are lines of JSON.

<the contestant's python> -m peers.worker NAME
"""

import time

_STARTED = time.perf_counter()  # before anything else is imported

import asyncio  # noqa: E402 - the start of the process is measured
import importlib  # noqa: E402
import json  # noqa: E402
import os  # noqa: E402
import sys  # noqa: E402
import traceback  # noqa: E402
from collections.abc import Callable  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402

from peers import job  # noqa: E402


def resident_mb() -> float:
    """Return the resident memory of this process in MB (10^6 bytes)."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


async def ask(
    contestant: job.Contestant, *, first: int, count: int, in_flight: int, category: str, stream: bool
) -> dict[str, Any]:
    """Send that many queries; return latencies and CPU time of the process in seconds."""
    numbers = iter(range(first, first + count))
    latencies: list[float] = []
    first_tokens: list[float] = []
    sources: list[int] = []

    async def read_stream(question: str) -> None:
        begun, tokens = time.perf_counter(), 0
        async for piece in contestant.stream(question, category):
            if not tokens:
                first_tokens.append(time.perf_counter() - begun)
            tokens += piece.count(job.TOKEN_MARK)
        latencies.append(time.perf_counter() - begun)
        if tokens != job.ANSWER_TOKENS:
            raise RuntimeError(f"{tokens} tokens were streamed instead of {job.ANSWER_TOKENS}.")

    async def read_whole(question: str) -> None:
        begun = time.perf_counter()
        answer = await contestant.query(question, category)
        latencies.append(time.perf_counter() - begun)
        sources.append(len(answer.sources))
        if answer.text.count(job.TOKEN_MARK) != job.ANSWER_TOKENS:
            raise RuntimeError(f"This is not the model's answer: {answer.text[:100]!r}")

    async def client() -> None:
        for number in numbers:
            await (read_stream if stream else read_whole)(job.question(number))

    cpu, begun = time.process_time(), time.perf_counter()
    await asyncio.gather(*(client() for _ in range(in_flight)))
    return {
        "latency_s": latencies,
        "first_token_s": first_tokens,
        "wall_s": time.perf_counter() - begun,
        "cpu_s": time.process_time() - cpu,
        "sources": sum(sources) / len(sources) if sources else None,
    }


async def ingest(contestant: job.Contestant, *, count: int, first: int = 0) -> dict[str, Any]:
    """Replace the stored data by that many chunks from this number on."""
    chunks = job.chunks(count, first=first)
    await contestant.clear()
    cpu, begun = time.process_time(), time.perf_counter()
    await contestant.ingest(chunks)
    return {"wall_s": time.perf_counter() - begun, "cpu_s": time.process_time() - cpu}


async def build_index(contestant: job.Contestant) -> dict[str, Any]:
    """Build the index, unless ingestion has."""
    begun = time.perf_counter()
    await contestant.index()
    return {"wall_s": time.perf_counter() - begun}


async def weigh(contestant: job.Contestant) -> dict[str, Any]:
    """Return the process's memory."""
    return {"resident_mb": resident_mb()}


_COMMANDS: dict[str, Callable[..., Any]] = {
    "ask": ask,
    "ingest": ingest,
    "index": build_index,
    "memory": weigh,
}


async def serve(name: str, output: Any) -> None:
    """Answer commands from stdin until it ends."""
    before = time.perf_counter()
    contestant: job.Contestant = importlib.import_module(f"peers.contestants.{name}").Contestant()
    imported = time.perf_counter()
    await contestant.open()
    ready = time.perf_counter()
    hello = {"import_s": imported - before, "open_s": ready - imported, "ready_s": ready - _STARTED}
    print(json.dumps(hello), file=output, flush=True)
    while line := await asyncio.to_thread(sys.stdin.readline):
        command = json.loads(line)
        try:
            result = await _COMMANDS[command.pop("command")](contestant, **command)
        except Exception as exc:  # noqa: BLE001 - whatever a framework raises is the parent's to report
            traceback.print_exc()
            result = {"error": f"{type(exc).__name__}: {exc}"[:500]}
        print(json.dumps(result), file=output, flush=True)
    await contestant.close()


def main() -> None:
    """Run on uvloop if the environment has it."""
    output = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # output of frameworks is not a result
    serving = serve(sys.argv[1], output)
    try:
        try:
            import uvloop
        except ImportError:
            asyncio.run(serving)
        else:
            uvloop.run(serving)
    except BaseException:  # noqa: BLE001 - the process ends here, whatever it was
        traceback.print_exc()
        os._exit(1)  # without waiting for a framework's threads
    os._exit(0)


if __name__ == "__main__":
    main()
