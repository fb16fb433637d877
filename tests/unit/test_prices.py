"""Cost of an answer: by published prices, by the user's own, or None if unknown."""

from uuid import uuid4

import pytest

from tests.support.rag.chunks import make_chunk
from tests.support.rag.query_parts import LogList
from tests.support.vendors.scripted_llm import ScriptedLLM
from vectorforge.config import LLMSettings, ModelPrice, VectorForgeConfig
from vectorforge.errors import ConfigurationError, LLMStreamError
from vectorforge.llm.registry import LLMProviderRegistry
from vectorforge.pipeline.context import ContextBuilder
from vectorforge.pipeline.prices import PriceList, estimate_cost
from vectorforge.pipeline.rag import QueryService
from vectorforge.pipeline.types import QueryConfig, QueryEvent
from vectorforge.retriever.base import BaseRetriever, RetrievalRequest, RetrievedChunks
from vectorforge.types import RetrievedChunk


@pytest.mark.parametrize(
    ("provider", "model", "tokens", "cost"),
    [
        ("openai", "gpt-6-luna", (1_000_000, 0), 0.20),  # beyond 272,000 tokens of prompt, twice the price
        ("openai", "gpt-6-luna", (272_000, 1_000_000), 0.0272 + 0.50),
        ("openai", "gpt-6-luna", (272_001, 1_000_000), 0.0544002 + 0.75),
        ("openai", "gpt-6.2-sol", (1000, 100), 0.003),
        ("anthropic", "claude-sonnet-4-20250514", (900, 12), 0.00288),  # the default model's dated name
        ("anthropic", "claude-haiku-5-5", (100_000, 1000), 0.0105),
        ("anthropic", "claude-haiku-5-5", (100_001, 1000), 0.0525005),
        ("openai", "gpt-4o", (1_000_000, 10_000), 2.50 + 0.10),
        ("openai", "gpt-4o-mini", (1_000_000, 10_000), 0.15 + 0.006),
        ("google", "gemini-2.5-flash", (1_000_000, 10_000), 0.30 + 0.025),
        ("cohere", "command-a-03-2025", (1_000_000, 10_000), 2.50 + 0.10),
        ("ollama", "llama3.3", (900, 12), 0.0),
        ("max_serve", "meta-llama/Llama-3.3-70B-Instruct", (900, 12), 0.0),
        ("extractive", "extractive-v1", (900, 12), 0.0),
    ],
)
def test_estimated_cost_matches_published_prices(
    provider: str, model: str, tokens: tuple[int, int], cost: float
) -> None:
    assert estimate_cost(provider, model, *tokens) == pytest.approx(cost, rel=1e-9)


@pytest.mark.parametrize(
    ("provider", "model"),
    [
        ("openai", "gpt-6"),
        ("openai", "gpt-6-luna-fast"),  # another price: the prefix of a name determines nothing
        ("anthropic", "claude-sonnet-4-7"),
        ("bedrock", "claude-sonnet-4"),  # its prices differ by region
        ("openai", "claude-sonnet-4"),
        ("google", "gemini-3"),
    ],
)
def test_unknown_price_returns_none(provider: str, model: str) -> None:
    assert estimate_cost(provider, model, 900, 12) is None


@pytest.mark.parametrize(
    "provider", ["openai", "anthropic", "ollama", "google", "cohere", "max_serve", "extractive"]
)
def test_default_models_have_a_price(provider: str) -> None:
    """Amazon Bedrock has no default model, and prices by region."""
    field = "default_model" if provider == "openai" else f"{provider}_model"
    model = getattr(LLMSettings(), field, "extractive-v1")
    assert estimate_cost(provider, model, 1_000_000, 1_000_000) is not None


def test_configured_prices_precede_published_ones() -> None:
    prices = PriceList(
        {
            "gpt-4o": ModelPrice(input=7, output=10),
            "bedrock/claude-sonnet-4": ModelPrice(input=3.3, output=16.5),
            "ollama/llama3.3": ModelPrice(input=1, output=1),
            "claude-sonnet-4-20250514": ModelPrice(input=9, output=9),
        }
    )
    assert prices.estimate_cost("openai", "gpt-4o-2024-08-06", 1_000_000, 0) == 7
    assert prices.estimate_cost("bedrock", "claude-sonnet-4", 1_000_000, 0) == 3.3
    assert prices.estimate_cost("ollama", "llama3.3", 1_000_000, 1_000_000) == 2
    assert prices.estimate_cost("anthropic", "claude-sonnet-4-20250514", 1_000_000, 0) == 9
    assert prices.estimate_cost("anthropic", "claude-sonnet-4-latest", 1_000_000, 0) == 3


def test_configured_prices_are_read_from_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VECTORFORGE_MODEL_PRICES", '{"gpt-4o": {"input": 7, "output": 30}}')
    prices = PriceList(VectorForgeConfig.from_environment().llm.model_prices)
    assert prices.estimate_cost("openai", "gpt-4o", 1000, 100) == pytest.approx(0.01)


@pytest.mark.parametrize(
    "value",
    [
        '{"m": {"input": -1, "output": 1}}',
        '{"m": {"input": 1}}',
        '{"m": {"input": 1, "output": 1, "cached": 1}}',
        '{"m": {"input": 1, "output": 1, "long_input": 1}}',
        '{"m": {"input": NaN, "output": 1}}',
        "[1]",
        "{",
    ],
)
def test_invalid_price_list_is_rejected(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VECTORFORGE_MODEL_PRICES", value)
    with pytest.raises(ConfigurationError, match="VECTORFORGE_MODEL_PRICES"):
        VectorForgeConfig.from_environment()


class Found(BaseRetriever):
    """Returns the given chunks."""

    def __init__(self, *passages: RetrievedChunk) -> None:
        self._passages = list(passages)

    async def find(self, _: RetrievalRequest) -> RetrievedChunks:
        return RetrievedChunks(self._passages)


class Desk:
    """A query service whose model is one of OpenAI's."""

    def __init__(self, llm: ScriptedLLM, *passages: RetrievedChunk, prices: PriceList | None = None) -> None:
        registry = LLMProviderRegistry()
        registry.register(llm)
        registry.set_default(llm.name)
        self.log = LogList()
        self.service = QueryService(
            Found(*passages), ContextBuilder(), registry, self.log, prices=prices or PriceList()
        )

    async def ask(self, model: str) -> list[QueryEvent]:
        events = self.service.query_events("When?", uuid4(), QueryConfig(llm_model=model))
        return [event async for event in events]


PASSAGE = make_chunk("Water boils at 100 degrees.")


@pytest.mark.parametrize("buffered", [True, False])
async def test_answer_cost_is_returned_and_logged(buffered: bool) -> None:  # D-041, N11
    desk = Desk(ScriptedLLM(name="openai"), PASSAGE)
    if buffered:
        config = QueryConfig(llm_model="gpt-6.2-sol")
        assert (await desk.service.query("When?", uuid4(), config)).cost_usd == pytest.approx(0.0003)
    else:
        await desk.ask("gpt-6.2-sol")
    assert [row.cost_usd for row in desk.log.rows] == [pytest.approx(0.0003)]  # 100 and 10 tokens


async def test_model_without_known_price_logs_no_cost() -> None:
    desk = Desk(ScriptedLLM(name="openai"), PASSAGE)
    await desk.ask("gpt-unheard-of")
    assert [(row.cost_usd, row.prompt_tokens) for row in desk.log.rows] == [(None, 100)]


async def test_answer_without_model_call_costs_zero() -> None:
    desk = Desk(ScriptedLLM(name="openai"))
    await desk.ask("gpt-6.2-sol")
    assert [(row.outcome, row.cost_usd) for row in desk.log.rows] == [("empty", 0.0)]


async def test_interrupted_answer_logs_cost_and_unstarted_answer_none() -> None:
    broken = Desk(ScriptedLLM(["Water boils"], error=LLMStreamError("lost"), name="openai"), PASSAGE)
    await broken.ask("gpt-6.2-sol")
    assert broken.log.rows[0].outcome == "error"
    assert 0 < (broken.log.rows[0].cost_usd or 0) < 0.01
    refused = Desk(ScriptedLLM([], error=LLMStreamError("lost"), name="openai"), PASSAGE)
    await refused.ask("gpt-6.2-sol")
    assert refused.log.rows[0].cost_usd is None


async def test_configured_prices_apply_to_answers() -> None:
    prices = PriceList({"openai/in-house": ModelPrice(input=1, output=100)})
    desk = Desk(ScriptedLLM(name="openai"), PASSAGE, prices=prices)
    await desk.ask("in-house")
    assert desk.log.rows[0].cost_usd == pytest.approx((100 + 1000) / 1e6)
