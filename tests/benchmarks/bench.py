"""Benchmark the service against a hand-written floor and other frameworks; write docs/results/performance.md.

make bench, or: uv run --group dev python tests/benchmarks/bench.py [PART ...]
"""

import argparse
import signal
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from figures.measuring import progress
from page import Section, write_page
from parts import PARTS, Options, Part, Workshop
from peers.arena import CHUNKS
from peers.database import BenchmarkBusyError
from peers.environments import InstallationError
from peers.processes import ContestantError
from peers.roster import ROSTER
from results import Results, commit
from scripts import ScriptError

from vectorforge.local.laptop import default_data_dir

_RESULTS = Path(__file__).parent / "results"
_LINES = "\n".join(
    f"  {part.name:16}{part.what}{' (only when named)' if part.optional else ''}; about {part.minutes} min"
    for part in PARTS.values()
)
_EXPLANATION = f"""
parts:
{_LINES}
  page            only write docs/results/performance.md from existing results

contestants (--only):
{chr(10).join(f"  {name:20}{entry.title}" for name, entry in ROSTER.items())}

All contestants do the same job (tests/benchmarks/peers/job.py) against one PostgreSQL and one local model
that answers at once, and take turns, so that a busy moment hits all of them; the figures are medians of the
rounds. Ratios to the floor, and CPU, say more than milliseconds, which are this machine's. Each framework is
installed by uv into an environment of its own when it is first wanted; without network it is left out.

--folder keeps environments, the database and what the contestants have stored (a few minutes, once), so a
second run begins at once. Each part's result is a file of --results as soon as it is measured: a run that
was broken off goes on with --resume, and the page is written from all results that are there. Close what
else uses the machine: the page says how busy it was.

examples:
  make bench
  make bench ARGS="servers modules --rounds 3 --only raw_http vectorforge langchain"
  make bench ARGS="search-10000 search-100000 search-500000"
  make bench ARGS="quality --data ../data/cranfield ../data/xquad_en"
  make bench ARGS="--resume"
  make bench ARGS="servers --quick"
"""


def main() -> None:
    """Measure the parts named on the command line, and write the page."""
    arguments = _arguments()
    if not sys.platform.startswith("linux"):
        sys.exit("CPU and memory of processes are read from /proc, which only Linux has.")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # stops the started processes
    results_folder = arguments.results or (arguments.folder / "quick" if arguments.quick else _RESULTS)
    results = Results(results_folder)
    options = _options(arguments)
    parts = _parts(arguments, results)
    try:
        with ExitStack() as stack:
            options.folder.mkdir(parents=True, exist_ok=True)
            workshop = Workshop(options, stack)
            for number, part in enumerate(parts, start=1):
                progress.print(f"[bold]{part.name}[/bold] ({number} of {len(parts)}): {part.what}")
                _measure(part, workshop, results)
    except (BenchmarkBusyError, ContestantError, InstallationError, ScriptError) as exc:
        sys.exit(str(exc))
    if not (arguments.no_page or arguments.quick):
        changed = write_page(_sections(results), list(PARTS))
        progress.print(f"docs/results/performance.md: {', '.join(changed) or 'nothing'} rewritten.")


def _measure(part: Part, workshop: Workshop, results: Results) -> None:
    figures = part.measure(workshop)
    options = workshop.options
    settings: dict[str, Any] = {
        "rounds": options.rounds,
        "chunks": options.chunks,
        "questions": options.questions,
    }
    if part.with_contestants:
        settings["versions"] = {entry.name: workshop.arena.versions(entry) for entry in workshop.entries}
    results.write(part.name, figures, settings)
    for table in part.section(figures, settings).tables:
        print(table.markdown())


def _sections(results: Results) -> dict[str, tuple[Section, dict[str, object]]]:
    found = {}
    for part in PARTS.values():
        record = results.read(part.name)
        if record is not None:
            found[part.name] = (part.section(record["figures"], record["settings"]), record["measured"])
    return found


def _parts(arguments: argparse.Namespace, results: Results) -> list[Part]:
    """Return the parts to measure."""
    if arguments.parts == ["page"]:
        return []
    named: Sequence[str] = [name for name in arguments.parts if name != "page"]
    chosen = [part for part in PARTS.values() if part.name in named or not (named or part.optional)]
    if not arguments.data:
        if "quality" in named:
            sys.exit("quality needs --data: folders with corpus.jsonl, queries.jsonl and qrels.jsonl.")
        chosen = [part for part in chosen if not part.needs_data]
    if arguments.resume:
        now = commit()
        chosen = [part for part in chosen if results.commit_of(part.name) != now]
    return chosen


def _options(arguments: argparse.Namespace) -> Options:
    quick: bool = arguments.quick
    return Options(
        names=arguments.only,
        rounds=arguments.rounds or (1 if quick else 7),
        chunks=arguments.chunks,
        questions=20 if quick else 200,
        folder=arguments.folder,
        data=[folder.resolve() for folder in arguments.data],
        quick=quick,
    )


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").splitlines()[0],
        epilog=_EXPLANATION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add, folder = parser.add_argument, default_data_dir() / "benchmarks" / "peers"
    add("parts", nargs="*", choices=[*PARTS, "page", []], metavar="PART", help="see below (default: all)")
    add("--only", nargs="+", choices=list(ROSTER), default=list(ROSTER), metavar="NAME", help="contestants")
    add("--rounds", type=int, help="how often contestants take turns (default 7)")
    add("--chunks", type=int, default=CHUNKS, help=f"passages they are asked about (default {CHUNKS:,})")
    add("--data", type=Path, nargs="+", default=[], metavar="FOLDER", help="collections with judgements")
    add("--quick", action="store_true", help="few repetitions, results elsewhere, no page: to find mistakes")
    add("--resume", action="store_true", help="leave out parts that have a result of this commit")
    add("--no-page", action="store_true", help="do not write docs/results/performance.md")
    add("--folder", type=Path, default=folder, help=f"what is kept between runs (default {folder})")
    add("--results", type=Path, help=f"JSON of each part (default {_RESULTS.name}, beside this script)")
    return parser.parse_args()


if __name__ == "__main__":
    main()
