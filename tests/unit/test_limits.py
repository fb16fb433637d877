"""Limits in a process: cached state, reservations of queries, and response headers."""

from contextlib import suppress
from dataclasses import replace
from decimal import Decimal
from uuid import uuid4

import pytest

from tests.support.vendors.hashing_embedder import HashingEmbedder
from tests.support.vendors.scripted_llm import ScriptedLLM
from vectorforge.api.middleware.context import limit_headers
from vectorforge.config import IngestionSettings, LLMSettings, ModelPrice, VectorForgeConfig
from vectorforge.deadline import Deadline
from vectorforge.errors import InvalidInputError
from vectorforge.limits.admission import REMEMBERED_S, LimitGate
from vectorforge.limits.settings import Claim, Limits, LimitState
from vectorforge.llm.providers.extractive import ExtractiveProvider
from vectorforge.llm.registry import LLMProviderRegistry
from vectorforge.pipeline.answer_cache.lookup import query_claim
from vectorforge.pipeline.presets import PRESETS, RAG_QUERY, VECTORFORGE
from vectorforge.pipeline.prices import PriceList
from vectorforge.pipeline.run import QueryRun
from vectorforge.pipeline.types import HistoryMessage, QueryConfig
from vectorforge.retriever.base import CleanQuery, CollectionChoice

UNLIMITED = LimitState(None, None, Limits(), None, None, None, None)
FULL = LimitState("requests_per_minute", 5.0, Limits(requests_per_minute=10), 0, None, 5.0, 3600.0)


class Clock:
    """Continues when released by the test."""

    def __init__(self) -> None:
        self.at = 100.0

    def __call__(self) -> float:
        return self.at


class TestGate:
    def test_unlimited_state_is_cached_until_expiry(self) -> None:
        clock = Clock()
        gate = LimitGate(Limits(), now=clock)
        assert not gate.is_open("a")
        gate.note("a", UNLIMITED, sent_at=clock())
        assert gate.is_open("a")
        assert not gate.is_open("b")
        clock.at += REMEMBERED_S
        assert not gate.is_open("a")

    def test_exhausted_minute_is_cached_until_reset(self) -> None:
        clock = Clock()
        gate = LimitGate(Limits(), now=clock)
        gate.note("a", FULL, sent_at=clock() - 1.0)  # the answer took a second
        clock.at += 3.0
        refusal = gate.refusal("a")
        assert refusal is not None
        assert (refusal.retry_after_s, refusal.minute_reset_s) == (1.0, 1.0)
        assert not gate.is_open("a")
        clock.at += 1.0
        assert gate.refusal("a") is None

    def test_rejection_is_rechecked_after_cache_expiry(self) -> None:
        clock = Clock()
        gate = LimitGate(Limits(), now=clock)
        gate.note("a", replace(FULL, retry_after_s=60.0), sent_at=clock())
        clock.at += REMEMBERED_S
        assert gate.refusal("a") is None

    @pytest.mark.parametrize("name", ["tokens_per_day", "cost_per_month_usd", "concurrent_streams"])
    def test_rejection_that_depends_on_request_size_is_not_cached(self, name: str) -> None:
        gate = LimitGate(Limits())
        gate.note("a", replace(FULL, refused_by=name), sent_at=gate.now())
        assert gate.refusal("a") is None

    def test_cache_evicts_tenants_over_capacity(self) -> None:
        gate = LimitGate(Limits())
        for number in range(10_001):
            gate.note(f"t{number}", UNLIMITED, sent_at=gate.now())
        assert not gate.is_open("t0")
        assert gate.is_open("t1")
        assert gate.is_open("t10000")


class TestHeaders:
    def test_report_requests_and_tokens(self) -> None:
        limits = Limits(requests_per_minute=100, tokens_per_day=5000)
        state = replace(UNLIMITED, limits=limits, requests_left=7, tokens_left=0, minute_reset_s=1.2)
        assert limit_headers(replace(state, day_reset_s=60.0)) == [
            (b"ratelimit-policy", b'"requests";q=100;w=60, "tokens";q=5000;w=86400'),
            (b"ratelimit", b'"requests";r=7;t=2, "tokens";r=0;t=60'),
        ]

    def test_cost_and_stream_limits_are_not_reported(self) -> None:
        limits = Limits(cost_per_month_usd=Decimal(1), concurrent_streams=3)
        assert limit_headers(replace(UNLIMITED, limits=limits)) == []


class TestClaims:
    SETTINGS = VectorForgeConfig(ingestion=IngestionSettings(chunk_size_chars=900))
    PRICES = PriceList({"scripted-1": ModelPrice(input=10, output=100)})

    def claim(self, config: QueryConfig, *, quoting: bool = False) -> Claim:
        registry = LLMProviderRegistry()
        embedder = HashingEmbedder()
        registry.register(ExtractiveProvider(embed=embedder.embed_documents) if quoting else ScriptedLLM())
        run = QueryRun(
            query="How long does a refund take?",
            choice=CollectionChoice.of(uuid4()),
            config=config,
            request_id=uuid4(),
            deadline=Deadline.never(),
            buffered=False,
            prices=self.PRICES,
        )
        with suppress(InvalidInputError):  # raised by step 1
            run.prepare(CleanQuery(run.query, truncated=False), registry)
        return query_claim(run, self.SETTINGS)

    def test_claim_covers_prompt_and_answer_at_model_prices(self) -> None:
        claim = self.claim(VECTORFORGE.config(max_tokens=1000))
        prompt = claim.tokens - 1000
        assert 3000 < prompt < 4000  # three times the answer, and the prompt's own text
        assert claim.cost_usd == pytest.approx((prompt * 10 + 1000 * 100) / 1e6)
        assert (claim.is_stream, claim.requests) == (True, 1)

    def test_chunks_without_budget_count_at_cut_length(self) -> None:
        few, many = (self.claim(RAG_QUERY.config(top_k=top_k)).tokens for top_k in (5, 15))
        assert many - few == 10 * 300

    def test_history_counts_toward_claim(self) -> None:
        alone = self.claim(QueryConfig())
        history = [HistoryMessage("user", "word " * 1000)]
        assert self.claim(QueryConfig(history=history)).tokens >= alone.tokens + 1000
        assert self.claim(QueryConfig(history=history, rewrite=True)).tokens >= alone.tokens + 3000

    def test_planning_counts_toward_claim(self) -> None:
        alone, low, medium = (
            self.claim(QueryConfig(effort=effort)).tokens for effort in ("minimal", "low", "medium")
        )
        assert (low - alone, medium - alone) == (1_500, 9_500)

    def test_extractive_answer_claims_no_tokens(self) -> None:
        assert self.claim(QueryConfig(), quoting=True) == Claim(is_stream=True)

    def test_unknown_provider_claims_no_tokens(self) -> None:
        assert self.claim(QueryConfig(llm_provider="nobody")) == Claim(is_stream=True)

    @pytest.mark.parametrize("name", PRESETS)
    def test_each_preset_claims_tokens(self, name: str) -> None:
        assert self.claim(PRESETS[name].config()).tokens > 0

    def test_model_without_price_claims_no_cost(self) -> None:
        assert self.SETTINGS.llm == LLMSettings()
        claim = self.claim(QueryConfig(llm_model="another"))
        assert (claim.cost_usd, claim.tokens > 0) == (0.0, True)
