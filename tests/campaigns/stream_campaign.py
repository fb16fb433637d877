"""Cut streams of the vendor in eight ways, and count the last events that clients receive.

python -m tests.campaigns streams
"""

import argparse
import asyncio
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console

from tests.campaigns.fault_campaign import machine, progress_of, short_folder
from tests.campaigns.faults.load import Answer, Load
from tests.campaigns.faults.report import write_section
from tests.campaigns.faults.system import System, running_system
from tests.campaigns.faults.vendor_faults import request_number
from tests.support.vendors.fake_vendor import Reply
from tests.support.vendors.vendor_behaviour import Behaviour

_TEXTS = ("It takes ", "five days ", "[Source 1].")
MODES: dict[str, Reply] = {
    "clean end without the last event, before the first text": Reply(texts=(), ending="eof"),
    "connection broken before the first text": Reply(texts=(), ending="cut"),
    "error event before the first text": Reply(texts=(), ending="error"),
    "only pings before the first text": Reply(texts=(), ending="stall"),
    "clean end without the last event, after some text": Reply(texts=_TEXTS, ending="eof"),
    "connection broken after some text": Reply(texts=_TEXTS, ending="cut"),
    "error event after some text": Reply(texts=_TEXTS, ending="error"),
    "only pings after some text": Reply(texts=_TEXTS, ending="stall"),
}
_SETTINGS = {"query_timeout_s": "4", "llm_circuit_failures": "0", "llm_max_retries": "0"}
"""A stall ends at the deadline, for which the campaign waits once per batch."""
COLUMNS = (
    "the vendor's stream",
    "streams",
    "done",
    "error",
    "refused",
    "silent ends",
    "more than one end",
    "cut",
    "lost logs",
)
_DRAIN_TIMEOUT_S = 1800.0
"""The log writer stores some hundred records per second, and each stream has two."""
_LOGGED = "SELECT DISTINCT query_text FROM vectorforge.query_logs WHERE query_text LIKE 'Fault 900%'"


@dataclass(frozen=True, slots=True)
class ModeResult:
    """Results of the clients in one mode."""

    mode: str
    answers: Sequence[Answer]
    lost: int
    """Streams that are missing from the query log."""

    @property
    def silent(self) -> int:
        """Return the number of streams that ended regularly without a last event."""
        return sum(one.status == 200 and not one.terminal and not one.cut for one in self.answers)

    @property
    def refused(self) -> int:
        """Return the number of queries with a status and problem details instead of a stream."""
        return sum(one.status != 200 and one.problem is not None for one in self.answers)

    @property
    def passed(self) -> bool:
        """Return whether each stream has exactly one last event and a row in the log."""
        whole = sum(len(one.terminal) == 1 and not one.cut for one in self.answers)
        return not self.lost and whole > 0 and whole + self.refused == len(self.answers)

    def cells(self) -> tuple[Any, ...]:
        """Return the cells in the order of ``COLUMNS``."""
        ends = [one.terminal for one in self.answers]
        several = sum(len(one) > 1 for one in ends)
        cut = sum(one.cut for one in self.answers)
        return (
            *(self.mode, len(self.answers), ends.count(["done"]), ends.count(["error"])),
            *(self.refused, self.silent, several, cut, self.lost),
        )


async def cut_streams(
    system: System, streams: int, *, at_once: int = 32, on_answer: Callable[[Answer], None] = lambda _: None
) -> list[ModeResult]:
    """Send that many streamed queries in each mode."""
    modes = list(MODES)

    def decide(body: Any) -> Behaviour:
        return MODES[modes[request_number(body) % len(modes)]]

    async with system.serving(_SETTINGS) as client:
        await Load(client, 901, 4).run()
        system.surroundings.vendor.unscripted = decide
        load = Load(
            client, 900, streams * len(modes), at_once=at_once, streams=lambda _: True, on_answer=on_answer
        )
        try:
            answers = await load.run()
        finally:
            system.surroundings.vendor.unscripted = Reply()
        await system.drain(_DRAIN_TIMEOUT_S)
    logged = {row["query_text"] for row in await system.fetch(_LOGGED)}
    results = []
    for number, mode in enumerate(modes):
        here = [one for one in answers if request_number(one.question) % len(modes) == number]
        results.append(
            ModeResult(mode, here, sum(one.status == 200 and one.question not in logged for one in here))
        )
    return results


def main(arguments: list[str] | None = None) -> None:
    """Run the campaign with the options of the command line, and write the report."""
    parser = argparse.ArgumentParser(
        prog='make campaign ARGS="streams"',
        description=(__doc__ or "").splitlines()[0],
        epilog="exit code: 0 each stream has exactly one last event and a row in the log, 1 not",
    )
    parser.add_argument("--streams", type=int, default=10_000, help="in each of eight modes (default 10,000)")
    parser.add_argument("--at-once", type=int, default=64, help="open at the same time (default 64)")
    parser.add_argument("--no-page", action="store_true", help="do not write docs/results/reliability.md")
    options = parser.parse_args(arguments)
    if options.streams < 1 or options.at_once < 1:
        parser.error("--streams and --at-once must be at least 1.")
    results = asyncio.run(_run(options))
    lines = [f"| {' | '.join(COLUMNS)} |", f"|{' --- |' * len(COLUMNS)}"]
    lines += [f"| {' | '.join(map(str, one.cells()))} |" for one in results]
    print("\n".join(lines))
    if not options.no_page:
        write_section(
            "streams", f"{machine()}; {options.streams:,} streams in each mode.\n\n" + "\n".join(lines)
        )
    sys.exit(0 if all(one.passed for one in results) else 1)


async def _run(options: argparse.Namespace) -> list[ModeResult]:
    with short_folder() as folder, progress_of(Console()) as progress:
        task = progress.add_task("streams", total=options.streams * len(MODES))
        async with running_system(folder) as system:
            return await cut_streams(
                system,
                options.streams,
                at_once=options.at_once,
                on_answer=lambda _: progress.advance(task),
            )


if __name__ == "__main__":
    main()
