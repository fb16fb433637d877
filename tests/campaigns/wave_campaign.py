"""Kill the database's connections in waves, and the server itself, under load, and report the outcome.

python -m tests.campaigns waves
"""

import argparse
import asyncio
import os
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass, field

from rich.console import Console

from tests.campaigns.fault_campaign import machine, progress_of, short_folder
from tests.campaigns.faults.database_faults import background
from tests.campaigns.faults.ingestion_faults import collection_for, ended
from tests.campaigns.faults.load import Answer, Load
from tests.campaigns.faults.report import write_section
from tests.campaigns.faults.system import System, running_system

_SHARE = 0.999
"""Required share of answered queries."""
_WORST_S = 5.0
_STORED = "SELECT source FROM vectorforge.documents WHERE source LIKE 'wave/%'"
_LOGGED = "SELECT DISTINCT query_text FROM vectorforge.query_logs WHERE query_text LIKE 'Fault 902%'"


@dataclass(slots=True)
class WaveResult:
    """Result of the queries and of committed documents."""

    waves: int
    kills: int
    answers: list[Answer] = field(default_factory=list)
    ended_backends: int = 0
    committed: set[str] = field(default_factory=set)
    """Documents whose job succeeded."""
    missing: int = 0
    """Committed documents that are missing afterwards."""
    lost: int = 0
    """Answers without a row in the log."""

    @property
    def answered(self) -> float:
        """Return the share of answered queries."""
        return sum(one.is_answer for one in self.answers) / max(len(self.answers), 1)

    @property
    def worst_s(self) -> float:
        """Return the longest duration of a query."""
        return max((one.seconds for one in self.answers), default=0.0)

    @property
    def passed(self) -> bool:
        """Return whether the goals are met; the worst time, which also depends on the machine, is not one."""
        return self.answered >= _SHARE and not self.missing and not self.lost

    def text(self) -> str:
        """Return the result as one paragraph."""
        degraded = sum(bool(one.degraded) for one in self.answers)
        return (
            f"{self.waves} waves ended {self.ended_backends} connections, {self.kills} times the server was "
            f"killed and started again: {self.answered:.3%} of {len(self.answers):,} queries answered "
            f"({degraded} degraded), slowest after {self.worst_s:.1f} s (goal {_WORST_S:.0f} s); "
            f"{self.lost} answers without a row in the log; {self.missing} of {len(self.committed)} "
            "committed documents lost."
        )


async def kill_in_waves(
    system: System,
    *,
    waves: int,
    kills: int,
    questions: int,
    on_answer: Callable[[Answer], None] = lambda _: None,
) -> WaveResult:
    """Query and ingest while connections end ``waves`` times and the server is killed ``kills`` times."""
    result = WaveResult(waves, kills)
    async with system.serving({"query_timeout_s": "15"}) as client:
        collection = await collection_for(client, "waves")
        load = Load(client, 902, questions, on_answer=on_answer)

        async def disturb() -> None:
            for wave in range(waves):
                await load.until_ended((wave + 0.5) / waves)
                result.ended_backends += await system.terminate_backends()
                if kills and wave % max(waves // kills, 1) == 0 and wave // max(waves // kills, 1) < kills:
                    os.kill(system.postgres.pid, signal.SIGKILL)
                    await asyncio.to_thread(system.postgres.start)

        async def ingest() -> None:
            number = 0
            while True:
                source, number = f"wave/{number}", number + 1
                response = await client.post(
                    f"/v1/collections/{collection}/documents",
                    json={"documents": [{"source": source, "text": f"Document {number}."}]},
                )
                if response.status_code < 300:
                    job = await ended(client, response.json()["id"])
                    if job["status"] == "succeeded":
                        result.committed.add(source)
                await asyncio.sleep(0.1)

        async with background(ingest(), endless=True), background(disturb()):
            result.answers = await load.run()
        await system.drain()
    stored = {row["source"] for row in await system.fetch(_STORED)}
    logged = {row["query_text"] for row in await system.fetch(_LOGGED)}
    result.missing = len(result.committed - stored)
    result.lost = sum(one.status == 200 and one.question not in logged for one in result.answers)
    return result


def main(arguments: list[str] | None = None) -> None:
    """Parse the command line, run, print, write."""
    parser = argparse.ArgumentParser(
        prog='make campaign ARGS="waves"',
        description=(__doc__ or "").splitlines()[0],
        epilog="exit code: 0 at least 99.9 % answered, no committed row and no log lost, 1 not",
    )
    parser.add_argument("--waves", type=int, default=50, help="how many (default 50)")
    parser.add_argument("--kills", type=int, default=10, help="of the server among them (default 10)")
    parser.add_argument("--questions", type=int, default=5000, help="altogether (default 5,000)")
    parser.add_argument("--no-page", action="store_true", help="do not write docs/results/reliability.md")
    options = parser.parse_args(arguments)
    if options.waves < 1 or not 0 <= options.kills <= options.waves or options.questions < options.waves:
        parser.error("--waves must be at least 1, --kills 0 to --waves, --questions at least --waves.")
    result = asyncio.run(_run(options))
    print(result.text())
    if not options.no_page:
        write_section("waves", f"{machine()}: {result.text()}")
    sys.exit(0 if result.passed else 1)


async def _run(options: argparse.Namespace) -> WaveResult:
    with short_folder() as folder, progress_of(Console()) as progress:
        task = progress.add_task("questions", total=options.questions)
        async with running_system(folder) as system:
            return await kill_in_waves(
                system,
                waves=options.waves,
                kills=options.kills,
                questions=options.questions,
                on_answer=lambda _: progress.advance(task),
            )


if __name__ == "__main__":
    main()
