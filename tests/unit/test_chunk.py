"""Chunks are slices of the text, cover it, and have their headings."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vectorforge.config import IngestionSettings
from vectorforge.errors import InvalidInputError
from vectorforge.ingestion.chunk import ChunkingConfig, chunk_text
from vectorforge.ingestion.extract import media
from vectorforge.ingestion.types import SpanKind, TextChunk, TextSpan

ANY_TEXT = st.text(st.characters(codec=None), max_size=400) | st.lists(
    st.sampled_from(
        ["word ", "wörd. ", "\n\n", "# H\n", "```\n", "😀", "e\u0301", "> q\n", "- li\n", "x" * 30, "\r\n"]
    ),
    max_size=80,
).map("".join)


def check(text: str, chunks: list[TextChunk], config: ChunkingConfig) -> None:
    covered: set[int] = set()
    for position, chunk in enumerate(chunks):
        assert chunk.index == position
        assert text[chunk.start_offset : chunk.end_offset] == chunk.text
        assert 0 < len(chunk.text) <= config.chunk_size
        assert chunk.text.strip()
        covered.update(range(chunk.start_offset, chunk.end_offset))
    assert all(position in covered for position, character in enumerate(text) if not character.isspace())
    starts = [chunk.start_offset for chunk in chunks]
    assert starts == sorted(starts)


# C-011, C-022
@given(
    text=ANY_TEXT,
    size=st.integers(1, 60),
    overlap=st.integers(0, 59),
    media_type=st.sampled_from([media.PLAIN, media.MARKDOWN]),
)
def test_chunk_any_text_yields_slices_that_cover_it(
    text: str, size: int, overlap: int, media_type: str
) -> None:
    config = ChunkingConfig(size, min(overlap, size // 2))
    check(text, chunk_text(text, config, media_type=media_type), config)


def test_chunk_with_defaults_overlaps_up_to_800_chars() -> None:
    text = " ".join(f"Sentence number {n} of the text." for n in range(200))
    chunks = chunk_text(text)
    check(text, chunks, ChunkingConfig(800, 150))
    assert all(b.start_offset < a.end_offset for a, b in pairwise(chunks))
    assert max(len(chunk.text) for chunk in chunks) > 700


def test_chunk_long_text_leaves_words_whole() -> None:
    text = "word " * 60_000 + "\n" + "x" * 120_000
    chunks = chunk_text(text)
    check(text, chunks, ChunkingConfig())
    assert {word for chunk in chunks for word in chunk.text.split() if "x" not in word} == {"word"}


@pytest.mark.parametrize("media_type", [media.PLAIN, media.MARKDOWN])
@pytest.mark.parametrize("blank", ["\r\n", " \n", "\r", "\x85", "\u2028"])
def test_chunk_text_with_many_empty_lines_cuts_at_them(media_type: str, blank: str) -> None:
    first, second = "Dough rises for two hours. " * 4, "Oil the chain every spring. " * 4
    text = f"{first}{blank * 4_096}{second}"
    chunks = chunk_text(text, media_type=media_type)
    check(text, chunks, ChunkingConfig())
    assert [chunk.text.strip() for chunk in chunks] == [first.strip(), second.strip()]


def test_chunk_wide_columns_stay_in_one_chunk() -> None:
    text = "\n".join(f"part {n}{' ' * 100}{n} euros" for n in range(5))
    assert [chunk.text for chunk in chunk_text(text)] == [text]


def test_chunk_long_markdown_cuts_at_headings_and_sets_heading_path() -> None:
    section = "\n\n## Part\n\n" + "A sentence of the part. " * 100
    text = "# Book" + section * 60
    chunks = chunk_text(text, media_type=media.MARKDOWN)
    check(text, chunks, ChunkingConfig())
    assert {chunk.heading for chunk in chunks if "sentence" in chunk.text} == {"Book > Part"}
    assert not any(chunk.text.startswith("# Part") for chunk in chunks)


MARKDOWN = """preface

# Guide

intro

## Install ##

### Linux

apt

```sh
# not a heading
```

## Use

All the words of this section.
"""


def test_chunk_markdown_sets_heading_per_line() -> None:
    chunks = chunk_text(MARKDOWN, ChunkingConfig(40, 0), media_type=media.MARKDOWN)
    headings = {line: chunk.heading for chunk in chunks for line in chunk.text.splitlines()}
    assert headings["preface"] is None
    assert headings["intro"] == "Guide"
    assert headings["apt"] == "Guide > Install > Linux"
    assert headings["# not a heading"] == "Guide > Install > Linux"
    assert headings["All the words of this section."] == "Guide > Use"


def test_chunk_plain_text_sets_no_heading() -> None:
    assert {chunk.heading for chunk in chunk_text(MARKDOWN)} == {None}


def test_chunk_bare_heading_joins_following_text() -> None:
    section = "A sentence of the section. " * 29
    text = f"# Handbook\n\n## Travel\n\n{section}\n\n## Hotels\n\n### Limits\n\n{section}"
    chunks = chunk_text(text, media_type=media.MARKDOWN)
    check(text, chunks, ChunkingConfig())
    assert not [chunk.text for chunk in chunks if "sentence" not in chunk.text]
    assert {chunk.heading for chunk in chunks} == {"Handbook > Travel", "Handbook > Hotels > Limits"}


@pytest.mark.parametrize("filler", [790, 800, 820])
@pytest.mark.parametrize("media_type", [media.PLAIN, media.MARKDOWN])
def test_chunk_short_text_joins_neighbor(filler: int, media_type: str) -> None:
    long = ("Words of a long paragraph. " * 40)[:filler].strip()
    text = f"See below.\n\n{long}\n\n{long}\n\nYes.\n\n{long}\n\n## Licence\n\nMIT."
    chunks = chunk_text(text, ChunkingConfig(800, 0), media_type=media_type)
    check(text, chunks, ChunkingConfig(800, 0))
    assert min(len(chunk.text.strip()) for chunk in chunks) >= 50


def test_chunk_short_document_yields_one_chunk() -> None:
    assert [chunk.text for chunk in chunk_text("MIT.")] == ["MIT."]
    assert [chunk.text for chunk in chunk_text("# Licence", media_type=media.MARKDOWN)] == ["# Licence"]


TABLE = "| key | value |\n|---|---|\n" + "| a key of the table | a value of the table |\n" * 12


@pytest.mark.parametrize("following", [TABLE, TABLE.replace("| a", "- a"), f"```\n{TABLE}```\n"])
@pytest.mark.parametrize("before", ["", "Words of another sentence. " * 12])
def test_chunk_begins_with_the_sentence_that_leads_in_to_it(before: str, following: str) -> None:
    text = f"# Keys\n\n{before}These are the keys\nof the table:\n\n{following}"
    chunks = chunk_text(text, media_type=media.MARKDOWN)
    check(text, chunks, ChunkingConfig())
    (chunk,) = [chunk for chunk in chunks if chunk.text.count("a value of the table") == 12]
    assert "These are the keys\nof the table:\n\n" in chunk.text
    assert ("# Keys" in chunk.text) == (not before)


@pytest.mark.parametrize("size", [570, 600])
def test_lead_in_is_repeated_only_if_it_fits(size: int) -> None:
    text = f"{'Words of another sentence. ' * 12}The keys:\n\n{TABLE}"
    chunks = chunk_text(
        text,
        ChunkingConfig(size, 40),
        media_type=media.MARKDOWN,
        spans=[TextSpan(text.index(TABLE), len(text.rstrip()), SpanKind.ROW)],
    )
    check(text, chunks, ChunkingConfig(size, 40))
    assert chunks[-1].text.startswith("The keys:") == (size == 600)


def test_chunk_whitespace_yields_no_chunks() -> None:
    assert chunk_text(" \n\n\t ") == []


@pytest.mark.parametrize(
    ("size", "overlap", "field"), [(0, 0, "chunk_size"), (10, 6, "chunk_overlap"), (10, -1, "chunk_overlap")]
)
def test_chunking_config_error_names_invalid_field(size: int, overlap: int, field: str) -> None:
    with pytest.raises(InvalidInputError) as failure:
        ChunkingConfig(size, overlap)
    assert failure.value.field == field


def test_chunking_config_from_settings_copies_sizes() -> None:
    settings = IngestionSettings(chunk_size_chars=400, chunk_overlap_chars=80)
    assert ChunkingConfig.from_settings(settings) == ChunkingConfig(400, 80)
