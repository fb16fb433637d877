"""What reads answers and documents takes time in proportion to their length, whatever stands in them.

An answer of one model and a document of one tenant are read in the process, mostly on the event loop, that
serves all others: what is quadratic in their length stops everybody.

Growth is a ratio of CPU times of the same reader in this thread, not a speed: a machine that is slow, or busy
with something else, is so for both. Steps cannot be counted instead, because those of regular expressions and
of string methods are not seen from outside. Fourfold text costs four times as much when linear, 16 times when
quadratic; 9 lies between. Noise only adds, so the least of several measurements counts.
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

LONGEST = 8_192
"""Characters."""
SHORTEST = 1_024
PIECE = 4
"""Characters of a token."""
MOST_GROWTH = 9.0
ENOUGH_S = 0.0005
"""CPU time beyond the constant cost, from which growth shows."""
ROUNDS = 4
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


def growth_of(read: Read, unit: str, piece: int | None, shortest: int) -> list[float]:
    """CPU seconds for once, twice and four times a length that takes long enough to be measured."""
    constant = min(cost(read, cut(unit, 16, piece)) for _ in range(3))
    length = shortest
    while length * 4 < LONGEST and cost(read, cut(unit, length, piece)) - constant < ENOUGH_S:
        length *= 2
    texts = [cut(unit, length * times, piece) for times in (1, 2, 4)]
    least = [cost(read, text) for text in texts]
    for _ in range(ROUNDS):
        if least[2] - constant <= MOST_GROWTH * max(least[0] - constant, ENOUGH_S / 2):
            break
        least = [min(known, cost(read, text)) for known, text in zip(least, texts, strict=True)]
    return [max(one - constant, ENOUGH_S / 2) for one in least]


def worse_than_linear(
    read: Read, units: Sequence[str], piece: int | None = None, shortest: int = SHORTEST
) -> list[str]:
    found = []
    gc.collect()
    gc.disable()  # it comes when it likes, and takes longer the more there is
    try:
        for unit in units:
            once, twice, fourfold = growth_of(read, unit, piece, shortest)
            if fourfold > MOST_GROWTH * once:
                found.append(f"{unit!r}: {once:.4f} s, {twice:.4f} s, {fourfold:.4f} s of CPU")
    finally:
        gc.enable()
    return found


def _joined(whole: Callable[[str], object]) -> Read:
    return lambda pieces: whole("".join(pieces))


@pytest.mark.parametrize("name", STREAMED)
def test_stream_parsing_time_grows_linearly(name: str) -> None:  # issue 16 A
    assert worse_than_linear(STREAMED[name], TRIGGERS, PIECE) == []


@pytest.mark.parametrize("name", [*WHOLE, "links", "citations"])
def test_whole_text_parsing_time_grows_linearly(name: str) -> None:  # issue 16 A
    read = _joined(WHOLE[name]) if name in WHOLE else STREAMED[name]
    assert worse_than_linear(read, TRIGGERS) == []


def test_unclosed_tags_beyond_withheld_limit_parse_in_linear_time() -> None:  # issue 16 A
    units = ['<a =">"', "<a ='\"", "<a =\"><b '", "<a "]
    assert worse_than_linear(STREAMED["links"], units, PIECE, shortest=8_192) == []


@settings(max_examples=4, deadline=None, derandomize=True, database=None)
@given(unit=st.text("a1 .,:;@/()[]<>!`|#&=-_\"'\n", min_size=2, max_size=4))
def test_repeated_unit_parsing_time_grows_linearly(unit: str) -> None:  # issue 16 A
    found = {name: worse_than_linear(STREAMED[name], [unit], PIECE) for name in ("known links", "citations")}
    for name in ("redaction", "claims", "quality", "docrag context", "markdown chunks"):
        found[name] = worse_than_linear(_joined(WHOLE[name]), [unit])
    assert {name: units for name, units in found.items() if units} == {}


def test_name_lookup_time_is_independent_of_word_count() -> None:  # issue 16 A
    def read(pieces: Sequence[str]) -> object:
        words = " ".join(f"Word{number:x}".translate(LETTERS) for number in range(len(pieces)))
        passage = claims.Evidence(make_chunk(words))
        return [
            passage.holds(claims.Name((f"other{number:x}".translate(LETTERS),)))
            for number in range(len(pieces))
        ]

    assert worse_than_linear(read, ["a"], 1) == []
