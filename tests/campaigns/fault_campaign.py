"""Inject the faults of the matrix into a running system under load, and audit the outcome.

python -m tests.campaigns faults
"""

import argparse
import asyncio
import contextlib
import platform
import sys
import tempfile
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from tests.campaigns.faults.audit import RowResult
from tests.campaigns.faults.fault import Fault
from tests.campaigns.faults.lean_faults import LEAN_FAULTS
from tests.campaigns.faults.matrix import FAULTS
from tests.campaigns.faults.report import table, totals, write_section
from tests.campaigns.faults.runner import run_faults
from tests.campaigns.faults.system import DEADLINE_S, running_system

EXPLANATION = """
PostgreSQL behind PgBouncer behind a relay that can break, the service as a process of its own, fakes of two
vendors and an embedder on sockets, SQS (a fake that can double messages) and the real log writer. Each row
starts a new service, puts its fault in while questions are asked, half of them streamed, and audits then:

  answered    full answers
  degraded    answers that say which step down they are
  refused     by status; "event" in a stream that had begun
  cut         connections that broke, and the client knows it
  late        open longer than the deadline (6 s) and half a second
  lost logs   answers without a row in the query log; double rows: more than one
  violations  a status 5xx other than 502, 503, 504; no problem details; a stream without exactly one
              terminal event; or not what the row says a client has to see

With --lean: as many query functions as the stage lean permits, directly on PostgreSQL with its limit of
connections, in place of service and PgBouncer.

Rows that are not done are printed as "not covered". A machine that is busy with something else makes requests
late: compare with a second run.

exit code: 0 nothing wrong, 1 something is, 2 the arguments are
"""


@contextlib.contextmanager
def short_folder() -> Iterator[Path]:
    """Make a temporary folder with a short path that PostgreSQL's account may traverse."""
    with tempfile.TemporaryDirectory(prefix="vf-") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


def progress_of(console: Console) -> Progress:
    """Return a progress bar with its name, its count and its time."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    return Progress(*columns, console=console)


def machine() -> str:
    """Describe the machine of the figures, without names."""
    import os

    return (
        f"{datetime.now(UTC):%Y-%m-%d}, {os.cpu_count()} cores, {platform.system()} {platform.machine()}, "
        f"Python {platform.python_version()}"
    )


async def _run(
    faults: Sequence[type[Fault]], requests: int, console: Console, *, pooler: bool
) -> list[RowResult]:
    def show(result: RowResult) -> None:
        if result.missing:
            console.print(f"{result.number:>3} {result.name}: not covered here: {result.missing}")
            return
        wrong = [*result.violations, *([result.error] if result.error else [])]
        verdict = "[green]well[/green]" if result.passed else f"[red]{len(wrong)} wrong[/red]"
        console.print(
            f"{result.number:>3} {result.name}: {verdict}, {len(result.late)} late", highlight=False
        )
        for text in [*wrong, *result.late[:3]]:
            console.print(f"      {text}", highlight=False, markup=False)

    results: list[RowResult] = []
    with short_folder() as folder, progress_of(console) as progress:
        task = progress.add_task("starting", total=len(faults) * requests)
        while len(results) < len(faults):
            (system_folder := folder / f"{len(results)}").mkdir(mode=0o755)
            async with running_system(system_folder, pooler=pooler) as system:
                for kind in faults[len(results) :]:
                    results += await run_faults(
                        system,
                        [kind],
                        requests=requests,
                        on_row=lambda fault: progress.update(task, description=f"fault {fault.number}"),
                        on_answer=lambda _: progress.advance(task),
                        on_result=show,
                    )
                    if results[-1].error:  # the failure of one row may affect others: start a new system
                        break
    return results


def main(arguments: list[str] | None = None) -> None:
    """Run the campaign with the options of the command line, and write the report."""
    parser = argparse.ArgumentParser(
        prog='make campaign ARGS="faults"',
        description=(__doc__ or "").splitlines()[0],
        epilog=EXPLANATION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--requests", type=int, default=200, help="of each row (default 200)")
    parser.add_argument("--only", type=int, nargs="+", metavar="ROW", help="numbers of rows (default all)")
    parser.add_argument("--no-page", action="store_true", help="do not write docs/results/reliability.md")
    parser.add_argument("--lean", action="store_true", help="the rows of the stage without a pooler")
    options = parser.parse_args(arguments)
    faults = LEAN_FAULTS if options.lean else FAULTS
    wanted, known = set(options.only or ()), {kind.number for kind in faults}
    if options.requests < 1:
        parser.error("--requests must be at least 1.")
    if unknown := wanted - known:
        parser.error(f"there is no row {', '.join(map(str, sorted(unknown)))}.")
    chosen = [kind for kind in faults if not wanted or kind.number in wanted]
    results = asyncio.run(_run(chosen, options.requests, Console(), pooler=not options.lean))
    print(table(results, faults))
    print(totals(results))
    if not options.no_page and not wanted:
        facts = f"{machine()}; {options.requests} requests a row, deadline {DEADLINE_S:.0f} s."
        section = "lean" if options.lean else "faults"
        write_section(section, f"{facts} {totals(results)}\n\n{table(results, faults)}")
    sys.exit(0 if all(one.passed for one in results) else 1)


if __name__ == "__main__":
    main()
