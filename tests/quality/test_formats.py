"""Generated documents of all formats are read as they were written; ``make quality`` prints the figures."""

import asyncio
from statistics import fmean

import pytest

from tests.quality.format_figures import Figures, answer_facts, documents, figures_of, report
from vectorforge.local.postgres import EmbeddedPostgres

pytestmark = pytest.mark.slow

# Below the figures of 2026-11-27 in docs/results/formats.md
SIMILARITY = 0.97
CELLS = 0.9
HEADINGS = 0.95
FACTS = 0.95


@pytest.fixture(scope="module")
def figures(postgres_server: EmbeddedPostgres) -> list[Figures]:
    made = documents()
    figures = [figures_of(document) for document in made]
    missed = asyncio.run(answer_facts(postgres_server, made, figures))
    print("", report(figures), *missed, sep="\n")  # noqa: T201 - shown with -s, or if a test fails
    return figures


def test_text_is_read_in_order(figures: list[Figures]) -> None:
    assert fmean(one.similarity for one in figures if one.similarity is not None) >= SIMILARITY


def test_cells_are_under_their_columns(figures: list[Figures]) -> None:
    assert fmean(one.cells for one in figures if one.cells is not None) >= CELLS


def test_headings_are_found(figures: list[Figures]) -> None:
    assert fmean(one.headings for one in figures if one.headings is not None) >= HEADINGS


def test_running_heads_and_hidden_text_are_left_out(figures: list[Figures]) -> None:
    assert [one.source for one in figures if not one.absent] == []


def test_planted_facts_are_answered_with_the_right_place(figures: list[Figures]) -> None:
    assert sum(one.answered for one in figures) >= FACTS * sum(one.facts for one in figures)
