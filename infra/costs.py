"""The tables of docs/costs.md, from the stages' settings and ``infra.prices``.

python -m infra.costs           prints them
python -m infra.costs --check   exit code 1 when the document has others
python -m infra.costs --write   puts them there
"""

import argparse
import dataclasses
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from infra.bill import BillLine, money, total
from infra.bundling import ROOT
from infra.idle_bill import CUSTOM_METRICS, egress_bill, idle_bill, start_bill
from infra.prices import AS_OF, MODELS, PRICES, REGION, instance_hour
from infra.question_bill import egress_traffic, question_bill, token_bill
from infra.settings import STAGES, NetworkSettings, StageSettings, Start

DOCUMENT: Final = ROOT / "docs" / "costs.md"

_BLOCK = re.compile(r"<!-- costs: (?P<name>[a-z-]+) -->\n(?P<table>.*?)<!-- end -->", re.DOTALL)
_EGRESS: Mapping[str, NetworkSettings] = {
    "dual-stack": NetworkSettings(egress="dual_stack"),
    "one NAT gateway": NetworkSettings(egress="nat", nat_gateways=1),
    "two NAT gateways": NetworkSettings(egress="nat", nat_gateways=2),
    "none, interface endpoints": NetworkSettings(egress="none"),
}
_STARTS: Mapping[str, tuple[Start, int]] = {
    "on demand": ("on_demand", 0),
    "SnapStart": ("snap_start", 0),
    "one provisioned": ("provisioned", 1),
    "two provisioned": ("provisioned", 2),
}


def tables() -> dict[str, str]:
    """Every table of the document by its name, in Markdown."""
    stages = list(STAGES.values())
    return {
        "idle": _bills("$ a month", [(stage, idle_bill(stage)) for stage in stages], decimals=2),
        "questions": _bills(
            "$ for 1,000 questions", [(stage, question_bill(stage)) for stage in stages], decimals=4
        ),
        "tokens": _tokens(),
        "egress": _egress(STAGES["prod"]),
        "starts": _starts(STAGES["prod"]),
        "metrics": _metrics(),
        "prices": _prices(),
    }


def filled(document: str) -> str:
    """The document with these tables.

    Raises:
        ValueError: It has no place for one of them.
    """
    wanted = tables()
    found = {match["name"] for match in _BLOCK.finditer(document)}
    if found != set(wanted):
        raise ValueError(f"docs/costs.md has places for {sorted(found)}, not for {sorted(wanted)}.")
    return _BLOCK.sub(
        lambda match: f"<!-- costs: {match['name']} -->\n{wanted[match['name']]}\n<!-- end -->", document
    )


def _bills(title: str, bills: Sequence[tuple[StageSettings, Sequence[BillLine]]], *, decimals: int) -> str:
    """Line by line, stages side by side."""
    names = dict.fromkeys(line.what for _, lines in bills for line in lines)
    by_name = [{line.what: line for line in lines} for _, lines in bills]
    rows = [
        [name, *(cell for lines in by_name for cell in _cells(lines.get(name), decimals))] for name in names
    ]
    sums = [f"**{total(lines):.2f}**" for _, lines in bills]
    rows.append(["**together**", *(cell for dollars in sums for cell in (dollars, ""))])
    return _table([title, *(cell for stage, _ in bills for cell in (stage.stage, "how"))], rows)


def _cells(line: BillLine | None, decimals: int) -> list[str]:
    return ["–", ""] if line is None else [f"{line.dollars:.{decimals}f}", line.arithmetic]


def _tokens() -> str:
    header = ["$ for 1,000 questions", "prompts", "answers", "together, with the questions' embeddings"]
    rows = []
    for model in MODELS:
        lines = token_bill(model)
        parts = [f"{line.dollars:.2f}" for line in lines[1:]]
        rows.append([f"`{model.model}`", *parts, f"**{total(lines):.2f}**"])
    return _table(header, rows)


def _egress(stage: StageSettings) -> str:
    rows = []
    for name, network in _EGRESS.items():
        chosen = dataclasses.replace(stage, network=network)
        month, questions = total(egress_bill(chosen)), total(egress_traffic(chosen))
        rows.append([name, f"{month:.2f}", f"{questions:.4f}"])
    return _table(["way out", "$ a month", "$ for 1,000 questions"], rows)


def _starts(stage: StageSettings) -> str:
    rows = []
    for name, (start, count) in _STARTS.items():
        chosen = dataclasses.replace(stage, start=start, provisioned_concurrency=count)
        rows.append([name, f"{total(start_bill(chosen)):.2f}"])
    return _table([f"{stage.query.memory_mb} MB, {stage.code.architecture}", "$ a month"], rows)


def _metrics() -> str:
    rows = [
        [f"`{selection}`", str(count), f"{count * PRICES.metric.each:.2f}"]
        for selection, count in CUSTOM_METRICS.items()
    ]
    return _table(["`VECTORFORGE_CLOUDWATCH_METRICS`", "metrics", "$ a month"], rows)


def _prices() -> str:
    databases = [
        instance_hour(stage.database.instance_type, multi_az=stage.database.multi_az)
        for stage in STAGES.values()
    ]
    rows = [
        [price.what, money(price.dollars), _unit(price.per, price.unit), price.source]
        for price in [*PRICES.all(), *databases]
    ]
    for model in MODELS:
        dollars = f"{money(model.tokens_in)} in, {money(model.tokens_out)} out"
        rows.append([f"`{model.model}`", dollars, "1,000,000 tokens", model.source])
    return _table([f"{REGION}, {AS_OF}", "price", "for", "see"], rows)


def _unit(per: int, unit: str) -> str:
    return f"{per:,} {unit}s" if per != 1 else unit


def _table(header: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    head = list(header)
    lines = [head, ["---"] * len(head), *map(list, rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print, check or write; 0, or 1 with the reason on stderr."""
    parser = argparse.ArgumentParser(prog="python -m infra.costs", description=__doc__.partition("\n")[0])
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--check", action="store_true", help="compare docs/costs.md with the settings")
    which.add_argument("--write", action="store_true", help="put the tables into docs/costs.md")
    chosen = parser.parse_args(arguments)
    if not (chosen.check or chosen.write):
        sys.stdout.write("\n\n".join(tables().values()) + "\n")
        return 0
    found = DOCUMENT.read_text(encoding="utf-8")
    wanted = filled(found)
    if chosen.write:
        DOCUMENT.write_text(wanted, encoding="utf-8")
    elif found != wanted:
        sys.stderr.write("docs/costs.md is not what the settings cost: run python -m infra.costs --write.\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
