"""The table of ``make fuzz`` replaces the text between its markers only."""

from pathlib import Path

import pytest

from tests.fuzz.reliability_section import BEGIN, END, PAGE, Row, write

FOUND = Row("api", "10 requests", "no 500", ["GET /: 500"])
SKIPPED = Row("parsers", "atheris is not installed", "", [], not_run=True)


def test_section_write_replaces_text_between_markers_only(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"Before.\n{BEGIN}\nold\n{END}\nAfter.\n")
    write(page, [FOUND, SKIPPED])
    lines = page.read_text().splitlines()
    assert (lines[0], lines[-1]) == ("Before.", "After.")
    assert "| api | 10 requests | no 500 | 1 |" in lines
    assert "| parsers | atheris is not installed |  | not run |" in lines
    assert "old" not in lines


def test_section_write_retains_rows_that_were_not_rerun(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"{BEGIN}\n{END}\n")
    write(page, [FOUND, SKIPPED])
    write(page, [Row("api", "20 requests", "no 500", [])])
    assert page.read_text().count("| fuzzer |") == 1
    assert "| api | 20 requests | no 500 | 0 |" in page.read_text()
    assert "| api | 10 requests" not in page.read_text()
    assert SKIPPED.markdown() in page.read_text()


def test_page_without_markers_is_rejected(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"{END}\n{BEGIN}\n")
    with pytest.raises(ValueError, match="does not hold"):
        write(page, [FOUND])
    assert page.read_text() == f"{END}\n{BEGIN}\n"


def test_reliability_page_contains_markers() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert text.index(BEGIN) < text.index(END)
