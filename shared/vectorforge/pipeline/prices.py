"""Prices of language models, and the cost of an answer.

Only the standard rate of prompt and completion tokens is known here. Discounts (cached prompts, batches) and
surcharges (regions, fast modes, tools) are not, so a vendor's invoice may differ.
"""

import re
from collections.abc import Mapping
from types import MappingProxyType

from vectorforge.config import ModelPrice

# https://developers.openai.com/api/docs/models/gpt-6.2-sol and /gpt-6-luna and /gpt-5.6-luna, read on
# 2026-11-22 from stored copies: US dollars per million tokens. Beyond 272,000 prompt tokens the whole request
# costs twice as much for the prompt and one and a half times for the completion.
_OPENAI = {
    # https://developers.openai.com/api/docs/pricing, as quoted by several pages of 2026
    "gpt-4o": ModelPrice(input=2.50, output=10.00),
    "gpt-4o-mini": ModelPrice(input=0.15, output=0.60),
    "gpt-6.2-sol": ModelPrice(
        input=2.00, output=10.00, long_prompt_over=272_000, long_input=4.00, long_output=15.00
    ),
    "gpt-6-luna": ModelPrice(
        input=0.10, output=0.50, long_prompt_over=272_000, long_input=0.20, long_output=0.75
    ),
    "gpt-5.6-luna": ModelPrice(
        input=0.20, output=1.20, long_prompt_over=272_000, long_input=0.40, long_output=1.80
    ),
}
# The models' own pages below https://platform.claude.com/docs/en/models/, for those of version 4 and before
# https://platform.claude.com/docs/en/about-claude/pricing, read on 2026-11-22 from stored copies.
_ANTHROPIC = {
    "claude-fable-5-1": ModelPrice(input=10.00, output=50.00),
    "claude-opus-5-5": ModelPrice(input=4.00, output=20.00),
    "claude-opus-5": ModelPrice(input=5.00, output=25.00),
    "claude-sonnet-5-5": ModelPrice(input=2.00, output=10.00),
    "claude-sonnet-5": ModelPrice(input=2.00, output=10.00),
    "claude-haiku-5-5": ModelPrice(
        input=0.10, output=0.50, long_prompt_over=100_000, long_input=0.50, long_output=2.50
    ),
    "claude-opus-4-6": ModelPrice(input=5.00, output=25.00),
    "claude-opus-4-5": ModelPrice(input=5.00, output=25.00),
    "claude-opus-4-1": ModelPrice(input=15.00, output=75.00),
    "claude-opus-4": ModelPrice(input=15.00, output=75.00),
    "claude-sonnet-4-6": ModelPrice(input=3.00, output=15.00),
    "claude-sonnet-4-5": ModelPrice(input=3.00, output=15.00),
    "claude-sonnet-4": ModelPrice(input=3.00, output=15.00),
    "claude-haiku-4-5": ModelPrice(input=1.00, output=5.00),
    "claude-3-5-haiku": ModelPrice(input=0.80, output=4.00),
}
# https://ai.google.dev/gemini-api/docs/pricing, as quoted by several pages of 2026; text only.
_GOOGLE = {"gemini-2.5-flash": ModelPrice(input=0.30, output=2.50)}
# https://cohere.com/pricing
_COHERE = {"command-a-03-2025": ModelPrice(input=2.50, output=10.00)}
_PUBLISHED: Mapping[str, Mapping[str, ModelPrice]] = MappingProxyType(
    {"openai": _OPENAI, "anthropic": _ANTHROPIC, "google": _GOOGLE, "cohere": _COHERE}
)
_UNPAID = frozenset({"extractive", "ollama", "max_serve"})
"""Providers that run on the user's own machines, or use no model."""

_FREE = ModelPrice(input=0.0, output=0.0)
_VERSION = re.compile(r"-(?:\d{8}|\d{4}-\d{2}-\d{2}|latest)$")
"""Version suffix of a model name: a date, or "latest"."""

_PER_MILLION = 1_000_000


class PriceList:
    """Prices by provider and model: configured ones first, then those published by vendors.

    Args:
        own: Prices by ``model`` or ``provider/model``; the setting ``VECTORFORGE_MODEL_PRICES``.
    """

    def __init__(self, own: Mapping[str, ModelPrice] | None = None) -> None:
        self._own = dict(own or {})

    def find(self, provider: str, model: str) -> ModelPrice | None:
        """Return the price, or None if unknown.

        A dated name such as ``claude-sonnet-4-20250514`` has its own price if there is one, else that of the
        name before the date. Other prefixes do not count: ``gpt-4`` is not ``gpt-4o``.
        """
        names = (model, _VERSION.sub("", model))
        keys = [key for name in names for key in (f"{provider}/{name}", name)]
        for key in keys:
            if key in self._own:
                return self._own[key]
        if provider in _UNPAID:
            return _FREE
        published = _PUBLISHED.get(provider, {})
        return next((published[name] for name in names if name in published), None)

    def estimate_cost(
        self, provider: str, model: str, prompt_tokens: int, completion_tokens: int
    ) -> float | None:
        """Return the US dollars for one call of a model; None if its price is unknown.

        Args:
            provider: Name of the provider, e.g. "openai".
            model: Name of the model, with or without a version's date.
            prompt_tokens: As the vendor counts them.
            completion_tokens: As the vendor counts them, thinking included.
        """
        price = self.find(provider, model)
        if price is None:
            return None
        rates = price.input, price.output
        is_long = price.long_prompt_over is not None and prompt_tokens > price.long_prompt_over
        if is_long and price.long_input is not None and price.long_output is not None:
            rates = price.long_input, price.long_output
        return (prompt_tokens * rates[0] + completion_tokens * rates[1]) / _PER_MILLION


PUBLISHED_PRICES = PriceList()


def estimate_cost(
    provider: str,
    model: str,
    prompt_tokens: int,
    completion_tokens: int,
    prices: PriceList = PUBLISHED_PRICES,
) -> float | None:
    """As ``PriceList.estimate_cost``, by the published prices unless others are given."""
    return prices.estimate_cost(provider, model, prompt_tokens, completion_tokens)
