"""Numbers with separators of thousands: found by either form."""

import pytest

from tests.integration.terms.conftest import COSINE, Store

OTHERS = ["Revenue fell in the north.", "Revenue rose by 7 percent."]


@pytest.mark.parametrize(
    ("stored", "query"),
    [
        ("1,234,567", "1234567"),
        ("1.234.567", "1234567"),
        ("1 234 567", "1234567"),
        ("1,234,567.89", "1234567.89"),
        ("1234567", "1,234,567"),
        ("1234567", "Who has €1.234.567, and why?"),
        ("1234567", "1\u202f234\u202f567"),
        ("1234567", "1’234’567"),
        ("1234567.89", "1,234,567.89"),
        ("1500", "1,500"),
        ("1,234,567", "1,234,567"),
    ],
)
async def test_number_is_found_by_its_other_form(store: Store, stored: str, query: str) -> None:
    text = f"Revenue was {stored} in the south."
    await store.put([*OTHERS, text])
    found = await store.vectors.search(
        query_vector=None, top_k=1, collection_id=store.id, metric=COSINE, query_text=query
    )
    assert [hit.chunk.text for hit in found] == [text]


@pytest.mark.parametrize("query", ["2024", "10.5", "version 3.141", "007", "AB12345", "A1,234"])
async def test_year_decimal_or_code_is_no_grouped_number(store: Store, query: str) -> None:
    await store.put([*OTHERS, "Rooms 2, 12, 24, 024, 345 and 1234."])
    found = await store.vectors.search(
        query_vector=None, top_k=1, collection_id=store.id, metric=COSINE, query_text=query
    )
    assert [hit.chunk.text for hit in found] == []
