"""Model how a deployment scales, check the model against a local server, and write docs/results/scaling.md.

uv run --group dev python tests/benchmarks/scaling_model.py --write
"""

import argparse
import asyncio
import json
import os
from dataclasses import asdict, replace
from pathlib import Path

from figures.database import private_server
from figures.deployment import AURORA, DEV, PROD, Deployment, Outcome, simulate, with_readers
from figures.load import LocalTimes, Point, measure, predict
from figures.measuring import Table, progress
from figures.report import machine
from plots import bars

from infra.costs.bill import idle_bill, query_bill, total
from infra.settings import STAGES

_ROOT = Path(__file__).resolve().parents[2]
_PAGE = _ROOT / "docs" / "results" / "scaling.md"
_IMAGES = _ROOT / "docs" / "images"
_STORED = Path(__file__).resolve().parent / "results" / "scaling.json"
_RATES = (10, 100, 1_000, 10_000)
_SMALL = 0.0035
"""CPU of a search in 1,000 chunks."""
_MONTH_S = 730 * 3600
_AURORA_HOUR = 1.106
"""Assumed list price of a db.r7g.2xlarge in Aurora; infra/costs/prices.py has Serverless v2 only."""


async def _validate(rates: list[float], seconds: float, chunks: int) -> dict[str, object]:
    with private_server() as server:
        before = os.getloadavg()
        times, points = await measure(server, rates, seconds, chunks)
    return {
        "machine": machine(),
        "load": [round(before[0], 1), round(os.getloadavg()[0], 1)],
        "chunks": chunks,
        "seconds": seconds,
        "times": asdict(times),
        "points": [asdict(point) for point in points],
    }


def _validation(stored: dict[str, object]) -> tuple[Table, list[tuple[str, float]]]:
    times = LocalTimes(**stored["times"])  # type: ignore[arg-type]
    table = Table(
        "Model and reality",
        (
            "offered/s",
            "answered/s",
            "predicted",
            "p50 ms",
            "predicted",
            "error",
            "p95 ms",
            "predicted",
            "error",
            "rejected",
        ),
    )
    rows: list[tuple[str, float]] = []
    for point in (Point(**one) for one in stored["points"]):  # type: ignore[attr-defined]
        said = predict(times, point.rate, float(str(stored["seconds"])), cores=os.cpu_count() or 2)
        table.add(
            point.rate, point.throughput, said.throughput, point.p50_ms, said.p50_ms,
            f"{said.p50_ms / point.p50_ms - 1:+.0%}", point.p95_ms, said.p95_ms,
            f"{said.p95_ms / point.p95_ms - 1:+.0%}", point.failed,
        )  # fmt: skip
        rows += [(f"measured, {point.rate:g}/s", point.p95_ms), (f"model, {point.rate:g}/s", said.p95_ms)]
    return table, rows


def _dollars(one: Deployment, rate: float, share: float) -> tuple[float, float]:
    """Return dollars a month and for 1,000 answered queries, without the model's tokens."""
    stage = STAGES["dev" if one.name == "dev" else "prod"]
    fixed = total(idle_bill(stage)) + (_AURORA_HOUR * 730 * (1 + one.readers) if one.readers else 0)
    answered = min(rate * share, one.first()[1]) * _MONTH_S
    month = fixed + answered / 1000 * total(query_bill(stage))
    return month, month / answered * 1000 if answered else float("inf")


def _row(table: Table, one: Deployment, rate: float, found: Outcome) -> None:
    first, limit = one.first()
    month, thousand = _dollars(one, rate, found.share)
    busiest = max(found.used, key=lambda name: found.used[name])
    table.add(
        one.name, f"{rate:,}", f"{found.share:.0%}", f"{first}, {limit:,.0f}/s",
        f"{busiest} {found.used[busiest]:.0%}", found.percentile_ms(50), found.percentile_ms(95),
        f"{found.throttled:,} / {found.refused:,} / {found.late:,}", f"${month:,.0f}", f"${thousand:.3f}",
    )  # fmt: skip


def _stages() -> Table:
    table = Table(
        "By stage",
        ("stage", "offered/s", "not failed", "first limit", "busiest station", "p50 ms", "p95 ms",
         "throttled / vendor / late", "a month", "per 1,000"),
    )  # fmt: skip
    for one in (DEV, PROD, AURORA):
        for rate in _RATES:
            print(f"simulating {one.name} at {rate}/s", file=progress.file)
            _row(
                table,
                one,
                rate,
                simulate(one, rate, seconds=20 if rate < 1_000 else 12 if rate < 10_000 else 5),
            )
    return table


def _bursts() -> Table:
    table = Table(
        "Jumps of the rate",
        (
            "stage",
            "from",
            "to",
            "for s",
            "new processes",
            "not failed",
            "p95 ms",
            "throttled / vendor / late",
        ),
    )
    for one, rate, factor in ((DEV, 2, 10), (PROD, 10, 10), (AURORA, 100, 10), (AURORA, 100, 30)):
        found = simulate(one, rate, seconds=20, burst=factor, burst_s=10)
        failed = f"{found.throttled:,} / {found.refused:,} / {found.late:,}"
        table.add(
            one.name, f"{rate}/s", f"{rate * factor}/s", 10, f"{found.cold:,}", f"{found.share:.1%}",
            found.percentile_ms(95), failed,
        )  # fmt: skip
    return table


def _limits(times_s: float) -> Table:
    names = ("vendor", "processes", "writer CPU", "reader CPU", "connections", "log writers", "API Gateway")
    table = Table(f"Limits with {times_s * 1000:g} ms a search", ("stage", *names))
    for one in (DEV, PROD, AURORA):
        found = replace(one, times=replace(one.times, search_s=times_s)).capacities()
        table.add(one.name, *(f"{found[name]:,.0f}" if name in found else "" for name in names))
    return table


def _write(stored: dict[str, object]) -> None:
    template = (Path(__file__).resolve().parent / "figures" / "scaling_page.md").read_text()
    validation, rows = _validation(stored)
    readers = [(f"{count} readers", with_readers(count).first()[1]) for count in (0, 1, 3, 7, 15)]
    limits = [(name, value) for name, value in PROD.capacities().items() if name != "API Gateway"]
    pictures = {
        "scaling-validation": bars("Local server, p95", "ms", rows, ours="model"),
        "scaling-prod": bars(
            "prod, 10,000 chunks: limit of each resource", "queries/s", limits, ours="writer"
        ),
        "scaling-readers": bars("Aurora, 8 vCPU each, all else ample", "queries/s", readers, ours=""),
    }
    for name, drawn in pictures.items():
        (_IMAGES / f"{name}.svg").write_text(drawn)
    times: dict[str, float] = stored["times"]  # type: ignore[assignment]
    shown = [
        f"{name.removesuffix('_s')} {value * 1000:.1f} ms" for name, value in times.items() if name != "share"
    ]
    parts = {
        "machine": stored["machine"], "load": stored["load"], "seconds": stored["seconds"],
        "chunks": f"{stored['chunks']:,}", "validation": validation.markdown(),
        "stages": _stages().markdown(),
        "bursts": _bursts().markdown(), "limits_slow": _limits(0.026).markdown(),
        "limits_fast": _limits(_SMALL).markdown(),
        "times": ", ".join(shown), "share": f"{times.get('share', 1.0):.0%}",
    }  # fmt: skip
    for name, text in parts.items():
        template = template.replace(f"{{{name}}}", str(text))
    _PAGE.write_text(template.replace(" nan ", " – "))


def main() -> None:
    """Measure, simulate and write, as the options say."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--measure", action="store_true", help="measure the local server (three minutes)")
    parser.add_argument("--write", action="store_true", help="write docs/results/scaling.md and its images")
    parser.add_argument("--rates", type=float, nargs="+", default=[2, 5, 10, 20, 30, 40])
    parser.add_argument("--seconds", type=float, default=20.0, help="at each rate")
    parser.add_argument("--chunks", type=int, default=1_000)
    options = parser.parse_args()
    if options.measure:
        found = asyncio.run(_validate(options.rates, options.seconds, options.chunks))
        _STORED.write_text(json.dumps(found, indent=1) + "\n")
    stored = json.loads(_STORED.read_text())
    print(_validation(stored)[0].markdown())
    if options.write:
        _write(stored)


if __name__ == "__main__":
    main()
