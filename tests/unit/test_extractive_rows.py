"""Rows and named items that the extractive provider quotes of a table or list."""

from collections.abc import Sequence

import pytest

from tests.unit.extractive_answers import BILLING, answer
from vectorforge.llm.providers.extractive import ExtractiveProvider

PRICES = """De prijs van een reparatie hangt af van het onderdeel:

| Onderdeel | Kosten |
|---|---|
| Batterij | € 49 |
| Scherm | € 129 |
| Camera | € 75 |
"""
SERVICES = """Berikut harga layanan perbaikan kami:

| Layanan | Harga |
|---|---|
| Penggantian baterai | Rp 350.000 |
| Penggantian layar | Rp 1.200.000 |
| Perbaikan kamera | Rp 500.000 |
"""
LEAVE = """## خطوات الطلب

1. افتح بوابة الموارد البشرية.
2. اختر نوع الإجازة.

| النوع | المدة |
|---|---|
| إجازة سنوية | 21 يومًا |
| إجازة مرضية | 14 يومًا |
"""
PLANS = """The limits of a plan are these:

- Free: 100 requests.
- Team: 5,000 requests.
- Business: 50,000 requests.
"""


async def compare(query: str, sentences: Sequence[tuple[str, str]]) -> list[float]:
    """Find lead-ins nearest, as models do."""
    return [0.9 if text.endswith(":") else 0.5 for _, text in sentences]


async def quotation(question: str, text: str) -> str:
    return await answer(question, text, BILLING, provider=ExtractiveProvider(compare=compare))


@pytest.mark.parametrize(
    ("question", "text", "row", "others"),
    [
        ("Wat is de prijs van de reparatie van een scherm?", PRICES, "Scherm; Kosten: € 129", "Batterij"),
        ("harga layar", SERVICES, "Penggantian layar; Harga: Rp 1.200.000", "baterai"),
        ("What are the limits of a Team plan?", PLANS, "Team: 5,000 requests.", "Free"),
    ],
)
async def test_row_that_the_query_names_is_quoted_without_others(
    question: str, text: str, row: str, others: str
) -> None:
    quoted = await quotation(question, text)
    assert f"{row} [Source 1]" in quoted
    assert others not in quoted


async def test_row_that_the_query_names_is_quoted_from_a_long_table() -> None:
    table = PRICES.replace("| Scherm", "".join(f"| Schroef {n} | € {n} |\n" for n in range(60)) + "| Scherm")
    quoted = await quotation("Wat is de prijs van de reparatie van een scherm?", table)
    assert "Onderdeel: Scherm; Kosten: € 129 [Source 1]" in quoted


@pytest.mark.parametrize(
    ("question", "text", "count"),
    [
        ("Welke onderdelen heeft de prijs van een reparatie?", PRICES, 3),
        ("What are the limits of the plans?", PLANS, 3),
    ],
)
async def test_table_of_which_the_query_names_no_row_is_quoted_whole(
    question: str, text: str, count: int
) -> None:
    quoted = await quotation(question, text)
    assert len([line for line in quoted.split("\n") if line.endswith("[Source 1]")]) == 1 + count


async def test_query_for_the_steps_quotes_them_instead_of_rows() -> None:
    quoted = await answer("ما هي خطوات طلب الإجازة؟", LEAVE)
    steps = "1. افتح بوابة الموارد البشرية. [Source 1]\n2. اختر نوع الإجازة. [Source 1]"
    assert quoted == f"خطوات الطلب:\n{steps}"
