"""Shared behavior of all embedding providers: batches, cache, retries, checks, metrics."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from tests.support.vendors.hashing_embedder import HashingEmbedder, hashed_vector
from vectorforge.deadline import Deadline
from vectorforge.embedding.base import MAX_MODELS, EmbeddingProvider
from vectorforge.embedding.cache import InMemoryEmbeddingCache
from vectorforge.errors import (
    DeadlineExceededError,
    EmbeddingDimensionError,
    EmbeddingError,
    EmbeddingInputError,
    EmbeddingTimeoutError,
    InvalidInputError,
)
from vectorforge.telemetry import InMemoryMetrics
from vectorforge.types import Vector

TAGS = {"provider": "scripted", "model": "m1"}


class ScriptedProvider(EmbeddingProvider):
    """A vendor whose calls are scripted by the test."""

    def __init__(self, answer: Callable[[Sequence[str]], Any], **options: Any) -> None:
        super().__init__(**options)
        self.answer = answer
        self.calls: list[list[str]] = []

    def provider_name(self) -> str:
        return "scripted"

    @property
    def default_model(self) -> str:
        return "m1"

    async def _call_api(self, texts: Sequence[str], model: str) -> Sequence[Vector]:
        self.calls.append(list(texts))
        answer = self.answer(texts)
        if isinstance(answer, Exception):
            raise answer
        return await answer if hasattr(answer, "__await__") else answer  # type: ignore[no-any-return]  # scripted


def vectors(texts: Sequence[str]) -> list[list[float]]:
    return [hashed_vector(text, 8) for text in texts]


# --- cache


async def test_embed_with_cache_sends_unknown_texts_only() -> None:
    # C21
    metrics = InMemoryMetrics()
    provider = ScriptedProvider(vectors, cache=InMemoryEmbeddingCache(), metrics=metrics)
    first = await provider.embed_documents(["a", "b"])
    second = await provider.embed_documents(["c", "b", "a"])
    assert provider.calls == [["a", "b"], ["c"]]
    assert second[::-1][:2] == first
    assert metrics.get("embedding.cache_hits", TAGS).total == 2
    assert metrics.get("embedding.texts", TAGS).total == 3
    assert metrics.get("embedding.calls", TAGS).total == 2


async def test_cached_vector_equals_fresh_vector() -> None:
    provider = ScriptedProvider(lambda texts: [[1 / 3, 2 / 3]] * len(texts), cache=InMemoryEmbeddingCache())
    assert await provider.embed_query("a") == await provider.embed_query("a")
    assert len(provider.calls) == 1


async def test_embed_chunks_returns_float32_vectors_equal_to_documents() -> None:
    provider = ScriptedProvider(lambda texts: [[1 / 3, len(text)] for text in texts])
    passages = await provider.embed_chunks(["a", "bcd", "a"])
    assert [(vector.typecode, vector.tolist()) for vector in passages] == [
        ("f", vector) for vector in await provider.embed_documents(["a", "bcd", "a"])
    ]
    assert [vector[1] for vector in passages] == [1.0, 3.0, 1.0]


async def test_cache_separates_models_and_providers() -> None:
    # C21: the key holds provider, model and text
    cache = InMemoryEmbeddingCache()
    scripted = ScriptedProvider(vectors, cache=cache)
    hashing = HashingEmbedder(cache=cache, dimension=16)
    await scripted.embed_query("a")
    await scripted.embed_query("a", model="m2")
    assert len(await hashing.embed_query("a")) == 16
    assert len(scripted.calls) == 2
    assert len(cache) == 3


def test_cache_evicts_least_recently_used() -> None:
    cache = InMemoryEmbeddingCache(2)
    cache.put_many("m", {"a": [1.0], "b": [2.0]})
    cache.get_many("m", ["a"])
    cache.put_many("m", {"c": [3.0]})
    assert cache.get_many("m", ["a", "b", "c"]) == {"a": [1.0], "c": [3.0]}


def test_cache_returns_copies() -> None:
    cache = InMemoryEmbeddingCache(2)
    cache.put_many("m", {"a": [1.0]})
    cache.get_many("m", ["a"])["a"].append(9.0)
    assert cache.get_many("m", ["a"]) == {"a": [1.0]}


def test_cache_without_capacity_is_rejected() -> None:
    with pytest.raises(InvalidInputError, match="max_entries"):
        InMemoryEmbeddingCache(0)


# --- retries, time, metrics


async def test_retryable_failure_is_retried() -> None:
    #
    def answer(texts: Sequence[str]) -> Any:
        return EmbeddingTimeoutError() if len(provider.calls) == 1 else vectors(texts)

    provider = ScriptedProvider(answer)
    assert len(await provider.embed_query("a")) == 8
    assert len(provider.calls) == 2


async def test_permanent_failure_is_not_retried() -> None:
    metrics = InMemoryMetrics()
    provider = ScriptedProvider(lambda _: EmbeddingError("no"), metrics=metrics)
    with pytest.raises(EmbeddingError, match="no"):
        await provider.embed_query("a")
    assert len(provider.calls) == 1
    assert metrics.get("embedding.errors", {**TAGS, "error_type": "EmbeddingError"}).total == 1


async def test_hanging_provider_raises_timeout() -> None:
    import asyncio

    provider = ScriptedProvider(lambda _: asyncio.sleep(60), timeout_s=0.02, retries=0)
    with pytest.raises(EmbeddingTimeoutError, match=r"within 0\.02 s"):
        await provider.embed_query("a")


async def test_deadline_overrides_timeout() -> None:
    import asyncio

    provider = ScriptedProvider(lambda _: asyncio.sleep(60))
    with pytest.raises(DeadlineExceededError):
        await provider.embed_query("a", deadline=Deadline.after(0.02))


async def test_failed_batch_raises_and_earlier_batches_stay_cached() -> None:
    def answer(texts: Sequence[str]) -> Any:
        return EmbeddingError("no") if texts == ["c"] else vectors(texts)

    provider = ScriptedProvider(answer, cache=InMemoryEmbeddingCache(), batch_size=2)
    with pytest.raises(EmbeddingError):
        await provider.embed_documents(["a", "b", "c"])
    provider.answer = vectors
    await provider.embed_documents(["a", "b", "c"])
    assert provider.calls == [["a", "b"], ["c"], ["c"]]


async def test_concurrent_batches_preserve_text_order() -> None:
    import asyncio

    async def slowest_first(texts: Sequence[str]) -> list[list[float]]:
        await asyncio.sleep(0.03 if texts == ["0"] else 0)
        return vectors(texts)

    class Concurrent(ScriptedProvider):
        concurrent_batches = 3

    texts = [str(number) for number in range(7)]
    provider = Concurrent(slowest_first, batch_size=1)
    assert await provider.embed_documents(texts) == [pytest.approx(vector) for vector in vectors(texts)]

    def fails_at_4(batch: Sequence[str]) -> Any:
        return EmbeddingError("the fifth") if batch == ["4"] else slowest_first(batch)

    with pytest.raises(EmbeddingError, match="the fifth"):
        await Concurrent(fails_at_4, batch_size=1).embed_documents(texts)


# --- responses of the provider


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (lambda texts: vectors(texts)[1:], "2 vectors for 3 texts"),
        (lambda texts: vectors([*texts, "d"]), "4 vectors for 3 texts"),
        (lambda texts: [*vectors(texts)[1:], [math.nan] * 8], "not finite"),
        (lambda texts: [*vectors(texts)[1:], [math.inf] + [0.0] * 7], "not finite"),
        (lambda texts: [*vectors(texts)[1:], [1e300] + [0.0] * 7], "not finite"),  # beyond float32
        (lambda texts: [*vectors(texts)[1:], [1.0] * 7], "7 dimensions; m1 has 8"),
    ],
)
async def test_invalid_vectors_are_rejected_without_retry(answer: Any, message: str) -> None:
    # fault 48: no misaligned vectors, no retry storm
    provider = ScriptedProvider(answer)
    with pytest.raises(EmbeddingError, match=message) as caught:
        await provider.embed_documents(["a", "b", "c"])
    assert not caught.value.retryable
    assert len(provider.calls) == 1


async def test_zero_vector_error_names_its_text() -> None:
    # fault 30
    provider = ScriptedProvider(lambda texts: [vectors(["a"])[0] if t != "z" else [0.0] * 8 for t in texts])
    with pytest.raises(EmbeddingInputError, match="text 2 is the zero vector") as caught:
        await provider.embed_documents(["a", "b", "z"])
    assert caught.value.index == 2


async def test_dimension_is_learned_and_enforced() -> None:
    provider = ScriptedProvider(vectors)
    assert provider.dimension() is None
    await provider.embed_query("a")
    assert provider.dimension() == 8
    provider.answer = lambda _: [[1.0, 2.0]]
    with pytest.raises(EmbeddingDimensionError, match="2 dimensions; m1 has 8"):
        await provider.embed_query("b")


async def test_dimensions_of_any_number_of_models_stay_bounded() -> None:
    provider = ScriptedProvider(vectors)
    for number in range(MAX_MODELS + 1):
        await provider.embed_query("a", model=f"m{number}")
    assert (provider.dimension("m0"), provider.dimension(f"m{MAX_MODELS}")) == (None, 8)


async def test_rejected_batch_is_halved_until_text_is_found() -> None:
    # fault 35
    def answer(texts: Sequence[str]) -> Any:
        return EmbeddingInputError("somewhere") if "bad" in texts else vectors(texts)

    provider = ScriptedProvider(answer, cache=InMemoryEmbeddingCache())
    texts = [f"t{number}" for number in range(32)]
    texts[21] = "bad"
    with pytest.raises(EmbeddingInputError, match="rejected text 21") as caught:
        await provider.embed_documents(texts)
    assert caught.value.index == 21
    assert len(provider.calls) <= 2 * 6
    siblings = [text for text in texts if text != "bad"]
    assert len(await provider.embed_documents(siblings)) == 31
