"""Measure lexical searches at several sizes, and the maintenance of the terms of chunks.

uv run --group dev python tests/benchmarks/lexical_figures.py
"""

import argparse
import asyncio
import os

from figures.database import private_server
from figures.lexical import WORDS_IN_A_CHUNK, WORDS_IN_A_QUESTION, measure_lexical
from figures.report import machine, print_report

_EXPLANATION = f"""
Passages of {WORDS_IN_A_CHUNK} words and questions of {WORDS_IN_A_QUESTION} words on average, drawn by Zipf's
law, so that a question meets as many postings as one of a real language does. One client, an embedded
PostgreSQL with its own default settings in a temporary folder, which is deleted at the end.
"""


def main() -> None:
    """Measure with the options of the command line, and print the result."""
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").splitlines()[0],
        epilog=_EXPLANATION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--sizes", nargs="+", type=int, metavar="N", default=(10_000, 100_000), help="default 10000 100000"
    )
    parser.add_argument("--searches", type=int, default=300, metavar="N", help="at each size (default 300)")
    parser.add_argument(
        "--others", type=int, default=0, metavar="N", help="further collections of the tenant (default 0)"
    )
    parser.add_argument("--json", action="store_true", help="print JSON, not Markdown")
    options = parser.parse_args()
    where = machine()
    with private_server() as server:
        tables = asyncio.run(
            measure_lexical(
                server, sizes=sorted(options.sizes), searches=options.searches, others=options.others
            )
        )
    print_report(f"{where} before, {os.getloadavg()[0]:.1f} after", tables, as_json=options.json)


if __name__ == "__main__":
    main()
