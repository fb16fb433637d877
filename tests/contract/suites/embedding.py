"""Contract of every embedding provider; a test class inherits it and sets the provider."""

import math

import pytest

from vectorforge.deadline import Deadline
from vectorforge.embedding.base import EmbeddingProvider
from vectorforge.errors import DeadlineExceededError, EmbeddingInputError
from vectorforge.health import HealthChecker

_TEXTS = [
    "The invoice is due within thirty days.",
    "Grüße aus Köln",
    "Cats sleep most of the day.",
    "x",
    "The kitten sleeps during the day.",
    "line one\nline two",
    "The invoice must be paid within thirty days.",
]


class EmbeddingProviderContract:
    """Inherit, and define a fixture ``provider``: batches of 2, metrics in memory, registered health probe.

    The fixture ``health_checker`` must return the checker that the provider was registered with.
    """

    async def test_embed_documents_returns_one_vector_per_text_in_order(
        self, provider: EmbeddingProvider
    ) -> None:
        vectors = await provider.embed_documents(_TEXTS)
        again = await provider.embed_documents(_TEXTS[::-1])
        assert len(vectors) == len(_TEXTS)
        for vector, same in zip(vectors, reversed(again), strict=True):
            assert vector == pytest.approx(same, abs=1e-6)

    async def test_vectors_are_finite_floats_of_stated_dimension(self, provider: EmbeddingProvider) -> None:
        vectors = await provider.embed_documents(_TEXTS)
        assert {len(vector) for vector in vectors} == {provider.dimension()}
        assert all(math.isfinite(value) for vector in vectors for value in vector)
        assert type(vectors[0][0]) is float  # accepted by JSON and the database driver
        assert all(any(vector) for vector in vectors)

    async def test_embed_query_returns_one_vector(self, provider: EmbeddingProvider) -> None:
        assert len(await provider.embed_query("When is it due?")) == provider.dimension()

    async def test_similar_texts_are_nearer_than_others(self, provider: EmbeddingProvider) -> None:
        invoice, _, cats, _, _, _, paid = await provider.embed_documents(_TEXTS)
        assert _cosine(invoice, paid) > _cosine(invoice, cats) + 0.2

    async def test_duplicate_texts_are_embedded_once(self, provider: EmbeddingProvider) -> None:
        first, second, third = await provider.embed_documents(["same", "other", "same"])
        assert first == third != second

    async def test_embed_without_texts_returns_no_vectors(self, provider: EmbeddingProvider) -> None:
        assert await provider.embed_documents([]) == []

    async def test_blank_text_is_rejected_with_its_index(self, provider: EmbeddingProvider) -> None:
        with pytest.raises(EmbeddingInputError, match="Text 2 is blank") as caught:
            await provider.embed_documents(["a", "b", " \n\t", "c"])
        assert caught.value.index == 2

    async def test_progress_increases_to_number_of_texts(self, provider: EmbeddingProvider) -> None:
        done: list[int] = []
        await provider.embed_documents(_TEXTS, on_progress=done.append)
        assert done == sorted(set(done))
        assert done[-1] == len(_TEXTS)

    async def test_expired_deadline_raises_before_request(self, provider: EmbeddingProvider) -> None:
        with pytest.raises(DeadlineExceededError):
            await provider.embed_query("late", deadline=Deadline.after(-1))

    async def test_health_check_is_registered_under_provider_name(
        self, provider: EmbeddingProvider, health_checker: HealthChecker
    ) -> None:
        (health,) = await health_checker.check()
        assert health.name == f"embedding.{provider.name}"
        assert health.healthy


def _cosine(one: list[float], other: list[float]) -> float:
    product = sum(a * b for a, b in zip(one, other, strict=True))
    return product / (math.hypot(*one) * math.hypot(*other))
