"""Rows of a profile to text."""

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest

from vectorforge.errors import InvalidInputError
from vectorforge.ingestion.chunk import ChunkingConfig
from vectorforge.ingestion.profile_text import (
    ProfileDocument,
    draft_profile,
    row_documents,
    skills_document,
    summary_document,
)
from vectorforge.ingestion.types import ExtractionLimits
from vectorforge.profile_types import SourceType


def text_of(row: dict[str, Any]) -> str:
    (document,) = row_documents(SourceType.EXPERIENCE, [row], "experiences")
    return document.text


# C-001 C-008: usual columns are mapped, others labeled by name; keys and bookkeeping are omitted
def test_row_with_many_columns_becomes_text() -> None:
    row = {
        "id": 12,
        "profile_id": 7,
        "company_id": 3,
        "created_at": datetime(2026, 1, 1, tzinfo=UTC),
        "role": "Senior  engineer",
        "employer": "Acme",
        "start_date": date(2020, 1, 1),
        "end_date": None,
        "is_current": True,
        "description": "Moved the warehouse.\n\nSlowly.",
        "technologies": ["Python", "Postgres"],
        "achievements": ["Cut the cost of the warehouse by half within two years", "Trained others"],
        "remote": True,
        "travel": False,
        "salary": Decimal("90000.50"),
        "address": {"city": "Graz", "zip": 8010, "note": None},
        "notes": "  ",
    }
    assert text_of(row) == "\n\n".join(
        [
            "# Senior engineer, Acme",
            "2020-01-01 to today",
            "Moved the warehouse.\n\nSlowly.",
            "Technologies: Python, Postgres",
            "Achievements:\n- Cut the cost of the warehouse by half within two years\n- Trained others",
            "Remote: yes",
            "Salary: 90000.50",
            "Address: City Graz, Zip 8010",
        ]
    )


@pytest.mark.parametrize(
    ("row", "text"),
    [
        ({"title": "Baker", "start_date": "2020"}, "# Baker\n\nSince 2020"),
        ({"title": "Baker", "end_date": "2021"}, "# Baker\n\nUntil 2021"),
        ({"title": "Baker", "started_on": "2020", "ended_on": "2021"}, "# Baker\n\n2020 to 2021"),
        ({"description": "Only this."}, "Only this."),
        ({"school": "TU Graz", "degree": "MSc"}, "# MSc, TU Graz"),
        ({"title": "Baker", "name": "Oven team"}, "# Baker\n\nName: Oven team"),
    ],
)
def test_row_with_few_columns_becomes_text(row: dict[str, Any], text: str) -> None:
    assert text_of(row) == text


def test_empty_rows_yield_no_documents() -> None:
    rows: list[dict[str, Any]] = [{"id": 1, "title": None, "description": " "}, {}, {"id": 2, "user_id": 4}]
    assert row_documents(SourceType.PROJECT, rows, "projects") == []
    assert summary_document(" \n") == []
    assert skills_document([{"level": "expert"}, ""]) == []


# C-021: the row's key is its source_id; without one, rows are identified by their text
def test_row_source_ids_are_stable_and_unique() -> None:
    rows: list[dict[str, Any]] = [{"id": 0, "title": "a"}, {"title": "b"}, {"title": "c"}, {"title": "b"}]
    first, *others = row_documents(SourceType.PROJECT, rows, "projects")
    again = row_documents(SourceType.PROJECT, list(reversed(rows)), "projects")
    assert first.source_id == "0"
    assert {document.source_id for document in [first, *others]} == {d.source_id for d in again}
    assert len(others) == 2
    with pytest.raises(InvalidInputError, match=r"projects\[1\]\.id is not unique"):
        row_documents(SourceType.PROJECT, [{"id": 1, "title": "a"}, {"id": 1, "title": "a"}], "projects")


def test_skills_become_one_document_grouped_by_category() -> None:
    skills: list[Any] = [
        {"id": 1, "name": "Python", "category": "Languages", "level": "expert", "years": 8},
        "Baking",
        {"skill": "SQL", "category": "Languages"},
    ]
    (document,) = skills_document(skills)
    assert document.text == "# Skills\n\nLanguages: Python (expert, Years 8), SQL\n\nBaking"
    assert (document.source_type, document.source_id) == (SourceType.SKILL, "all")


def test_characters_without_width_are_removed_from_texts() -> None:
    text = "The em\ufeffploy\u00adee moved the warehouse."
    documents = [ProfileDocument(SourceType.CV, "1", text)]
    [(document, [chunk])] = draft_profile(7, documents, ChunkingConfig(), ExtractionLimits())
    assert document.text == chunk.text == "The employee moved the warehouse."
