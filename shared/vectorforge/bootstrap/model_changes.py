"""Changes of embedding models, for one tenant: what one would cost, and its beginning."""

import logging
import time
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final
from uuid import UUID

from vectorforge.db.tenant_database import TenantDatabase
from vectorforge.embedding.base import EmbeddingProvider
from vectorforge.embedding.registry import EmbeddingProviderRegistry
from vectorforge.embedding_switch.repo import EmbeddingSwitch, EmbeddingSwitchRepository
from vectorforge.errors import InvalidInputError, UnknownModelError, VectorForgeError
from vectorforge.pipeline.prices import PriceList
from vectorforge.types import Collection
from vectorforge.vectorstore.model_comparison import ModelComparison

if TYPE_CHECKING:
    from vectorforge.bootstrap.application import Application

logger = logging.getLogger(__name__)

_TRIED: Final = 16
"""Passages embedded to learn how fast a model is: a second or so of a small local one."""


@dataclass(frozen=True, slots=True)
class EmbeddingEstimate:
    """What it takes to embed a collection."""

    provider: str
    model: str
    dimension: int
    passages: int
    tokens: int
    """As they were estimated at ingestion; without the titles that are embedded with each passage."""
    passages_per_s: float | None
    """Measured with some of the passages, one batch at a time; None: there are none."""
    seconds: float | None
    """By that rate."""
    cost_usd: float | None
    """By the price list; None: it does not have the model."""


async def chosen_model(
    registry: EmbeddingProviderRegistry, provider_name: str | None, model: str | None
) -> tuple[EmbeddingProvider, str, int]:
    """A provider, its model and that one's dimension; what is None is the default.

    Raises:
        InvalidInputError: There is no such provider, or it has no such model.
        EmbeddingError: The dimension had to be tried out, and that failed.
    """
    if provider_name is not None and provider_name not in registry.list_providers():
        raise InvalidInputError(
            f"embedding_provider must be one of: {', '.join(registry.list_providers())}.",
            field="embedding_provider",
        )
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
    """Changes of the embedding models of one tenant's collections."""

    def __init__(self, db: TenantDatabase, application: "Application") -> None:
        self._db = db
        self._application = application
        self._embeddings = application.embedding_registry.for_tenant(db.tenant_id)

    @cached_property
    def stored(self) -> EmbeddingSwitchRepository:
        """The changes as they are stored; each further step is one of its methods."""
        return EmbeddingSwitchRepository(self._db)

    def comparison(self, collection_id: UUID) -> ModelComparison:
        """What a comparison of a collection's two models reads."""
        return ModelComparison(self._db, collection_id)

    def provider(self, name: str) -> EmbeddingProvider:
        """The provider of this name.

        Raises:
            ConfigurationError: It is not available here.
        """
        return self._embeddings.get(name)

    async def estimate(
        self, collection: Collection, provider_name: str | None = None, model: str | None = None
    ) -> EmbeddingEstimate:
        """What it would take to embed a collection by another model; some of its passages are, to measure it.

        Raises:
            VectorForgeError: As ``start``.
        """
        provider, model, dimension = await self._chosen(provider_name, model)
        reads = self.comparison(collection.id)
        passages, tokens = await reads.size()
        texts = await reads.sample(_TRIED)
        rate = None
        if texts:
            started = time.perf_counter()
            await provider.embed_documents([provider.document_prefix + text for text in texts], model=model)
            rate = len(texts) / max(time.perf_counter() - started, 1e-6)
        prices = PriceList(self._application.config.llm.model_prices)
        name = provider.provider_name()
        return EmbeddingEstimate(
            provider=name,
            model=model,
            dimension=dimension,
            passages=passages,
            tokens=tokens,
            passages_per_s=rate,
            seconds=passages / rate if rate else None,
            cost_usd=0.0 if not provider.is_remote else prices.estimate_cost(name, model, tokens, 0),
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
        """Begin to embed a collection by another model; what is None is the provider's.

        The model may be the collection's own: then its passages are embedded anew.

        Raises:
            InvalidInputError: There is no such provider, or it has no such model.
            EmbeddingError: The model's dimension had to be tried out, and that failed.
            ConflictError: A change is open already, or there are too many partitions.
            DatabaseUnavailableError: The tables for this dimension could not be made now.
        """
        provider, model, dimension = await self._chosen(provider_name, model)
        started = await self.stored.start(
            collection.id,
            provider=provider.provider_name(),
            model=model,
            dimension=dimension,
            query_prefix=provider.query_prefix if query_prefix is None else query_prefix,
            document_prefix=provider.document_prefix if document_prefix is None else document_prefix,
        )
        await self.announce()
        return started

    async def announce(self) -> None:
        """Say that there is work for a change: to the worker of this process, or to the ingest function.

        It is not lost when the queue does not answer: whoever carries out jobs looks for it, too.
        """
        queue = self._application.ingestion_queue
        if queue is None:
            self._application.ingestion_worker.wake()
            return
        from vectorforge.aws.queues import AnyJob

        try:
            await queue.announce(AnyJob())
        except VectorForgeError as exc:
            logger.warning("A change of an embedding model was not announced: %s", exc.message)

    async def _chosen(self, name: str | None, model: str | None) -> tuple[EmbeddingProvider, str, int]:
        return await chosen_model(self._embeddings, name, model)
