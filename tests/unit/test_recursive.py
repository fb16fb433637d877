"""DocRag's chunks: boundaries, lengths and metadata."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vectorforge.docrag.splitter import RecursiveSplitter, chunk_document
from vectorforge.errors import InvalidInputError

TEXTS = st.text(st.sampled_from("ab\n .!?,é"), max_size=4000)


@given(TEXTS, st.integers(1, 900), st.integers(0, 300))
def test_splitter_spans_cover_text_within_size_and_overlap(
    text: str, size: int, overlap: int
) -> None:  # D-006
    overlap = min(overlap, size // 2)
    spans = RecursiveSplitter(size, overlap).spans(text)
    covered = 0
    for start, end in spans:
        assert start <= covered < end
        assert covered - start <= overlap
        assert end - start <= size
        covered = end
    assert covered == len(text)


def test_splitter_tries_separators_in_order() -> None:  # D-006
    def split(text: str) -> list[str]:
        return RecursiveSplitter(20, 0).split_text(text)

    assert split("one two three\n\nfour five six") == ["one two three\n\n", "four five six"]
    assert split("a, b. c!\nd? e f. " + "g, h! i. j") == ["a, b. c!\n", "d? e f. g, h! i. j"]
    assert split("One two. Three four! Five?") == ["One two.", " Three four! Five?"]
    assert split("Is it here? Was it there, now") == ["Is it here?", " Was it there, now"]
    assert split("one, two three four five six") == ["one, two three four ", "five six"]
    assert split("x" * 45) == ["x" * 20, "x" * 20, "x" * 5]


def test_splitter_overlap_starts_at_piece_boundary() -> None:  # D-006
    sentences = [f"Sentence number {n} is about as long as this." for n in range(60)]
    chunks = RecursiveSplitter().split_text("".join(sentences))
    assert len(chunks) > 3
    for before, after in pairwise(chunks):
        shared = next(n for n in range(150, 0, -1) if before.endswith(after[:n]))
        assert after[:shared].startswith("Sentence number")
        assert shared > 100


def test_splitter_with_one_long_line_yields_bounded_spans() -> None:
    assert len(RecursiveSplitter().spans("x" * 1_000_000)) < 2000


@pytest.mark.parametrize(("size", "overlap"), [(0, 0), (10, 6), (10, -1)])
def test_invalid_splitter_sizes_are_rejected(size: int, overlap: int) -> None:
    with pytest.raises(InvalidInputError):
        RecursiveSplitter(size, overlap)


def test_short_chunks_are_dropped_and_counted() -> None:  # D-008
    long = "A sentence that is long enough to be a chunk of its own, it is."
    content = f"\n\n{long}\n\n" + "Short.\n\n" + f"{long}  "
    metadata = {"source_url": "https://docs.example/a", "title": "A"}
    chunks = chunk_document(content, metadata, RecursiveSplitter(70, 0))
    expected = [
        {**metadata, "chunk_index": 0, "chunk_size": len(long) + 4},
        {**metadata, "chunk_index": 2, "chunk_size": len(long) + 2},
    ]
    assert chunks == [{**own, "content": long, "metadata": own} for own in expected]
    assert chunk_document("x" * 49, {}) == []
    assert len(chunk_document("x" * 50, {})) == 1
