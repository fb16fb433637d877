"""Tables of the comparison."""

from collections.abc import Mapping
from typing import Any

from figures.measuring import Table

from peers.comparison import CASES
from peers.roster import FLOOR, ROSTER


def tables(results: Mapping[str, Any]) -> list[Table]:
    """Return one table for each case, the baseline first, and one of memory.

    Args:
        results: Results of ``comparison.measure_modules`` or ``measure_servers``.
    """
    made = []
    for case in CASES:
        table = Table(case.title, _columns(stream=case.stream))
        for result in results.values():
            table.add(result["title"], *_cells(result["cases"][case.name], stream=case.stream))
        made.append(table)
    memory = Table("Memory after the queries", ("contestant", "resident MB"))
    for result in results.values():
        memory.add(result["title"], result["resident_mb"])
    floor = ROSTER[FLOOR].title
    memory.notes.append(
        f"Ratios are relative to “{floor}”: the median of each round's ratio. CPU is that of the "
        "contestant's process only."
    )
    return [*made, memory]


def _columns(*, stream: bool) -> tuple[str, ...]:
    first: tuple[str, ...]
    if stream:
        first = ("first token ms p50", "ratio", "tokens/s")
    else:
        first = ("p50 ms", "ratio", "p95 ms", "queries/s", "sources")
    return ("contestant", *first, "CPU ms", "CPU ratio")


def _cells(figures: Mapping[str, float], *, stream: bool) -> list[Any]:
    names: tuple[str, ...]
    if stream:
        names = ("first_token_p50_ms", "first_token_p50_ms_ratio", "tokens_per_s")
    else:
        names = ("p50_ms", "p50_ms_ratio", "p95_ms", "per_s", "sources")
    return [figures.get(name, "") for name in (*names, "cpu_ms", "cpu_ms_ratio")]
