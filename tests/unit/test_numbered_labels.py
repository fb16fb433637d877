"""Labels rewritten to ``[n]`` while the answer streams."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.rag.chunks import make_chunk
from vectorforge.api.openai.labels import LabelRewriter, rewrite_labels
from vectorforge.pipeline.citations.check import CitationChecker
from vectorforge.pipeline.types import Citation

PASSAGES = [
    make_chunk("Dough rises two hours.", source="https://example.org/bread", title="Bread"),
    make_chunk("The kettle boils at 100 degrees.", source="kettle.md"),
    make_chunk("Oil the chain.", source="bike.md"),
]


def citations_of(answer: str) -> list[Citation]:
    checker = CitationChecker("", PASSAGES)
    return [*checker.feed(answer), *checker.finish()]


@pytest.mark.parametrize(
    ("answer", "rewritten"),
    [
        ("Two hours [Source 1]. Hot [Source 2].", "Two hours [1]. Hot [2]."),
        ("Two hours [Context 1] and hot [context 2].", "Two hours [1] and hot [2]."),
        ("Both [Source 1, 3]; all [Sources 1, 2 and 3].", "Both [1][3]; all [1][2][3]."),
        ("Both [Source 1, Source 2] and [2, 3].", "Both [1][2] and [2][3]."),
        ("Already [1]. Not array[2], not [2](link), not [1, 2](link).", None),
        ("Nothing [sourced 1], [see] or [Sour", None),
        ("Code `[Source 1]` stays, text does not [Source 1].", "Code `[Source 1]` stays, text does not [1]."),
        ("A lone ` before [Source 1]\nand after [Source 2]", "A lone ` before [1]\nand after [2]"),
        ("```\nx = a[Source 1]\n```\nHot [Source 2].", "```\nx = a[Source 1]\n```\nHot [2]."),
        ("```\n[Source 1]", None),
        ("Unknown [Source 9].", "Unknown [9]."),
        ("It rises (Source: https://example.org/bread - Bread).", None),
        ("ends in [Source 1", None),
        ("", None),
    ],
)
def test_labels_are_rewritten_as_numbers(answer: str, rewritten: str | None) -> None:
    text, _ = rewrite_labels(answer, [])
    assert text == (answer if rewritten is None else rewritten)


def test_source_named_by_address_retains_it() -> None:
    answer = "It rises (Source: https://example.org/bread - Bread). Hot. Source: kettle.md"
    text, citations = rewrite_labels(answer, citations_of(answer), PASSAGES)
    assert text == "It rises (Source: https://example.org/bread - Bread [1]). Hot. Source: kettle.md [2]"
    assert [text[c.start : c.end] for c in citations] == ["[1]", "[2]"]


def test_rewritten_citations_have_positions_of_their_numbers() -> None:
    answer = "Größe 🙂 [Source 1, 3]. `[Source 2]` is code. The kettle [Source 2] boils at 100 degrees [1]."
    text, citations = rewrite_labels(answer, citations_of(answer), PASSAGES)
    assert text == "Größe 🙂 [1][3]. `[Source 2]` is code. The kettle [2] boils at 100 degrees [1]."
    assert [(c.source_number, text[c.start : c.end]) for c in citations] == [
        (1, "[1]"),
        (3, "[3]"),
        (2, "[2]"),
        (1, "[1]"),
    ]
    assert [c.start for c in citations] == sorted(c.start for c in citations)


def test_unrewritten_citation_moves_with_surrounding_text() -> None:
    rewriter = LabelRewriter()
    assert rewriter.feed("So [Source 1], and (kettle.md).") + rewriter.finish() == "So [1], and (kettle.md)."
    chunk = PASSAGES[1].chunk
    moved = rewriter.locate(Citation(2, 20, 29, chunk.id, chunk.document_id))
    assert "So [1], and (kettle.md)."[moved.start : moved.end] == "kettle.md"


def test_withheld_label_is_not_located_yet() -> None:
    rewriter = LabelRewriter()
    chunk = make_chunk("Tea.").chunk
    label = Citation(1, 3, 6, chunk.id, chunk.document_id)
    assert rewriter.feed("So [1]") == "So "  # "(" might follow and make it a link
    assert not rewriter.has_emitted(label)
    assert rewriter.feed(".") == "[1]."
    assert rewriter.has_emitted(label)


def test_rewriter_withholds_possible_labels_only() -> None:
    rewriter = LabelRewriter()
    pieces = [
        "Two hours",
        " [",
        "Sour",
        "ce",
        " 1",
        "]",
        ". See [",
        "the",
        " guide",
        "] `",
        "x [Source 2]",
        "\n",
    ]
    assert [rewriter.feed(piece) for piece in pieces] == [
        "Two hours", " ", "", "", "", "[1]", ". See ", "[the", " guide", "] `", "x ", "[2]\n",
    ]  # fmt: skip
    assert rewriter.finish() == ""


def test_rewriter_withholds_bounded_text() -> None:
    """A long line has a constant cost per piece, and does not wait for a backtick that may never come."""
    rewriter = LabelRewriter()
    assert rewriter.feed("` [Source 1]") == "` "
    held = [rewriter.feed("x" * 100) for _ in range(5)]
    assert held == ["", "", "", "", "[1]" + "x" * 500]
    assert rewriter.feed("`[Source 2]` [Source 3]") == "`[Source 2]` [3]"
    assert rewrite_labels("` [Source 1]" + "x" * 500 + "`", [])[0] == "` [1]" + "x" * 500 + "`"
    long = "[Source " + ", ".join(map(str, range(100, 150))) + "]"
    assert rewriter.feed(long[:150]) == ""
    assert rewriter.feed(long[150:]) == long


def test_link_is_not_rewritten_although_its_address_arrives_later() -> None:
    rewriter = LabelRewriter()
    assert [rewriter.feed(piece) for piece in ("See [1, 2]", "(link) and [1, 2]", ".")] == [
        "See ",
        "[1, 2](link) and ",
        "[1][2].",
    ]


LABELS = ["[Source 1]", "[Source 1, 3]", "[Context 2]", "[2]", "[1, 2]", "[Source", " 3]", "[", "(link)"]
SOURCES = ["Source: kettle.md", "Source: https://example.org/bread - Bread"]
PARTS = st.sampled_from(
    [*LABELS, *SOURCES, "`", "```", "\n", "\n```\n", ". ", " and ", "🙂", "x", "word " * 60]
)


@given(st.lists(PARTS, max_size=14).map("".join), st.lists(st.integers(0, 300), max_size=30))
def test_streamed_rewrite_equals_whole_for_all_cuts(answer: str, cuts: list[int]) -> None:
    citations = citations_of(answer)
    whole, placed = rewrite_labels(answer, citations, PASSAGES)
    rewriter = LabelRewriter(PASSAGES)
    edges = sorted({0, len(answer), *(cut for cut in cuts if cut < len(answer))})
    pieces = [rewriter.feed(answer[a:b]) for a, b in pairwise(edges)]
    assert "".join(pieces) + rewriter.finish() == whole
    assert [rewriter.locate(citation) for citation in citations] == placed
    for citation in placed:
        assert 0 <= citation.start < citation.end <= len(whole)
        label = whole[citation.start : citation.end]
        assert str(citation.source_number) in label or "ource" in label


@given(st.lists(st.sampled_from(["Two hours [Source 1]. ", "[Context 2, 3]\n", "It boils [2]. ", "`a` "])))
def test_citations_of_ordinary_answer_read_as_their_numbers(parts: list[str]) -> None:
    answer = "".join(parts)
    whole, placed = rewrite_labels(answer, citations_of(answer), PASSAGES)
    assert [whole[c.start : c.end] for c in placed] == [f"[{c.source_number}]" for c in placed]
