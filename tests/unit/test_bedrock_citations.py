"""Answers without labels and their cited parts, as Bedrock's Knowledge Bases have them."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.rag.chunks import make_chunk
from vectorforge.api.bedrock.answers import CitedText, reference_to
from vectorforge.pipeline.citations.check import CitationChecker

PASSAGES = [
    make_chunk("Dough rises two hours.", source="https://example.org/bread", title="Bread"),
    make_chunk("The kettle boils at 100 degrees.", source="kettle.md"),
    make_chunk("Oil the chain.", source="s3://bucket/bike.md"),
]
NAMES = {str(passage.chunk.id): number for number, passage in enumerate(PASSAGES, start=1)}


def read(pieces: Sequence[str]) -> tuple[str, list[Any]]:
    """Return the text and the citations of an answer that arrives in these pieces."""
    cited, checker = CitedText(PASSAGES), CitationChecker("", PASSAGES)
    texts: list[str] = []
    parts: list[Any] = []
    for piece in pieces:
        texts.append(cited.feed(piece))
        parts += cited.parts()
        for citation in checker.feed(piece):
            cited.cite(citation)
            parts += cited.parts()
    for citation in checker.finish():
        cited.cite(citation)
        parts += cited.parts()
    texts.append(cited.finish())
    parts += cited.parts(is_whole=True)
    assert "".join(texts) == cited.text
    return cited.text, parts


def whole(answer: str) -> tuple[str, list[Any]]:
    """Return the same of a whole answer."""
    cited, checker = CitedText(PASSAGES), CitationChecker("", PASSAGES)
    cited.feed(answer)
    cited.finish()
    for citation in [*checker.feed(answer), *checker.finish()]:
        cited.cite(citation)
    return cited.text, list(cited.parts(is_whole=True))


def cited_parts(answer: str) -> tuple[str, list[tuple[str, list[int]]]]:
    """Return the text of an answer and its parts with the numbers of their sources."""
    text, parts = whole(answer)
    found = []
    for part in parts:
        cited = part["generatedResponsePart"]["textResponsePart"]
        assert cited["text"] == text[cited["span"]["start"] : cited["span"]["end"] + 1]
        chunk_ids = [r["metadata"]["x-amz-bedrock-kb-chunk-id"] for r in part["retrievedReferences"]]
        found.append((cited["text"], [NAMES[chunk_id] for chunk_id in chunk_ids]))
    return text, found


@pytest.mark.parametrize(
    ("answer", "text", "parts"),
    [
        (
            "It rises two hours [Source 1]. It boils [Source 2].",
            "It rises two hours. It boils.",
            [("It rises two hours.", [1]), ("It boils.", [2])],
        ),
        ("It rises. [Source 1] Then bake it.", "It rises. Then bake it.", [("It rises.", [1])]),
        (
            "It rises [1], boils [2][3], and rolls.",
            "It rises, boils, and rolls.",
            [("It rises", [1]), ("boils, and rolls.", [2, 3])],
        ),
        ("Oh. It rises [Source 1, 3].", "Oh. It rises.", [("It rises.", [1, 3])]),
        ("[Source 1] says that it rises. Oh.", " says that it rises. Oh.", [("says that it rises.", [1])]),
        (
            "# Bake\n\n- Rise [1]\n- Boil  [2] [1]\n",
            "# Bake\n\n- Rise\n- Boil\n",
            [("- Rise", [1]), ("- Boil", [2, 1])],
        ),
        ("`[Source 1]` is code [Source 1]", "`[Source 1]` is code", [("`[Source 1]` is code", [1])]),
        (
            "Nothing is [known](a.md) here.",
            "Nothing is [known](a.md) here.",
            [("Nothing is [known](a.md) here.", [])],
        ),
        ("Größe 🙂 stimmt [2].", "Größe 🙂 stimmt.", [("Größe 🙂 stimmt.", [2])]),
        ("It rises. Source: kettle.md", "It rises. Source: kettle.md", [("Source: kettle.md", [2])]),
        ("", "", [("", [])]),
        (f"It rises [{'1, ' * 99}1].", f"It rises [{'1, ' * 99}1].", [(f"It rises [{'1, ' * 99}1].", [1])]),
    ],
)
def test_labels_are_removed_and_parts_name_their_sources(
    answer: str, text: str, parts: list[tuple[str, list[int]]]
) -> None:
    assert cited_parts(answer) == (text, parts)
    assert read(list(answer)) == whole(answer)


PIECES = st.lists(
    st.sampled_from(
        [
            "It rises",
            " Two hours",
            " [Source 1]",
            " [Source 2, 3]",
            "[1]",
            " [2]",
            ".",
            ". ",
            ", ",
            "\n",
            " `a[1]`",
            "- Bake",
            " Sour",
            " [So",
            "](x)",
            " e.g. ",
            " Then",
        ]
    ),
    max_size=14,
)


@given(pieces=PIECES)
def test_answer_in_pieces_equals_the_whole_answer(pieces: list[str]) -> None:
    text, parts = read(pieces)
    expected_text, expected_parts = whole("".join(pieces))
    assert text == expected_text
    assert parts == expected_parts


def test_reference_names_source_page_and_metadata() -> None:
    web, custom, bucket = (reference_to(passage, [{"page": 12}]) for passage in PASSAGES)
    assert web["location"] == {"type": "WEB", "webLocation": {"url": "https://example.org/bread"}}
    assert custom["location"] == {"type": "CUSTOM", "customDocumentLocation": {"id": "kettle.md"}}
    assert bucket["location"] == {"type": "S3", "s3Location": {"uri": "s3://bucket/bike.md"}}
    assert custom["metadata"]["x-amz-bedrock-kb-document-page-number"] == 12
    without = reference_to(PASSAGES[1], [{"heading": ["A"]}])["metadata"]
    assert "x-amz-bedrock-kb-document-page-number" not in without
