"""Measure the Lambda functions: first byte, chunks, cold starts, memory; compare FastAPI and Mangum.

uv run --group dev python tests/benchmarks/lambda_figures.py
"""

import argparse
import asyncio
import os
import sys
from collections.abc import Callable, Mapping

from figures.database import private_server
from figures.lambda_bill import measure_bill
from figures.lambda_functions import measure_functions, measure_imports
from figures.lambda_streams import measure_chunks, measure_first_bytes
from figures.measuring import Table, progress
from figures.report import machine, print_report
from figures.startup import with_bytecode

from vectorforge.local.postgres import EmbeddedPostgres

_EXPLANATION = """
parts:
  first-byte  the client's first byte from warm functions, ours streamed, the others buffered by Mangum on
              AWS's own runtime client
  chunks      what one chunk of a stream costs inside the function, beside a bare socket
  import      CPU of importing each handler, with and without bytecode
  functions   process start to the first poll, memory after init, after one event and after many
  bill        what a question is billed for on AWS: bytes of logs and answers, messages, milliseconds

All run under the Lambda service of infra.emulator.lambda_service, in processes of their own, against an
embedded PostgreSQL and fake vendors that answer at once. No figure is of AWS: there, a network and a front
door are added, and the CPU depends on the memory size.

examples:
  uv run --group dev python tests/benchmarks/lambda_figures.py > figures.md
  uv run --group dev python tests/benchmarks/lambda_figures.py --only chunks --json
"""


def _parts(
    server: EmbeddedPostgres, environment: Mapping[str, str], *, quick: bool
) -> dict[str, Callable[[], list[Table]]]:
    return {
        "first-byte": lambda: asyncio.run(
            measure_first_bytes(server, environment, repeats=5 if quick else 50)
        ),
        "chunks": lambda: asyncio.run(measure_chunks(environment, 200 if quick else 5_000)),
        "import": lambda: measure_imports(environment, 2 if quick else 10),
        "functions": lambda: asyncio.run(
            measure_functions(server, environment, starts=1 if quick else 5, events=10 if quick else 200)
        ),
        "bill": lambda: asyncio.run(measure_bill(server, environment, repeats=5 if quick else 50)),
    }


def main() -> None:
    """Measure with the options of the command line, and print the result."""
    names = ("first-byte", "chunks", "import", "functions", "bill")
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").splitlines()[0],
        epilog=_EXPLANATION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--only", nargs="+", choices=names, default=names, metavar="PART", help="these parts")
    parser.add_argument("--quick", action="store_true", help="fewer repetitions: only to try the script")
    parser.add_argument("--json", action="store_true", help="print JSON, not Markdown")
    options = parser.parse_args()
    if not sys.platform.startswith("linux"):
        parser.error("CPU and memory of processes are read from /proc, which only Linux has.")
    before, tables = machine(), []
    with private_server() as server, with_bytecode() as variables:
        # The service passes to a function only the variables of this process's environment named here.
        bytecode = {"PYTHONPYCACHEPREFIX": variables["PYTHONPYCACHEPREFIX"]}
        for name, measure in _parts(server, {**bytecode}, quick=options.quick).items():
            if name in options.only:
                progress.print(f"[bold]{name}[/bold]")
                tables += measure()
    print_report(f"{before} before, {os.getloadavg()[0]:.1f} after", tables, as_json=options.json)


if __name__ == "__main__":
    main()
