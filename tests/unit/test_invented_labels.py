"""Labels without a chunk are removed from the answer, however it is split (N10)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vectorforge.pipeline.citations.labels import InventedLabels, without_invented_labels


def _read(pieces: list[str], passages: int = 5) -> tuple[str, int]:
    labels = InventedLabels(passages)
    return "".join([*map(labels.feed, pieces), labels.finish()]), labels.removed


@pytest.mark.parametrize(
    ("answer", "shown", "removed"),
    [
        ("So it is [Context 9].", "So it is .", 1),
        ("So it is[Source 9].", "So it is.", 1),
        ("As [9] says, it is [1].", "As says, it is [1].", 1),
        ("[Source 9] It is.", "It is.", 1),
        ("A [Source 8][Source 9] b.", "A b.", 2),
        ("A [Source 2, Source 9] b [Sources 1, 7; 3]", "A [Source 2] b [Sources 1, 3]", 2),
        ("A [Source 0] b.", "A b.", 1),
        ("At the end [Source 9]", "At the end ", 1),
        ("`not closed [Source 9]\nnext", "`not closed \nnext", 1),
    ],
)
def test_invented_label_is_removed(answer: str, shown: str, removed: int) -> None:
    assert _read([answer]) == (shown, removed)
    assert _read(list(answer)) == (shown, removed)


@pytest.mark.parametrize(
    "answer",
    [
        "Known [Source 1], [Context 5], [2] and [1, 3].",
        "An index a[9] and `b [9] [Source 9]` in code.",
        "```python\nx = [9]\n# [Source 9]\n```\nDone.",
        "A link [9](https://example.com), a year [2024], an interval [0, 10], a list [x, 9].",
        "Open [Source 9",
        "[" * 500 + "Source 9",
    ],
)
def test_text_without_invented_labels_is_unchanged(answer: str) -> None:
    assert _read([answer]) == (answer, 0)
    assert _read(list(answer)) == (answer, 0)


_PARTS = ["[Source 9]", "[9]", "[1, 9]", "a", " ", "\n", "`", "```", "[", "]", "(", "Source ", "9", ", ", "0"]


@given(st.lists(st.sampled_from(_PARTS), max_size=25), st.data())
def test_invented_label_removal_is_independent_of_chunk_boundaries(
    parts: list[str], data: st.DataObject
) -> None:
    text = "".join(parts)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=8)))
    pieces = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    assert _read(pieces) == _read([text])
    assert without_invented_labels(text, 5) == _read([text])[0]


def test_withheld_text_is_bounded() -> None:
    labels = InventedLabels(5)
    for text in ("[Source 1", *["1 "] * 300, "`", "[Source 9]", *["a "] * 300):
        labels.feed(text)
    assert labels.feed("end") == "end"
