"""docs/results/performance.md is written from results: a block for each part; the rest is unchanged."""

from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from figures.measuring import Table
from page import PAGE, Plot, Section, write_page
from parts import PARTS
from plots import bars
from results import Results, measured

ORDER = ("first", "second", "third")
MEASURED: dict[str, Any] = {
    "at": "2026-01-02 03:04",
    "commit": "abc",
    "cores": 2,
    "memory_gb": 4,
    "system": "Linux x86_64",
    "python": "3.11.7",
    "load": [0.5, 1.0, 2.0],
}


@pytest.fixture
def page(tmp_path: Path) -> Path:
    (tmp_path / "images").mkdir()
    path = tmp_path / "results" / "performance.md"
    path.parent.mkdir()
    path.write_text(
        "# Head\n\n<!-- bench: first -->\nold first\n<!-- end: first -->\n\nbetween\n\n"
        "<!-- bench: third -->\nold third\n<!-- end: third -->\n"
    )
    return path


def section(*, plot: bool = False) -> Section:
    table = Table("Numbers", ("what", "ms"))
    table.add("a", 1.5)
    plots = [Plot("a.svg", "Numbers", "ms", [("VectorForge", 1.0), ("Other", 2.0)])] if plot else []
    return Section("Heading", "Text.", [table], plots)


def test_write_page_replaces_measured_block_and_leaves_rest(page: Path) -> None:
    assert write_page({"first": (section(), MEASURED)}, ORDER, page) == ["first"]
    text = page.read_text()
    assert "old first" not in text
    assert "| a | 1.5 |" in text
    assert "Measured on 2026-01-02 03:04 UTC at abc: 2 cores, 4 GB" in text
    assert "between" in text
    assert "old third" in text
    assert write_page({"first": (section(), MEASURED)}, ORDER, page) == []


def test_new_block_is_inserted_in_part_order(page: Path) -> None:
    write_page({"second": (section(), MEASURED)}, ORDER, page)
    text = page.read_text()
    assert text.index("end: first") < text.index("bench: second") < text.index("bench: third")
    write_page({"last": (section(), MEASURED)}, (*ORDER, "last"), page)
    assert page.read_text().rstrip().endswith("<!-- end: last -->")


def test_plot_is_written_as_svg_and_linked_from_page(page: Path) -> None:
    write_page({"first": (section(plot=True), MEASURED)}, ORDER, page)
    assert "![Numbers, ms](../images/a.svg)" in page.read_text()
    ElementTree.fromstring((page.parent.parent / "images" / "a.svg").read_text())  # noqa: S314 - we wrote it


def test_bar_length_is_proportional_to_value() -> None:
    image = bars("A & B", "ms", [("VectorForge", 1.0), ("<other>", 4.0)], ours="VectorForge")
    root = ElementTree.fromstring(image)  # noqa: S314 - we wrote it
    drawn = [e for e in root.iter("{http://www.w3.org/2000/svg}rect") if e.get("rx")]
    ours, other = (float(bar.attrib["width"]) for bar in drawn)
    assert other == pytest.approx(4 * ours)
    assert drawn[0].get("fill") != drawn[1].get("fill")


def test_results_are_stored_per_part(tmp_path: Path) -> None:
    results = Results(tmp_path / "results")
    assert results.read("servers") is None
    assert results.commit_of("servers") is None
    results.write("servers", {"a": 1}, {"rounds": 2})
    record = results.read("servers")
    assert record is not None
    assert record["figures"] == {"a": 1}
    assert record["settings"] == {"rounds": 2}
    assert record["measured"].keys() == MEASURED.keys()
    assert results.commit_of("servers") == measured()["commit"]


def test_page_blocks_match_parts_in_order() -> None:
    import re

    blocks = re.findall(r"<!-- bench: ([\w-]+) -->", PAGE.read_text())
    assert blocks
    assert set(blocks) <= PARTS.keys()
    assert blocks == [name for name in PARTS if name in blocks], "in the order of the parts"
