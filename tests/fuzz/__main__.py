"""Fuzz the API, the documents and filters, and the parsers: ``make fuzz``, or ``python -m tests.fuzz``."""

import argparse
import asyncio
import logging
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Final

from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from tests.fuzz.api_requests import fuzz_api
from tests.fuzz.api_server import ApiServer, api_server
from tests.fuzz.document_machines import MACHINES, machine_for
from tests.fuzz.parser_runs import NO_ATHERIS, fuzz_parser
from tests.fuzz.parsers import PARSERS
from tests.fuzz.reliability_section import PAGE, Row, table, write
from vectorforge.db.schema.migrate import migrate
from vectorforge.local.postgres import EmbeddedPostgres

logger = logging.getLogger(__name__)

PARTS: Final = ("api", *MACHINES, "parsers")
_ENOUGH: Final = 1_000
"""Number of requests after which every operation should have succeeded once."""
_EXPLANATION = """
parts:
  api        requests generated from the OpenAPI document (schemathesis), valid and invalid, to a separate
             server process: no 500, and only documented status codes, content types and bodies
  ingestion  a state machine (hypothesis) adds, replaces, deletes and searches documents over HTTP and
             compares with a dictionary
  filters    the same with hostile metadata: lists, searches and deletions by random filters choose what the
             reference evaluator chooses
  parsers    each reader of foreign bytes under libFuzzer (atheris), led by coverage; on Linux x86_64 only

exit code: 0 nothing found, 1 something was, 2 the arguments are wrong
"""


def main() -> None:
    """Run the fuzzers selected on the command line, and print the results."""
    options = _arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # stops the servers, too
    console = Console()
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    rows: list[Row] = []
    with Progress(*columns, console=console) as progress, _database() as url:
        for part in options.only:
            rows += _run(part, options, url, partial(_show, progress, progress.add_task(part, total=None)))
            console.print(rows[-1].markdown(), highlight=False, markup=False, soft_wrap=True)
            for finding in rows[-1].findings:
                console.print(f"finding: {finding}", highlight=False, markup=False)
    print(table(rows))
    if options.write:
        write(PAGE, rows)
    sys.exit(1 if any(row.findings for row in rows) else 0)


def _show(progress: Progress, task: TaskID, done: int, total: int) -> None:
    progress.update(task, completed=done, total=total)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.fuzz",
        description=(__doc__ or "").splitlines()[0],
        epilog=_EXPLANATION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS, help="parts (default: all)")
    parser.add_argument("--cases", type=int, default=10_000, help="requests of the API (default 10,000)")
    parser.add_argument("--operations", default="", help="those whose method and path contain this")
    parser.add_argument("--each", action="store_true", help="print the statuses of each operation")
    parser.add_argument("--runs", type=int, default=100, help="of each state machine (default 100)")
    parser.add_argument("--seconds", type=int, default=20, help="for each parser (default 20)")
    parser.add_argument("--seed", type=int, default=1, help="of everything random (default 1)")
    parser.add_argument("--write", action="store_true", help="write the rows to docs/results/reliability.md")
    options = parser.parse_args()
    if min(options.cases, options.runs, options.seconds) < 1:
        parser.error("--cases, --runs and --seconds must be at least 1.")
    return options


@contextmanager
def _database() -> Iterator[str]:
    """Start a separate migrated database; yield the app role's connection string."""
    with tempfile.TemporaryDirectory(prefix="vf-fuzz-") as folder:
        Path(folder).chmod(0o755)  # as root, PostgreSQL runs as an account that has to traverse it
        server = EmbeddedPostgres(Path(folder) / "postgres", settings={"max_connections": "100"})
        server.start()
        try:
            asyncio.run(migrate(server.migrator_url))
            yield server.app_url
        finally:
            server.stop(force=True)


def _run(part: str, options: argparse.Namespace, url: str, on_step: Callable[[int, int], None]) -> list[Row]:
    if part == "parsers":
        return [_parsers(options, on_step)]
    with tempfile.NamedTemporaryFile(prefix="vf-fuzz-", suffix=".log", delete=False) as log:

        async def with_server() -> Row:
            async with api_server(url, f"fuzz-{part}", log=log) as server:
                if part == "api":
                    return await _api(server, options, on_step)
                return await asyncio.to_thread(_machine, part, server, options, on_step)

        row = asyncio.run(with_server())
    if row.findings:
        print(f"The server's log: {log.name}", file=sys.stderr)
    else:
        Path(log.name).unlink()
    return [row]


async def _api(server: ApiServer, options: argparse.Namespace, on_step: Callable[[int, int], None]) -> Row:
    began, sent = time.monotonic(), iter(range(1, sys.maxsize))
    findings = await fuzz_api(
        server,
        cases=options.cases,
        seed_number=options.seed,
        only=options.operations,
        on_case=lambda: on_step(next(sent), options.cases),
    )
    seconds = time.monotonic() - began
    if options.each:
        for operation, seen in findings.statuses.items():
            print(operation, *(f"{count} x {status}" for status, count in sorted(seen.items())), sep="  ")
    statuses = ", ".join(f"{count:,} x {status}" for status, count in sorted(findings.total.items()))
    return Row(
        "requests generated from the OpenAPI document",
        f"{findings.cases:,} to {len(findings.statuses)} operations in {seconds:.0f} s ({statuses}); "
        + _today(options.seed),
        "no 500, no undocumented status code, content type or body; no operation that always rejects",
        [
            *(f"{what}\n{example}" for what, example in sorted(findings.problems.items())),
            *(f"{one}: never answered well" for one in findings.never_well if findings.cases >= _ENOUGH),
        ],
    )


def _machine(
    name: str, server: ApiServer, options: argparse.Namespace, on_step: Callable[[int, int], None]
) -> Row:
    machine, counts = machine_for(name, server, on_run=lambda done: on_step(done, options.runs))
    began, findings = time.monotonic(), list[str]()
    run = settings(
        max_examples=options.runs,
        stateful_step_count=25,
        deadline=None,
        database=None,
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
    )
    seed(options.seed)(machine)
    try:
        run_state_machine_as_test(machine, settings=run)
    except Exception as exc:  # noqa: BLE001 - whatever it is, it is the finding
        findings.append("\n".join([repr(exc), *getattr(exc, "__notes__", ())]))
    return Row(
        f"state machine: {name}",
        f"{counts.runs:,} runs, {counts.steps:,} steps, {counts.requests:,} requests in "
        f"{time.monotonic() - began:.0f} s; {_today(options.seed)}",
        f"{counts.compared:,} answers equal those of a dictionary",
        findings,
    )


def _parsers(options: argparse.Namespace, on_step: Callable[[int, int], None]) -> Row:
    means = f"{len(PARSERS)} readers reject or parse their input, and keep their guarantees"
    if NO_ATHERIS:
        return Row("parsers, coverage-guided", NO_ATHERIS, means, [], not_run=True)
    executions, findings = 0, list[str]()
    for number, name in enumerate(PARSERS):
        on_step(number, len(PARSERS))
        result = fuzz_parser(name, seconds=options.seconds, seed=options.seed)
        executions += result.executions
        if result.finding:
            findings.append(f"{name}: {result.finding}")
            logger.warning("Found: %s", findings[-1])
    on_step(len(PARSERS), len(PARSERS))
    amount = f"{executions:,} inputs, {options.seconds} s for each; {_today(options.seed)}"
    return Row("parsers, coverage-guided", amount, means, findings)


def _today(seed_number: int) -> str:
    return f"{datetime.now(UTC):%Y-%m-%d}, seed {seed_number}"


if __name__ == "__main__":
    main()
