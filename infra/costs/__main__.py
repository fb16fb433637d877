"""Print, check or write the tables of docs/operate/costs.md."""

import argparse
import dataclasses
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from infra.bundling.bundle import ROOT
from infra.costs.bill import (
    CUSTOM_METRICS,
    BillLine,
    egress_bill,
    egress_traffic,
    idle_bill,
    money,
    query_bill,
    start_bill,
    token_bill,
    total,
)
from infra.costs.prices import AS_OF, MODELS, PRICES, REGION, instance_hour
from infra.setting_types import NetworkSettings
from infra.settings import STAGES
from infra.stage_settings import StageSettings

DOCUMENT: Final = ROOT / "docs" / "operate" / "costs.md"

_BLOCK = re.compile(r"<!-- costs: (?P<name>[a-z-]+) -->\n(?P<table>.*?)<!-- end -->", re.DOTALL)
_SIZES: Final = {name: STAGES[name] for name in ("lean", "dev", "prod", "large")}
_PROD = STAGES["prod"]
_EGRESS_NAMES = {"nat": "NAT", "dual_stack": "IPv6", "none": "none"}
_EGRESS = {
    "dual-stack": NetworkSettings(egress="dual_stack"),
    "one NAT gateway": NetworkSettings(egress="nat", nat_gateways=1),
    "two NAT gateways": NetworkSettings(egress="nat", nat_gateways=2),
    "none, interface endpoints": NetworkSettings(egress="none"),
}
_STARTS = {
    "on demand": dataclasses.replace(_PROD, start="on_demand"),
    "SnapStart": dataclasses.replace(_PROD, start="snap_start"),
    "one provisioned": dataclasses.replace(_PROD, start="provisioned", provisioned_concurrency=1),
    "two provisioned": dataclasses.replace(_PROD, start="provisioned", provisioned_concurrency=2),
}


def tables() -> dict[str, str]:
    """Return every table of the document by its name, in Markdown."""
    per_thousand = "$ for 1,000 queries"
    query = _PROD.query
    return {
        "sizes": _table(
            ["stage", "database", "proxy", "egress", "queries at a time", "$ a month idle", per_thousand],
            (_size(name, stage) for name, stage in _SIZES.items()),
        ),
        "idle": _bills("$ a month", idle_bill, decimals=2),
        "queries": _bills(per_thousand, query_bill, decimals=4),
        "tokens": _table(
            [per_thousand, "prompts", "answers", "together, with the queries' embeddings"],
            ([f"`{model.model}`", *(f"{line.dollars:.2f}" for line in token_bill(model)[1:]),
              f"**{total(token_bill(model)):.2f}**"] for model in MODELS),
        ),
        "egress": _table(["egress", "$ a month", per_thousand], map(_egress, _EGRESS)),
        "starts": _table(
            [f"{query.memory_mb} MB, {_PROD.code.architecture}", "$ a month"],
            ([name, f"{total(start_bill(stage)):.2f}"] for name, stage in _STARTS.items()),
        ),
        "metrics": _table(
            ["`VECTORFORGE_CLOUDWATCH_METRICS`", "metrics", "$ a month"],
            ([f"`{name}`", str(count), f"{count * PRICES['metric'].each:.2f}"]
             for name, count in CUSTOM_METRICS.items()),
        ),
        "prices": _table([f"{REGION}, {AS_OF}", "price", "for", "see"], _prices()),
    }  # fmt: skip


def filled(document: str) -> str:
    """Return the document with the current tables.

    Raises:
        ValueError: The document lacks the place of a table.
    """
    wanted = tables()
    found = {match["name"] for match in _BLOCK.finditer(document)}
    if found != set(wanted):
        raise ValueError(f"docs/operate/costs.md has places for {sorted(found)}, not for {sorted(wanted)}.")
    return _BLOCK.sub(
        lambda match: f"<!-- costs: {match['name']} -->\n{wanted[match['name']]}\n<!-- end -->", document
    )


def _bills(title: str, bill: Callable[[StageSettings], list[BillLine]], *, decimals: int) -> str:
    """Write the lines of a bill with the stages side by side, and the arithmetic of one of them."""
    bills = {name: {line.what: line for line in bill(stage)} for name, stage in _SIZES.items()}
    rows = []
    for what in dict.fromkeys(what for lines in bills.values() for what in lines):
        found = {name: lines[what] for name, lines in bills.items() if what in lines}
        explained = "prod" if "prod" in found else next(reversed(found))
        cells = (f"{found[name].dollars:.{decimals}f}" if name in found else "–" for name in bills)
        rows.append([what, *cells, f"{explained}: {found[explained].arithmetic}"])
    sums = (f"**{total(list(lines.values())):.2f}**" for lines in bills.values())
    return _table([title, *bills, "how"], [*rows, ["**together**", *sums, ""]])


def _size(name: str, stage: StageSettings) -> list[str]:
    database, most = stage.database, stage.query.max_concurrency
    zones = "two zones" if database.multi_az else "one zone"
    return [
        f"`{name}`",
        f"db.{database.instance_type}, {zones}, {database.storage_gib} GB",
        "RDS Proxy" if database.proxy else "none",
        _EGRESS_NAMES[stage.network.egress],
        "the account's limit" if most is None else str(most),
        f"**{total(idle_bill(stage)):.2f}**",
        f"{total(query_bill(stage)):.2f}",
    ]


def _egress(name: str) -> list[str]:
    stage = dataclasses.replace(_PROD, network=_EGRESS[name])
    return [name, f"{total(egress_bill(stage)):.2f}", f"{total(egress_traffic(stage)):.4f}"]


def _prices() -> Iterable[list[str]]:
    databases = {(one.instance_type, one.multi_az) for one in (stage.database for stage in STAGES.values())}
    instances = [instance_hour(kind, multi_az=multi_az) for kind, multi_az in sorted(databases)]
    for price in [*PRICES.values(), *instances]:
        unit = f"{price.per:,} {price.unit}s" if price.per != 1 else price.unit
        yield [price.what, money(price.dollars), unit, price.source]
    for model in MODELS:
        dollars = f"{money(model.tokens_in)} in, {money(model.tokens_out)} out"
        yield [f"`{model.model}`", dollars, "1,000,000 tokens", model.source]


def _table(header: list[str], rows: Iterable[list[str]]) -> str:
    return "\n".join(f"| {' | '.join(line)} |" for line in [header, ["---"] * len(header), *rows])


def main(arguments: Sequence[str] | None = None) -> int:
    """Print, check or write the tables; return 0, or 1 with the reason on stderr."""
    parser = argparse.ArgumentParser(prog="python -m infra.costs", description=__doc__)
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--check", action="store_true", help="compare docs/operate/costs.md with the settings")
    which.add_argument("--write", action="store_true", help="write the tables into docs/operate/costs.md")
    chosen = parser.parse_args(arguments)
    if not (chosen.check or chosen.write):
        sys.stdout.write("\n\n".join(tables().values()) + "\n")
        return 0
    found = DOCUMENT.read_text(encoding="utf-8")
    wanted = filled(found)
    if chosen.write:
        DOCUMENT.write_text(wanted, encoding="utf-8")
    elif found != wanted:
        sys.stderr.write("docs/operate/costs.md is outdated: run python -m infra.costs --write.\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
