"""Headings that the extractive provider quotes above sentences, items and rows."""

from dataclasses import replace

import pytest

from tests.support.rag.chunks import make_chunk
from tests.unit.extractive_answers import BILLING, RHINE, sources
from vectorforge.ingestion.locations import find_headings
from vectorforge.llm.providers.extractive import NO_ANSWER, ExtractiveProvider
from vectorforge.llm.providers.quotations import split
from vectorforge.pipeline.context import ContextBuilder, ContextFormat

LISTS = """# Changelog

## 4.2.0 - 2024-05-01

### Added

- Dark mode for the editor.

### Fixed

- Crash on empty attachments.

## 4.1.0 - 2024-03-12

### Fixed

- Slow start on Windows.
"""
SENTENCES = """## 4.2.0 - 2024-05-01

It fixes a crash on empty attachments.

## 4.1.0 - 2024-03-12

Start on Windows is faster. The export to CSV is new.
"""


async def answer(question: str, *texts: str) -> str:
    """Answer from Markdown, as it is ingested."""
    chunks = []
    for number, text in enumerate(texts):
        headings = find_headings(text, "text/markdown", ())
        stored = make_chunk(text, index=number, score=1 / (1 + number))
        placed = replace(
            stored.chunk, heading=headings.above(0, len(text)), locations=headings.locations(0, len(text))
        )
        chunks.append(replace(stored, chunk=placed))
    given = ContextBuilder().build(question, chunks).grounding(ContextFormat(), with_headings=True)
    messages = [{"role": "user", "content": question}]
    return (await ExtractiveProvider().generate(messages, sources=given)).content


@pytest.mark.parametrize(
    ("question", "start"),
    [
        ("was 4.2.0 fixed", "4.2.0 - 2024-05-01 > Fixed:\nCrash on empty attachments. [Source 1]"),
        ("what was fixed in 4.1.0", "4.1.0 - 2024-03-12 > Fixed:\nSlow start on Windows. [Source 1]"),
        ("crash on empty attachments", "4.2.0 - 2024-05-01 > Fixed:\nCrash on empty attachments. [Source 1]"),
    ],
)
async def test_item_of_a_release_is_quoted_below_its_version(question: str, start: str) -> None:
    assert (await answer(question, LISTS, RHINE)).startswith(start)


async def test_sentence_is_quoted_below_the_version_that_only_its_heading_has() -> None:
    text = await answer("is the start on Windows faster in 4.1.0", SENTENCES, BILLING)
    assert text.startswith("4.1.0 - 2024-03-12:\nStart on Windows is faster. [Source 1]")
    assert "4.2.0" not in text


async def test_sentence_is_quoted_below_the_date_that_answers_the_query() -> None:
    text = await answer("When was the crash on empty attachments fixed?", SENTENCES, BILLING)
    assert text == "4.2.0 - 2024-05-01:\nIt fixes a crash on empty attachments. [Source 1]"


async def test_sentence_with_the_words_of_the_query_is_quoted_without_its_heading() -> None:
    text = await answer("why is the start on Windows faster", SENTENCES, BILLING)
    assert text.startswith("Start on Windows is faster. [Source 1]")


async def test_version_without_a_heading_is_refused() -> None:
    assert await answer("what was fixed in 3.9.7", LISTS, RHINE) == NO_ANSWER


async def test_sentence_below_a_heading_without_known_path_keeps_the_last_heading() -> None:
    given = [replace(sources(SENTENCES)[0], heading="Old > 4.3.0")]
    messages = [{"role": "user", "content": "when was the crash on empty attachments fixed"}]
    text = (await ExtractiveProvider().generate(messages, sources=given)).content
    assert text == "4.2.0 - 2024-05-01:\nIt fixes a crash on empty attachments. [Source 1]"


@pytest.mark.parametrize(
    ("text", "quoted"),
    [
        (
            "Faults\nIf the red light flashes, the tank is empty.",
            ["If the red light flashes, the tank is empty."],
        ),
        ("第1章 総則\n会社は東京に本店を置く。", ["会社は東京に本店を置く。"]),
        ("It runs on\nPostgreSQL, which everyone has.", ["It runs on PostgreSQL, which everyone has."]),
        (
            "The tower stands near\nParis and is as high as\nthe hill behind it.",
            ["The tower stands near Paris and is as high as the hill behind it."],
        ),
        ("Best regards\nAnn", ["Best regards Ann"]),
    ],
)
def test_title_on_the_first_line_of_a_paragraph_is_not_quoted(text: str, quoted: list[str]) -> None:
    assert [piece.text for piece in split(text)] == quoted
