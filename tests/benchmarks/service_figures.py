"""Measure the service: import, start, memory, queries, streams, ingestion, search.

uv run --group dev python tests/benchmarks/service_figures.py
"""

import argparse
import asyncio
import os
import sys
from collections.abc import Callable
from pathlib import Path

from figures.database import private_server
from figures.ingestion import measure_ingestion
from figures.measuring import Table, progress
from figures.queries import IN_FLIGHT, measure_queries
from figures.report import machine, print_report
from figures.search import measure_search
from figures.startup import measure_imports, measure_startup

from vectorforge.local.postgres import EmbeddedPostgres

_EXPLANATION = f"""
parts:
  import     wall and CPU of importing the API and the pipeline in fresh interpreters, beside `import fastapi`
  startup    `vectorforge up` until its first answers, and its memory
  queries    first byte, first token, complete answer and CPU per question, one at a time and {IN_FLIGHT} in
             flight, of the service and of a hand-written server that does the bare minimum ("floor");
             the difference is the service's own overhead. The language model is a local server that answers
             at once, the embedding is a test's
  search     latency and recall of exact search and of the HNSW index
  ingestion  passages a second, with the local embedding model and with a test's

Everything runs against an embedded PostgreSQL with its own default settings in a temporary folder, which is
deleted at the end. Latencies depend on what else the machine does; CPU times and ratios do so less. The
whole takes about ten minutes on two cores; --quick takes two and is good for finding mistakes only.

examples:
  uv run --group dev python tests/benchmarks/service_figures.py > figures.md
  uv run --group dev python tests/benchmarks/service_figures.py --only queries --json
  uv run --group dev python tests/benchmarks/service_figures.py --only ingestion --corpus FOLDER
"""


def _parts(server: EmbeddedPostgres, options: argparse.Namespace) -> dict[str, Callable[[], list[Table]]]:
    quick: bool = options.quick
    return {
        "import": lambda: measure_imports(3 if quick else 10),
        "startup": lambda: measure_startup(server, 1 if quick else 5),
        "queries": lambda: asyncio.run(
            measure_queries(server, rounds=1 if quick else 5, questions=IN_FLIGHT * (1 if quick else 5))
        ),
        "search": lambda: asyncio.run(measure_search(server, questions=20 if quick else 300)),
        "ingestion": lambda: asyncio.run(
            measure_ingestion(
                server,
                folder=options.corpus,
                repeats=1 if quick else 2,
                documents=20 if quick else options.documents,
            )
        ),
    }


def main() -> None:
    """Measure with the options of the command line, and print the result."""
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").splitlines()[0],
        epilog=_EXPLANATION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    corpus_help = "ingest its corpus.jsonl ({doc_id, title, text} a line), not invented text"
    names = ("import", "startup", "queries", "search", "ingestion")
    parser.add_argument("--only", nargs="+", choices=names, default=names, metavar="PART", help="these parts")
    parser.add_argument("--corpus", type=Path, metavar="FOLDER", help=corpus_help)
    parser.add_argument("--documents", type=int, default=200, help="to ingest at most (default 200)")
    parser.add_argument("--quick", action="store_true", help="fewer repetitions: only to try the script")
    parser.add_argument("--json", action="store_true", help="print JSON, not Markdown")
    options = parser.parse_args()
    if not sys.platform.startswith("linux"):
        parser.error("CPU and memory of processes are read from /proc, which only Linux has.")

    where, tables = machine(), []
    with private_server() as server:
        for name, measure in _parts(server, options).items():
            if name in options.only:
                progress.print(f"[bold]{name}[/bold]")
                tables += measure()
    where += f" before, {os.getloadavg()[0]:.1f} after"
    print_report(where, tables, as_json=options.json)


if __name__ == "__main__":
    main()
