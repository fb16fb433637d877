"""Reading answers and documents takes time proportional to their length, whatever their content.

One model's answer and one tenant's document are read in the process that serves all others, mostly on the
event loop: quadratic time would block every request.

Growth is a ratio of CPU times of the same reader in this thread, not a speed: a slow or busy machine affects
both. Steps cannot be counted instead, because those of regular expressions and string methods are not
observable. Fourfold text costs four times as much if linear, 16 times if quadratic; 9 is between. Noise only
adds, so the minimum of several measurements counts.
"""

import gc
import time
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.rag.chunks import make_chunk
from tests.unit.linear_readers import STREAMED, WHOLE, Read
from vectorforge.pipeline.citations import claims

pytestmark = pytest.mark.slow

LONGEST = 8_192
"""Length in characters."""
SHORTEST = 1_024
PIECE = 4
"""Length of a token in characters."""
MOST_GROWTH = 9.0
MOST_GROWTH_OF_SPLITTER = 12.0
"""Fourfold text costs the splitter up to nine times as much within a piece of ``chunk._SEGMENT``."""
ENOUGH_S = 0.0005
"""Minimum CPU time beyond the constant cost for measuring growth."""
ROUNDS = 8
LETTERS = str.maketrans("0123456789", "ghijklmnop")
TRIGGERS = (
    *(
        "a.",
        "https://e.com/",
        "a@b.c ",
        "<a ",
        '<a href="',
        '<a =">"',
        "<a =\"><b '",
        "![x](",
        "](((((",
        "](&",
        "[1]",
        "url(",
    ),
    *("-----BEGIN PRIVATE KEY-----", "\r\n"),
    *("[Source 1]. ", "`", "|", '"', " ", "\n", "1. ", "A. ", "Ab ", "\u0301", "。", "."),
    *("7 ", "two kit ", "by 17 May 2021, "),
)


def cost(read: Read, pieces: Sequence[str]) -> float:
    before = time.thread_time()
    read(pieces)
    return time.thread_time() - before


def cut(unit: str, length: int, piece: int | None) -> list[str]:
    text = (unit * (length // len(unit) + 1))[:length]
    return [text] if piece is None else [text[i : i + piece] for i in range(0, length, piece)]


def growth_of(read: Read, unit: str, piece: int | None, shortest: int, most: float) -> list[float]:
    """Return the CPU seconds for one, two and four times a length that takes long enough to measure."""

    def least_cost(length: int) -> float:  # one measurement may be interrupted, and choose a text too short
        return min(cost(read, cut(unit, length, piece)) for _ in range(3))

    constant, length = least_cost(16), shortest
    while length * 4 < LONGEST and least_cost(length) - constant < ENOUGH_S:
        length *= 2
    texts = [cut(unit, length * times, piece) for times in (1, 2, 4)]
    least = [cost(read, text) for text in texts]
    for _ in range(ROUNDS):
        if least[2] - constant <= most * max(least[0] - constant, ENOUGH_S / 2):
            break
        least = [min(known, cost(read, text)) for known, text in zip(least, texts, strict=True)]
    return [max(one - constant, ENOUGH_S / 2) for one in least]


def worse_than_linear(
    read: Read,
    units: Sequence[str],
    piece: int | None = None,
    shortest: int = SHORTEST,
    most: float = MOST_GROWTH,
) -> list[str]:
    found = []
    gc.collect()
    gc.disable()  # it runs at any time, and its duration grows with the heap
    try:
        for unit in units:
            once, twice, fourfold = growth_of(read, unit, piece, shortest, most)
            if fourfold > most * once:
                found.append(f"{unit!r}: {once:.4f} s, {twice:.4f} s, {fourfold:.4f} s of CPU")
    finally:
        gc.enable()
    return found


def _joined(whole: Callable[[str], object]) -> Read:
    return lambda pieces: whole("".join(pieces))


@pytest.mark.parametrize("name", STREAMED)
def test_stream_parsing_time_grows_linearly(name: str) -> None:
    assert worse_than_linear(STREAMED[name], TRIGGERS, PIECE) == []


@pytest.mark.parametrize("name", [*WHOLE, "links", "citations"])
def test_whole_text_parsing_time_grows_linearly(name: str) -> None:
    read = _joined(WHOLE[name]) if name in WHOLE else STREAMED[name]
    most = MOST_GROWTH_OF_SPLITTER if name in ("chunks", "markdown chunks") else MOST_GROWTH
    assert worse_than_linear(read, TRIGGERS, most=most) == []


def test_unclosed_tags_beyond_withheld_limit_parse_in_linear_time() -> None:
    units = ['<a =">"', "<a ='\"", "<a =\"><b '", "<a "]
    assert worse_than_linear(STREAMED["links"], units, PIECE, shortest=8_192) == []


@settings(max_examples=4, deadline=None, derandomize=True, database=None)
@given(unit=st.text("a1 .,:;@/()[]<>!`|#&=-_\"'\n", min_size=2, max_size=4))
def test_repeated_unit_parsing_time_grows_linearly(unit: str) -> None:
    found = {name: worse_than_linear(STREAMED[name], [unit], PIECE) for name in ("known links", "citations")}
    for name in ("redaction", "claims", "quality", "docrag context", "markdown chunks"):
        found[name] = worse_than_linear(_joined(WHOLE[name]), [unit])
    assert {name: units for name, units in found.items() if units} == {}


def test_name_lookup_time_is_independent_of_word_count() -> None:
    def read(pieces: Sequence[str]) -> object:
        words = " ".join(f"Word{number:x}".translate(LETTERS) for number in range(len(pieces)))
        passage = claims.Evidence(make_chunk(words))
        return [
            passage.holds(claims.Name((f"other{number:x}".translate(LETTERS),)))
            for number in range(len(pieces))
        ]

    assert worse_than_linear(read, ["a"], 1) == []
