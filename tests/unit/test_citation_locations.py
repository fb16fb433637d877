"""Text of a chunk that a sentence rests on, its locations, and their short text."""

from typing import Any

import pytest

from tests.support.rag.chunks import make_chunk
from vectorforge.api.answers import link_to
from vectorforge.docrag.responses import as_chunk
from vectorforge.ingestion.chunk import ChunkingConfig
from vectorforge.ingestion.drafts import draft_chunks
from vectorforge.ingestion.extract import media
from vectorforge.ingestion.types import ExtractedDocument
from vectorforge.pipeline.citations.check import CitationChecker
from vectorforge.pipeline.citations.claims import Evidence, locations_within
from vectorforge.pipeline.context import cite
from vectorforge.pipeline.types import cited_heading
from vectorforge.types import Location, location_text

FIRST, SECOND = "Oil the pump every spring.", "The warranty of the motor ends after seven years."
TEXT = f"{FIRST}\n\n{SECOND}"
LINES = [[0.1, 0.1, 0.9, 0.2], [0.1, 0.2, 0.9, 0.3], [0.1, 0.1, 0.5, 0.2]]
PAGES: list[Location] = [
    {"page": 1, "rects": LINES[:2], "offsets": [0, 13]},
    {"page": 2, "rects": LINES[2:], "offsets": [len(FIRST) + 2]},
]


@pytest.mark.parametrize(
    ("locations", "expected"),
    [
        ([], ""),
        ([{"heading": "Install > Linux"}], ""),
        ([{"page": 12}], "p. 12"),
        ([{"page": 4}, {"page": 3}, {"page": 4}], "pp. 3–4"),
        ([{"page": 3}, {"page": 7}], "pp. 3, 7"),
        ([{"slide": 3}], "slide 3"),
        ([{"slide": 1}, {"slide": 2}], "slides 1–2"),
        ([{"sheet": "Prices", "range": "A2:C9"}], "sheet Prices, A2:C9"),
        ([{"sheet": "A"}, {"sheet": "A", "range": "B1"}, {"sheet": "C\nD"}], "sheet A, B1; sheet C D"),
        ([{"range": "A2:B2"}, {"range": "A9:B9"}, {"range": "A2:B2"}], "cells A2:B2, A9:B9"),
    ],
)
def test_location_text_is_short(locations: list[Location], expected: str) -> None:
    assert location_text(locations) == expected


@pytest.mark.parametrize(
    ("sentence", "expected"),
    [
        (SECOND, SECOND),
        (f"\n{SECOND} ", SECOND),
        ("After seven years the motor's warranty is over", SECOND),
        ("You should oil the pump in spring", FIRST),
        ("Nach sieben Jahren endet die Garantie", TEXT),
        ("", TEXT),
        ("The motor of the pump", TEXT),  # one word of each sentence
    ],
)
def test_sentence_rests_on_the_sentence_that_it_quotes_or_repeats(sentence: str, expected: str) -> None:
    start, end = Evidence(make_chunk(TEXT)).find_support(sentence)
    assert TEXT[start:end] == expected


def within(quoted: str, locations: list[Location] = PAGES) -> list[Any]:
    start = TEXT.index(quoted)
    return locations_within(locations, start, start + len(quoted))


def test_locations_are_those_of_the_cited_lines() -> None:
    assert within(SECOND) == [{"page": 2, "rects": LINES[2:]}]
    assert within("every spring") == [{"page": 1, "rects": LINES[1:2]}]
    assert within("spring.\n\nThe warranty") == [
        {"page": 1, "rects": LINES[1:2]},
        {"page": 2, "rects": LINES[2:]},
    ]
    assert location_text(within(TEXT)) == "pp. 1–2"
    assert within(SECOND, [{"page": 1}, {"page": 2}]) == [{"page": 1}, {"page": 2}]  # of an earlier version
    assert within(SECOND, [{"heading": "Pump"}]) == [{"heading": "Pump"}]
    assert within(SECOND, []) == []


@pytest.mark.parametrize(
    ("rows", "offsets", "expected"),
    [
        ("A2:C4", [0, 20, 28], "A4:C4"),
        ("A2:C4", [0, 28, 80], "A3:C3"),
        ("B2:B3", [0, 28], "B3"),
        ("A2:C9", [0, 28], "A2:C9"),  # two tables side by side: rows are not counted
    ],
)
def test_cells_are_those_of_the_cited_rows(rows: str, offsets: list[int], expected: str) -> None:
    [found] = within(SECOND, [{"sheet": "A", "range": rows, "offsets": offsets}])
    assert found == {"sheet": "A", "range": expected}


@pytest.mark.parametrize(
    "answer",
    [
        f"{SECOND} [Source 1]",
        "The warranty ends after seven years [Source 1].",
        "According to [Source 1], the warranty of the motor ends after seven years.",
        f"{FIRST} Oil it yourself.\n{SECOND}\n[Source 1]\n",
    ],
)
def test_citation_names_the_page_of_its_sentence(answer: str) -> None:
    checker = CitationChecker("", [make_chunk(TEXT, start_offset=100, locations=PAGES)])
    checker.feed(answer)
    checker.finish()
    [citation] = checker.citations
    assert citation.location_text == "p. 2"
    assert TEXT[citation.start_offset - 100 : citation.end_offset - 100] == SECOND


GUARANTEE = "The guarantee lasts two years."
SECTIONS = f"## Kettle\n\n{GUARANTEE}\n\n## Toaster\n\nIt browns.\n{GUARANTEE}"


@pytest.mark.parametrize("name", ["Kettle", "Toaster"])
def test_citation_names_the_heading_of_its_sentence(name: str) -> None:
    document = ExtractedDocument("a.md", SECTIONS, media_type=media.MARKDOWN)
    [draft] = draft_chunks(document, ChunkingConfig())
    checker = CitationChecker(
        f"How long is the guarantee of the {name.lower()}?",
        [make_chunk(draft.text, start_offset=0, locations=draft.locations)],
    )
    checker.feed(f"{GUARANTEE} [Source 1]")
    checker.finish()
    [citation] = checker.citations
    assert citation.locations == [{"heading": name}]
    assert citation.start_offset == SECTIONS.index(GUARANTEE, SECTIONS.index(name))
    assert cited_heading(1, "Kettle", checker.citations) == name


def test_chunk_of_one_section_has_its_heading_as_location() -> None:
    document = ExtractedDocument("a.md", f"# Top\n\n## Kettle\n\n{GUARANTEE}", media_type=media.MARKDOWN)
    [draft] = draft_chunks(document, ChunkingConfig())
    assert draft.locations == [{"heading": "Top > Kettle"}]
    assert cited_heading(1, "Top", []) == "Top"


def test_docrag_chunks_have_their_locations() -> None:
    chunk = as_chunk(make_chunk(TEXT, locations=PAGES))
    assert (chunk["locations"], chunk["location_text"]) == (PAGES, "pp. 1–2")


def test_link_opens_the_first_page_of_its_locations() -> None:
    web = cite(make_chunk(TEXT, source="https://docs.example/pump.pdf", locations=PAGES))
    assert link_to(web, PAGES[1:]) == "https://docs.example/pump.pdf#page=2"
    assert link_to(web, [{"heading": "Pump"}]) == "https://docs.example/pump.pdf"
    part = cite(make_chunk(TEXT, source="https://docs.example/a.zip#pump.pdf"))
    assert link_to(part, PAGES) == "https://docs.example/a.zip#pump.pdf"
    file = cite(make_chunk(TEXT, source="pump.pdf"))
    assert link_to(file, PAGES) is None
    assert link_to(file, PAGES, "http://x") == f"http://x/source?chunk={file.chunk_id}"
