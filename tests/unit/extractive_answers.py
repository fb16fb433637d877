"""Texts, and answers of the extractive provider from them."""

import re

from vectorforge.llm.providers.extractive import ExtractiveProvider
from vectorforge.llm.types import GroundingSource

RHINE = (
    "The Rhine rises in the Swiss Alps and reaches the North Sea in the Netherlands. "
    "It is about 1,230 km long. Dr. Lelek, who measured it in 1932, made a typing error. "
    "Barges carry coal and ore upstream."
)
DANUBE = (
    "The Danube flows through ten countries, more than any other river. Its source is in the Black Forest. "
    "The river ends in the Black Sea."
)
BILLING = "Invoices are due within thirty days. Late payments bear interest of five percent a year."


def sources(*texts: str, label: str = "[Source {}]") -> list[GroundingSource]:
    return [
        GroundingSource(number=n, label=label.format(n), text=text, score=1 / n)
        for n, text in enumerate(texts, start=1)
    ]


async def answer(question: str, *texts: str, provider: ExtractiveProvider | None = None) -> str:
    provider = provider or ExtractiveProvider()
    return (await provider.generate([{"role": "user", "content": question}], sources=sources(*texts))).content


def quotations(text: str) -> list[tuple[str, int]]:
    """Return (quotation, number of its source)."""
    return [
        (quote.strip(), int(number))
        for quote, number in re.findall(r"(.+?)\s\[Source (\d+)\]", text, re.DOTALL)
    ]
