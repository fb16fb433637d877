"""Files and tests named in docs/design/threat-model.md exist."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "design" / "threat-model.md"
THREATS = 37


def rows() -> dict[int, list[str]]:
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    cells = [
        [cell.strip() for cell in line.strip("|").split(" |")] for line in lines if line.startswith("| ")
    ]
    return {int(row[0]): row for row in cells if row[0].isdigit()}


def missing_in(text: str) -> list[str]:
    """Return the files and tests in backticks that do not exist."""
    found = []
    for path, test in re.findall(r"`([\w./-]+/[\w./-]+\.\w+)(?:::(\w+))?`", text):
        file = ROOT / path
        defined = rf"^\s*(async )?def {test}\(" if test else ""
        if not file.is_file() or not re.search(defined, file.read_text(encoding="utf-8"), re.MULTILINE):
            found.append(f"{path}::{test}")
    return found


def test_threats_have_one_row_each() -> None:
    assert sorted(rows()) == list(range(1, THREATS + 1))
    assert {len(row) for row in rows().values()} == {6}


@pytest.mark.parametrize("number", range(1, THREATS + 1))
def test_threat_row_references_exist(number: int) -> None:
    _, _, control, where, shown, _ = rows()[number]
    assert control
    assert "`" in where
    assert "::test_" in shown
    assert missing_in(f"{where} {shown}") == []


def test_missing_reference_is_reported() -> None:
    assert missing_in("`docs/no.md`, `tests/unit/test_errors.py::test_no`") == [
        "docs/no.md::",
        "tests/unit/test_errors.py::test_no",
    ]


def test_threat_model_page_references_exist() -> None:
    assert missing_in(PAGE.read_text(encoding="utf-8")) == []
