"""A text that stands in several places is retrieved once for an answer."""

import pytest

from tests.support.rag.chunks import make_chunk
from vectorforge.retriever.choice import search_chosen
from vectorforge.types import RetrievedChunk
from vectorforge.vectorstore.base import NearestChunks

KETTLE = (
    "The kettle boils one litre of water in three minutes. Fill it up to the mark, close the lid, and press "
    "the green button on its handle until the lamp is lit. It turns itself off as soon as the water boils. "
    "Never touch its base while it is hot, and empty it before you put it away."
)
OTHERS = ["Bread rises in a warm place.", "Laundry is washed with soap.", "The sauna is heated with wood."]


async def chosen(texts: list[str], top_k: int, *, distinct: bool = True, per_document: int = 0) -> list[str]:
    ranked = [
        make_chunk(text, document_id=None if per_document == 0 else SAME.chunk.document_id) for text in texts
    ]

    async def search(wanted: int) -> NearestChunks:
        return NearestChunks(ranked[:wanted], len(ranked))

    found = await search_chosen(search, top_k, per_document=per_document, distinct=distinct)
    assert found.matched == len(ranked)
    return [result.chunk.text for result in found]


SAME: RetrievedChunk = make_chunk(KETTLE)


@pytest.mark.parametrize(
    "copy",
    [KETTLE, f"  {KETTLE.upper()}\n", KETTLE.replace(". ", ".\n\n")],
    ids=["same", "case and blanks", "paragraphs"],
)
async def test_repeated_text_leaves_its_place_to_the_next_best(copy: str) -> None:
    assert await chosen([KETTLE, copy, *OTHERS], 3) == [KETTLE, *OTHERS[:2]]


@pytest.mark.parametrize(
    "other",
    [
        KETTLE.replace("one litre", "2 litres"),
        KETTLE.replace("Never", "Always"),
        KETTLE[: len(KETTLE) // 2],
        "The kettle is green.",
        "沸いたら止まります。",
    ],
    ids=["number", "one word", "half", "short", "other script"],
)
async def test_text_with_other_facts_is_kept(other: str) -> None:
    assert await chosen([KETTLE, other], 2) == [KETTLE, other]


async def test_numbers_distinguish_texts_of_the_same_words() -> None:
    records = [f"{KETTLE} Record 17, price {price}." for price in range(4)]
    assert await chosen(records, 4) == records


async def test_repeated_text_alone_makes_the_result_shorter() -> None:
    assert await chosen([KETTLE] * 30, 5) == [KETTLE]


async def test_repeated_text_is_returned_to_callers_that_do_not_exclude_it() -> None:
    assert await chosen([KETTLE] * 3, 3, distinct=False) == [KETTLE] * 3


async def test_cap_of_the_document_is_not_filled_with_repeated_text() -> None:
    assert await chosen([KETTLE, KETTLE, *OTHERS], 3, per_document=1) == [KETTLE, *OTHERS[:2]]
