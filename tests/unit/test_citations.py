"""Labels in an answer become citations, however the answer is cut into pieces."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vectorforge.pipeline.citations import CitationParser
from vectorforge.pipeline.types import Citation
from vectorforge.testing.passages import make_passage as passage
from vectorforge.types import RetrievedChunk

CHUNKS = [passage(text) for text in ("one", "two", "three")]


def parse(pieces: list[str], chunks: list[RetrievedChunk] = CHUNKS) -> tuple[list[Citation], int]:
    parser = CitationParser(chunks)
    for piece in pieces:
        parser.feed(piece)
    return parser.citations, parser.invalid


@pytest.mark.parametrize(
    ("answer", "numbers"),
    [
        ("So it is [Source 2].", [2]),
        ("So it is [Context 3].", [3]),  # C05: every door's label
        ("So it is [1][3].", [1, 3]),
        ("So it is [Source 1, 3] and [source 1, Source 2].", [1, 3, 1, 2]),
        ("values[2] and x[1] are code", []),
        ("[Source", []),
        ("nothing", []),
    ],
)
def test_labels(answer: str, numbers: list[int]) -> None:
    citations, invalid = parse([answer])
    assert [c.source_number for c in citations] == numbers
    assert invalid == 0
    for citation in citations:
        assert str(citation.source_number) in answer[citation.start : citation.end]
        assert citation.chunk_id == CHUNKS[citation.source_number - 1].chunk.id


def test_labels_that_name_nothing_are_counted() -> None:
    citations, invalid = parse(["[Source 9] [Source 0] [Source 1]"])
    assert [c.source_number for c in citations] == [1]
    assert invalid == 2


@given(st.data())
def test_pieces_do_not_matter(data: st.DataObject) -> None:
    answer = data.draw(
        st.lists(
            st.sampled_from(
                ["[Source 1]", "[2]", "[Source 9]", "a[1]", "text ", "[", "]", "[Source 1, 2]", "é "]
            ),
            max_size=12,
        ).map("".join)
    )
    cuts = sorted(data.draw(st.sets(st.integers(0, len(answer)))))
    pieces = [answer[a:b] for a, b in zip([0, *cuts], [*cuts, len(answer)], strict=True)]
    assert parse(pieces) == parse([answer])
