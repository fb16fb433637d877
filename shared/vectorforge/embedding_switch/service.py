"""Embedding model switches of one tenant: cost estimate, start, and reads to compare the two models."""

import time
from array import array
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final
from uuid import UUID

from vectorforge.db.tenant_database import TenantDatabase
from vectorforge.embedding.base import EmbeddingProvider
from vectorforge.embedding.registry import EmbeddingProviderRegistry
from vectorforge.embedding_switch.repo import EmbeddingSwitch, EmbeddingSwitchRepository
from vectorforge.errors import InvalidInputError, UnknownModelError
from vectorforge.types import Collection, DistanceMetric
from vectorforge.vectorstore.search.vectors import OPERATORS
from vectorforge.vectorstore.validation import wire_vector

_TRIED: Final = 16
"""Chunks embedded to measure a model's rate: about a second of a small local one."""


# The latest record of each text, newest first; failed queries count as well.
_LOGGED = """
SELECT query_text FROM (
    SELECT query_text, max(created_at) AS logged_at FROM vectorforge.query_logs
    WHERE tenant_id = %(tenant_id)s AND collection_id = %(collection)s AND query_text <> ''
    GROUP BY query_text
) AS logged
ORDER BY logged_at DESC LIMIT %(limit)s
"""
# By the bare column, which no index is made on: the models are compared, not their indexes.
_NEAREST = """
SELECT f.id, f.document_id, f.start_offset, f.end_offset, f.text
FROM (
    SELECT e.chunk_id, e.embedding {operator} %(query)b::public.vector AS distance
    FROM vectorforge.embeddings AS e
    WHERE e.tenant_id = %(tenant_id)s AND e.collection_id = %(collection)s AND e.space = %(space)s
    ORDER BY distance, e.chunk_id LIMIT %(k)s
) AS nearest
JOIN vectorforge.chunks AS f ON f.tenant_id = %(tenant_id)s AND f.id = nearest.chunk_id
ORDER BY nearest.distance, nearest.chunk_id
"""
_SAMPLE = """
SELECT text FROM vectorforge.chunks
WHERE tenant_id = %(tenant_id)s AND collection_id = %(collection)s AND to_version IS NULL LIMIT %(limit)s
"""
_TOKENS = """
SELECT count(*) AS passages, coalesce(sum(token_count), 0)::bigint AS tokens FROM vectorforge.chunks
WHERE tenant_id = %(tenant_id)s AND collection_id = %(collection)s AND to_version IS NULL
"""


@dataclass(frozen=True, slots=True)
class NearChunk:
    """A chunk near a query, with the fields that judgments use."""

    id: UUID
    document_id: UUID
    start_offset: int
    end_offset: int
    text: str


class ModelComparison:
    """Reads of one collection of one tenant."""

    def __init__(self, db: TenantDatabase, collection_id: UUID) -> None:
        self._db = db
        self._scope: dict[str, Any] = db.named(collection=collection_id)

    async def logged_questions(self, limit: int) -> list[str]:
        """Return the distinct queries to the collection, latest first."""
        rows = await self._db.fetch_all(_LOGGED, {**self._scope, "limit": limit})
        return [row["query_text"] for row in rows]

    async def nearest(
        self, space: str, metric: DistanceMetric, query: "array[float]", k: int
    ) -> list[NearChunk]:
        """Return the k chunks nearest to a vector of a space, nearest first, by exact comparison."""
        values = {**self._scope, "space": space, "query": wire_vector(query), "k": k}
        rows = await self._db.fetch_all(_NEAREST.format(operator=OPERATORS[metric]), values)
        return [NearChunk(**row) for row in rows]

    async def size(self) -> tuple[int, int]:
        """Return the number of the collection's chunks and their tokens, estimated at ingestion."""
        row = await self._db.fetch_one(_TOKENS, self._scope)
        return (row["passages"], row["tokens"]) if row else (0, 0)

    async def sample(self, limit: int) -> list[str]:
        """Return the texts of some chunks."""
        return [row["text"] for row in await self._db.fetch_all(_SAMPLE, {**self._scope, "limit": limit})]


@dataclass(frozen=True, slots=True)
class EmbeddingEstimate:
    """Estimated effort of embedding a collection."""

    provider: str
    model: str
    dimension: int
    passages: int
    tokens: int
    """Estimated at ingestion, without the titles that are embedded with each chunk."""
    passages_per_s: float | None
    """Measured with some of the chunks, one batch at a time; None for an empty collection."""
    seconds: float | None
    """Duration at that rate."""
    cost_usd: float | None
    """Cost by the price list; None for a model that is not on it."""


async def chosen_model(
    registry: EmbeddingProviderRegistry, provider_name: str | None, model: str | None
) -> tuple[EmbeddingProvider, str, int]:
    """Return a provider, its model and the model's dimension; None takes the default.

    Raises:
        InvalidInputError: The provider or its model is unknown.
        EmbeddingError: The dimension had to be measured, and that failed.
    """
    if provider_name is not None and provider_name not in registry.list_providers():
        raise InvalidInputError(registry.unknown(provider_name), field="embedding_provider")
    provider = registry.get(provider_name)
    model = model or provider.default_model
    dimension = provider.dimension(model)
    if dimension is None:
        try:
            dimension = len(await provider.embed_query("dimension", model=model))
        except UnknownModelError as exc:
            raise InvalidInputError(exc.message, field="embedding_model") from exc
    return provider, model, dimension


class ModelChanges:
    """Embedding model switches of one tenant's collections.

    Args:
        estimate_cost: Returns the cost in US dollars of a provider's model for prompt and completion tokens;
            None for an unknown price.
        announce: Called when there is work; never raises. None leaves it to the worker's next look.
    """

    def __init__(
        self,
        db: TenantDatabase,
        embeddings: EmbeddingProviderRegistry,
        estimate_cost: Callable[[str, str, int, int], float | None],
        *,
        announce: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self._db = db
        self._embeddings = embeddings
        self._estimate_cost = estimate_cost
        self._announce = announce

    @cached_property
    def stored(self) -> EmbeddingSwitchRepository:
        """Repository of the switches, with a method for each further step."""
        return EmbeddingSwitchRepository(self._db)

    def comparison(self, collection_id: UUID) -> ModelComparison:
        """Return the reads for a comparison of a collection's two models."""
        return ModelComparison(self._db, collection_id)

    async def estimate(
        self, collection: Collection, provider_name: str | None = None, model: str | None = None
    ) -> EmbeddingEstimate:
        """Estimate embedding a collection with another model, by embedding some of its chunks.

        Raises:
            VectorForgeError: As ``start``.
        """
        provider, model, dimension = await chosen_model(self._embeddings, provider_name, model)
        reads = self.comparison(collection.id)
        chunks, tokens = await reads.size()
        texts = await reads.sample(_TRIED)
        rate = None
        if texts:
            started = time.perf_counter()
            prefix = provider.traits(model).document_prefix
            await provider.embed_documents([prefix + text for text in texts], model=model)
            rate = len(texts) / max(time.perf_counter() - started, 1e-6)
        name = provider.name
        return EmbeddingEstimate(
            provider=name,
            model=model,
            dimension=dimension,
            passages=chunks,
            tokens=tokens,
            passages_per_s=rate,
            seconds=chunks / rate if rate else None,
            cost_usd=0.0 if not provider.is_remote else self._estimate_cost(name, model, tokens, 0),
        )

    async def start(
        self,
        collection: Collection,
        provider_name: str | None = None,
        model: str | None = None,
        *,
        query_prefix: str | None = None,
        document_prefix: str | None = None,
    ) -> EmbeddingSwitch:
        """Start to embed a collection with another model; None takes the provider's value.

        The model may be the collection's own, whose chunks are embedded again.

        Raises:
            InvalidInputError: The provider or its model is unknown.
            EmbeddingError: The model's dimension had to be measured, and that failed.
            ConflictError: A switch is open already, or there are too many partitions.
            DatabaseUnavailableError: The tables for this dimension could not be created now.
        """
        provider, model, dimension = await chosen_model(self._embeddings, provider_name, model)
        traits = provider.traits(model)
        started = await self.stored.start(
            collection.id,
            provider=provider.name,
            model=model,
            dimension=dimension,
            query_prefix=traits.query_prefix if query_prefix is None else query_prefix,
            document_prefix=traits.document_prefix if document_prefix is None else document_prefix,
        )
        await self.announce()
        return started

    async def announce(self) -> None:
        """Announce work for a switch to this process's worker or to the ingest function."""
        if self._announce is not None:
            await self._announce()
