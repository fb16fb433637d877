"""Chunks of texts with tables and headings, and their locations."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.documents import one
from vectorforge.ingestion.chunk import ChunkingConfig, chunk_text
from vectorforge.ingestion.drafts import draft_chunks
from vectorforge.ingestion.extract.blocks import (
    Block,
    BlockKind,
    Reading,
    Row,
    compose,
    heading,
    item,
    paragraph,
    table,
)
from vectorforge.ingestion.locations import Headings, locations_of
from vectorforge.ingestion.types import ReadText, SpanKind, TextSpan, cell_range

TABLE = [Row(["Name", "Age", "Town"]), *(Row([f"person{n}", str(n), f"town {n}"]) for n in range(200))]


def composed(blocks: Sequence[Block]) -> ReadText:
    return compose(Reading(blocks), max_chars=10**6)


@given(
    sizes=st.lists(st.tuples(st.booleans(), st.integers(1, 90)), max_size=30),
    size=st.integers(20, 120),
)
def test_chunk_of_rows_and_prose_cuts_no_row_that_fits(sizes: list[tuple[bool, int]], size: int) -> None:
    blocks = [
        Block(BlockKind.TABLE, rows=[Row(["w" * (length % 10 + 1)] * (length // 5 + 1))])
        if is_row
        else paragraph(" ".join(["word"] * length))
        for is_row, length in sizes
    ]
    read = composed(blocks)
    text, rows = read["text"], [span for span in read["spans"] if span.kind == SpanKind.ROW]
    chunks = chunk_text(text, ChunkingConfig(size, size // 5), spans=read["spans"])
    covered = {place for chunk in chunks for place in range(chunk.start_offset, chunk.end_offset)}
    assert all(place in covered for place, letter in enumerate(text) if not letter.isspace())
    for chunk in chunks:
        assert text[chunk.start_offset : chunk.end_offset] == chunk.text
        assert len(chunk.text) <= size
        for row in rows:
            if row.end - row.start <= size:
                assert not row.start < chunk.start_offset < row.end
                assert not row.start < chunk.end_offset < row.end


def test_every_chunk_of_a_table_names_its_columns() -> None:
    read = composed([heading("People"), *table(TABLE)])
    chunks = chunk_text(read["text"], spans=read["spans"])
    assert len(chunks) > 5
    assert all(
        line.startswith("Name: ") for chunk in chunks for line in chunk.text.split("\n\n") if "#" not in line
    )
    assert {chunk.heading for chunk in chunks} == {"People"}
    assert chunks[0].text.startswith("# People\n\nName: person0; Age: 0; Town: town 0")


def test_row_that_looks_like_a_heading_is_none() -> None:
    rows = table([Row(["# of items", "b", "c"]), Row(["1", "2", "3"])])
    read = composed([heading("Stock"), *rows, paragraph("After it. " * 100)])
    assert {chunk.heading for chunk in chunk_text(read["text"], spans=read["spans"])} == {"Stock"}


def test_heading_before_long_rows_cuts_no_row() -> None:
    rows = [Row([" ".join(["word"] * 19)]) for _ in range(4)]
    read = composed([heading("Heading"), Block(BlockKind.TABLE, rows=rows)])
    chunks = chunk_text(read["text"], ChunkingConfig(200, 0), spans=read["spans"])
    assert sum(chunk.text.count(rows[0].cells[0]) for chunk in chunks) == 4


def test_long_row_is_cut_between_values() -> None:
    cells = [f"value number {n} of the row" for n in range(60)]
    read = composed([Block(BlockKind.TABLE, header=[f"c{n}" for n in range(60)], rows=[Row(cells)])])
    chunks = chunk_text(read["text"], spans=read["spans"])
    assert len(chunks) > 1
    assert all(chunk.text.strip().startswith("c") and "value" in chunk.text for chunk in chunks)


def test_markdown_table_repeats_its_header_in_every_chunk() -> None:
    header = "| name | age |\n|---|---|\n"
    text = "# People\n\n" + header + "".join(f"| person{n} | {n} |\n" for n in range(100)) + "\nEnd of it.\n"
    document = one(text.encode(), "a.md")
    chunks = draft_chunks(document, ChunkingConfig())
    assert all(header in chunk.text for chunk in chunks if "| person" in chunk.text)
    assert document.text.count("| person") == 100


@pytest.mark.parametrize(
    ("rows", "is_named"),
    [
        ([["Name", "Age"], ["Ann", "5"]], True),
        ([["Name", "Town", "Street"], ["Ann", "Ulm", "Way"]], True),
        ([["Name", "Ann"], ["Town", "Ulm"]], False),
        ([["1961", "5", "6"], ["1962", "7", "8"]], False),
        ([["a", "a", "b"], ["1", "2", "3"]], False),
        ([["Maker", "Acme"], ["Weight", "20"], ["Color", "blue"]], False),
        ([["Maker", "Acme"], *(["Part", f"part {n}"] for n in range(12))], False),
    ],
)
def test_first_row_is_header_if_it_looks_like_one(rows: list[list[str]], is_named: bool) -> None:
    [block] = table([Row(row) for row in rows])
    assert bool(block.header) is is_named


def test_blocks_become_markdown() -> None:
    blocks = [
        heading("Top", 2),
        paragraph("a\nb"),
        item("x"),
        item("y", 1),
        Block(BlockKind.CAPTION, "Fig. 1"),
    ]
    assert composed(blocks)["text"] == "## Top\n\na\nb\n\n- x\n  - y\n\nFig. 1"


def test_locations_join_lines_of_pages_and_cells_of_sheets() -> None:
    def places(*given: dict[str, Any]) -> list[Any]:
        spans = [TextSpan(n * 2, n * 2 + 1, location=location) for n, location in enumerate(given)]
        headings = Headings("x " * len(spans), [(0, 1, "Top")])
        return locations_of("x " * len(spans), spans, 0, len(spans) * 2, headings)

    assert places(
        {"page": 1, "rect": [0, 0, 1, 0.1]}, {"page": 1, "rect": [0, 0.1, 1, 0.2]}, {"page": 2}
    ) == [
        {"page": 1, "rects": [[0, 0, 1, 0.1], [0, 0.1, 1, 0.2]], "offsets": [0, 2]},
        {"page": 2, "offsets": [4]},
    ]
    first, second, ninth = ({"sheet": "A", "cells": [1, row, 3, row]} for row in (2, 3, 9))
    assert places({"sheet": "A"}, first, second) == [{"sheet": "A", "range": "A2:C3", "offsets": [2, 4]}]
    assert places(first, ninth) == [
        {"sheet": "A", "range": "A2:C2", "offsets": [0]},
        {"sheet": "A", "range": "A9:C9", "offsets": [2]},
    ]
    assert places(first) == [{"sheet": "A", "range": "A2:C2"}]
    assert places() == [{"heading": "Top"}]


def test_cell_range_names_columns_beyond_z() -> None:
    assert cell_range([1, 1, 1, 1]) == "A1"
    assert cell_range([26, 2, 27, 3]) == "Z2:AA3"
    assert cell_range([703, 1, 703, 1]) == "AAA1"
