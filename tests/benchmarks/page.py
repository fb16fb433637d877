"""The blocks of docs/results/performance.md, one per part, rewritten from the part's last result."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from figures.measuring import Table
from plots import bars

PAGE = Path(__file__).resolve().parents[2] / "docs" / "results" / "performance.md"
_BLOCK = re.compile(r"<!-- bench: (?P<name>[\w-]+) -->\n.*?<!-- end: (?P=name) -->\n", re.DOTALL)


@dataclass(frozen=True)
class Plot:
    """A bar chart of one figure."""

    file: str
    """File name in docs/images."""
    title: str
    unit: str
    rows: Sequence[tuple[str, float]]


@dataclass(frozen=True)
class Section:
    """Section of the page for a part's result."""

    heading: str
    text: str
    tables: Sequence[Table]
    plots: Sequence[Plot] = field(default_factory=tuple)


def write_page(
    sections: Mapping[str, tuple[Section, Mapping[str, Any]]], order: Sequence[str], page: Path = PAGE
) -> list[str]:
    """Replace the sections' blocks in the page.

    Blocks without a new section and text outside of blocks stay unchanged.

    Args:
        sections: Sections by part, each with the ``measured`` of its result.
        order: All parts; a new section is inserted before the first block that follows it here.
        page: The document; the images go into ``images`` next to its folder.

    Returns:
        The names of the changed blocks.
    """
    before = text = page.read_text(encoding="utf-8")
    there = {match["name"]: match[0] for match in _BLOCK.finditer(before)}
    changed = []
    for name, (section, measured) in sections.items():
        block = f"<!-- bench: {name} -->\n{_markdown(name, section, measured)}<!-- end: {name} -->\n"
        if name in there:
            text = text.replace(there[name], block)
        else:
            text = _inserted(text, block, order[order.index(name) + 1 :])
        if there.get(name) != block:
            changed.append(name)
        for plot in section.plots:
            image = page.parent.parent / "images" / plot.file
            image.write_text(bars(plot.title, plot.unit, plot.rows, ours="VectorForge"), encoding="utf-8")
    if text != before:
        page.write_text(text, encoding="utf-8")
    return changed


def _inserted(text: str, block: str, followers: Sequence[str]) -> str:
    """Return the text with the block before the first of its followers, or at the end."""
    for follower in followers:
        before, mark, after = text.partition(f"<!-- bench: {follower} -->\n")
        if mark:
            return f"{before}{block}\n{mark}{after}"
    return f"{text.rstrip()}\n\n{block}"


def _markdown(name: str, section: Section, measured: Mapping[str, Any]) -> str:
    lines = [
        f"## {section.heading}",
        "",
        f"    make bench ARGS={name}",
        "",
        f"{where(measured)} {section.text}".strip(),
        "",
    ]
    for plot in section.plots:
        lines += [f"![{plot.title}, {plot.unit}](../images/{plot.file})", ""]
    for table in section.tables:
        lines += [table.markdown().rstrip(), ""]
    return "\n".join(lines) + "\n"


def where(measured: Mapping[str, Any]) -> str:
    """Return time and machine of a measurement as a sentence."""
    load = ", ".join(f"{value:g}" for value in measured["load"])
    return (
        f"Measured on {measured['at']} UTC at {measured['commit'] or 'an unknown commit'}: "
        f"{measured['cores']} cores, {measured['memory_gb']} GB, {measured['system']}, "
        f"Python {measured['python']}; load averages of 1, 5 and 15 minutes at the end: {load}."
    )
