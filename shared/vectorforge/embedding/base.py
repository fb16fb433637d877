"""Base class of embedding providers: batches, cache, retries, checks and metrics."""

import asyncio
import json
import math
from abc import ABC, abstractmethod
from array import array
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import ClassVar, NamedTuple, TypeAlias

from vectorforge.deadline import Deadline
from vectorforge.embedding.cache import CACHE_TENANT, FRESH_VECTORS, InMemoryEmbeddingCache
from vectorforge.errors import (
    DeadlineExceededError,
    EmbeddingDimensionError,
    EmbeddingError,
    EmbeddingInputError,
    EmbeddingTimeoutError,
    InvalidInputError,
    VectorForgeError,
)
from vectorforge.health import ComponentHealth, HealthChecker
from vectorforge.telemetry import InMemoryMetrics, MetricsCollector, measure
from vectorforge.types import Compare, Vector, has_ordinary_length
from vectorforge.vendors.resilience import RetryBudget, with_retries

Batch: TypeAlias = Sequence[tuple[int, str]]
"""Pairs of (position among the caller's texts, text)."""


class ModelTraits(NamedTuple):
    """Properties of an embedding model that are not added by its provider, but by those who use it."""

    query_prefix: str = ""
    """Default query prefix of new collections."""
    document_prefix: str = ""
    """Default chunk prefix of new collections."""
    languages: Sequence[str] = ()
    """Languages of its training, ISO 639-1; empty: unknown, or many."""


MAX_MODELS = 1_000
"""Models whose dimensions a provider remembers: callers choose their names."""


class EmbeddingProvider(ABC):
    """Vendor of vectors for texts; subclasses implement ``_call_api``: one batch, one attempt.

    Args:
        default_model: Model of calls that name none.
        metrics: Receives ``embedding.*``; in memory by default.
        health_checker: Receives the probe ``embedding.<name>``.
        cache: Cache of vectors; default: none.
        retries: Attempts of one batch after the first.
        timeout_s: Time limit of one attempt.
        batch_size: Texts per call, at most ``max_batch_size``.
        retry_budget: Shared with other providers; a registry sets its own.
    """

    max_batch_size: ClassVar[int] = 2048
    concurrent_batches: ClassVar[int] = 1
    """Concurrent batches of one ``embed_documents``."""
    is_remote: ClassVar[bool] = True
    """True if a vector costs a remote call, and so is worth sharing with other processes."""

    def __init__(
        self,
        *,
        default_model: str = "",
        metrics: MetricsCollector | None = None,
        health_checker: HealthChecker | None = None,
        cache: InMemoryEmbeddingCache | None = None,
        retries: int = 3,
        timeout_s: float = 30.0,
        batch_size: int = 64,
        retry_budget: RetryBudget | None = None,
    ) -> None:
        self.metrics = metrics if metrics is not None else InMemoryMetrics()
        self.retry_budget = retry_budget or RetryBudget()  # a registry shares one among its providers
        self._default_model = default_model
        self._cache = cache
        self._retries = retries
        self._timeout_s = timeout_s
        self._batch_size = max(1, min(batch_size, self.max_batch_size))
        self._seen_dimensions: dict[str, int] = {}
        if health_checker is not None:
            health_checker.register(f"embedding.{self.name}", self._health_probe)

    @abstractmethod
    def provider_name(self) -> str:
        """Return the name that collections store."""

    @property
    def name(self) -> str:
        """Same as ``provider_name()``, which providers implement."""
        return self.provider_name()

    @property
    def default_model(self) -> str:
        """Model of calls that name none."""
        return self._default_model

    @abstractmethod
    async def _call_api(self, texts: Sequence[str], model: str) -> Sequence[Vector]:
        """Embed one batch in one attempt; return one vector per text, in order.

        Raises:
            EmbeddingError: With ``retryable`` set; ``EmbeddingInputError`` if the texts are rejected.
        """

    def dimension(self, model: str | None = None) -> int | None:
        """Return the length of a model's vectors, or None if unknown before its first call."""
        return self._seen_dimensions.get(model or self.default_model)

    def traits(self, model: str | None = None) -> ModelTraits:
        """Return the prefixes and languages of a model; default: the default one."""
        return ModelTraits()

    def comparison(self) -> Compare | None:
        """Return the default model's comparison word by word; None if it has one vector for a text."""
        return None

    async def embed_query(
        self, text: str, *, model: str | None = None, deadline: Deadline | None = None
    ) -> list[float]:
        """Return the vector of a query: ``dimension(model)`` finite float32 values, not all zero.

        Raises:
            EmbeddingInputError: The text is blank, too long, or rejected.
            EmbeddingError: The provider failed; subclasses give the reason.
            DeadlineExceededError: The time ran out.
        """
        return (await self.embed_query_text(text, model=model, deadline=deadline)).tolist()

    async def embed_query_text(
        self, text: str, *, model: str | None = None, deadline: Deadline | None = None
    ) -> "array[float]":
        """Return the vector of ``embed_query`` as an array of 4-byte floats."""
        return (await self._for_queries().embed_chunks([text], model=model, deadline=deadline))[0]

    async def embed_documents(
        self,
        texts: Sequence[str],
        *,
        model: str | None = None,
        deadline: Deadline | None = None,
        on_progress: Callable[[int], None] | None = None,
    ) -> list[list[float]]:
        """Return one vector per text, in order; equal texts are embedded once.

        Args:
            texts: Texts that are not blank; may be empty.
            model: Model to use; default: the default one.
            deadline: Time limit of all calls.
            on_progress: Called after each batch with the number of distinct texts done.

        Raises:
            EmbeddingInputError: A text is blank, too long, or rejected; ``index`` is its position. Blank and
                overlong texts are detected before anything is sent.
            EmbeddingError: The provider failed; subclasses give the reason. Finished vectors are cached.
            DeadlineExceededError: The time ran out.
        """
        vectors = await self.embed_chunks(texts, model=model, deadline=deadline, on_progress=on_progress)
        return [vector.tolist() for vector in vectors]

    async def embed_chunks(
        self,
        texts: Sequence[str],
        *,
        model: str | None = None,
        deadline: Deadline | None = None,
        on_progress: Callable[[int], None] | None = None,
    ) -> "list[array[float]]":
        """Return the vectors of ``embed_documents`` as arrays of 4-byte floats, shared by equal texts."""
        if isinstance(texts, str):  # else its letters would be embedded
            raise InvalidInputError("`texts` must be a list of texts, not one text.", field="texts")
        model = model or self.default_model
        positions: dict[str, int] = {}
        for index, text in enumerate(texts):
            if text not in positions:
                self._check_text(index, text, model)
                positions[text] = index
        vectors = self._cached(list(positions), model)
        missing = [(index, text) for text, index in positions.items() if text not in vectors]
        batches = list(self._batches(missing, model))
        progress = on_progress or (lambda _: None)

        async def embed(batch: Batch) -> None:
            embedded = await self._embed_batch(batch, model, deadline or Deadline.never())
            vectors.update(zip((text for _, text in batch), embedded, strict=True))
            progress(len(vectors))

        await _run_all(embed, batches, min(self.concurrent_batches, len(batches)))
        return [vectors[text] for text in texts]

    async def preload(self) -> None:  # noqa: B027 - nothing to import by default
        """Import the packages of the first call; connects to nothing."""

    async def aclose(self) -> None:  # noqa: B027 - nothing to release by default
        """Release connections and threads."""

    def _for_queries(self) -> "EmbeddingProvider":
        """Return the provider for queries: this one, or a copy if the vendor distinguishes queries."""
        return self

    def _check_text(self, index: int, text: str, model: str) -> None:
        """Reject a text that cannot be embedded; vendors add their limits."""
        if not text.strip():
            raise EmbeddingInputError(f"Text {index} is blank; there is nothing to embed.", index=index)

    def _batches(self, items: Batch, model: str) -> Iterator[Batch]:
        """Yield batches of at most ``batch_size`` texts; vendors may use smaller ones."""
        for start in range(0, len(items), self._batch_size):
            yield items[start : start + self._batch_size]

    def _model_key(self, model: str) -> str:
        """Return everything besides the text that determines a vector, for the cache key."""
        return json.dumps([self.name, model])

    def _tags(self, model: str) -> dict[str, str]:
        return {"provider": self.name, "model": model}

    def _cached(self, texts: Sequence[str], model: str) -> "dict[str, array[float]]":
        if self._cache is None or FRESH_VECTORS.get():
            return {}
        cached = self._cache.get_many(self._model_key(model), texts, tenant_id=CACHE_TENANT.get())
        if cached:
            self.metrics.increment("embedding.cache_hits", len(cached), self._tags(model))
        return {text: array("f", vector) for text, vector in cached.items()}

    async def _embed_batch(self, batch: Batch, model: str, deadline: Deadline) -> "list[array[float]]":
        """Embed one batch with retries; a rejected batch is halved until the invalid text is found."""
        texts = [text for _, text in batch]
        try:
            with measure(self.metrics, "embedding", self._tags(model)):
                self.metrics.increment("embedding.texts", len(texts), self._tags(model))
                attempt = partial(self._attempt, texts, model, deadline)
                if self._retries == 0:
                    raw = await attempt()
                else:
                    raw = await with_retries(
                        attempt, retries=self._retries, deadline=deadline, budget=self.retry_budget
                    )
                vectors = self._checked(raw, batch, model)
        except EmbeddingInputError as exc:
            if exc.index is not None:
                raise
            if len(batch) == 1:
                index = batch[0][0]
                message = f"The embedding provider rejected text {index}."
                raise EmbeddingInputError(message, index=index) from exc
            middle = len(batch) // 2
            first = await self._embed_batch(batch[:middle], model, deadline)
            return first + await self._embed_batch(batch[middle:], model, deadline)
        if self._cache is not None:
            by_text = dict(zip(texts, vectors, strict=True))
            self._cache.put_many(self._model_key(model), by_text, tenant_id=CACHE_TENANT.get())
        return vectors

    async def _attempt(self, texts: Sequence[str], model: str, deadline: Deadline) -> Sequence[Vector]:
        try:
            async with asyncio.timeout(deadline.clamp(self._timeout_s)):
                return await self._call_api(texts, model)
        except TimeoutError as exc:
            if deadline.remaining_s() <= 0:
                raise DeadlineExceededError from exc
            message = f"The embedding provider did not respond within {self._timeout_s:g} s."
            raise EmbeddingTimeoutError(message) from exc

    def _checked(self, raw: Sequence[Vector], batch: Batch, model: str) -> "list[array[float]]":
        """Return the vectors as float32, as the database stores them; raise for misaligned or NaN ones."""
        if len(raw) != len(batch):
            raise EmbeddingError(f"The embedding provider sent {len(raw)} vectors for {len(batch)} texts.")
        expected = self.dimension(model) or len(raw[0])
        vectors: list[array[float]] = []
        for (index, _), values in zip(batch, raw, strict=True):
            if len(values) != expected:
                raise EmbeddingDimensionError(
                    f"The embedding provider sent {len(values)} dimensions; {model} has {expected}."
                )
            vectors.append(array("f", values))
            _check_numbers(vectors[-1], index)
        if expected and model not in self._seen_dimensions:
            if len(self._seen_dimensions) >= MAX_MODELS:
                self._seen_dimensions.clear()
            self._seen_dimensions[model] = expected
        return vectors

    async def _health_probe(self) -> ComponentHealth:
        """Embed one word without cache and retries."""
        component = f"embedding.{self.name}"
        try:
            await self._attempt(["health"], self.default_model, Deadline.never())
        except VectorForgeError as exc:
            return ComponentHealth(component, False, exc.message)
        return ComponentHealth(component, True, self.default_model)


def _check_numbers(vector: "array[float]", index: int) -> None:
    if has_ordinary_length(vector):
        return
    norm = math.hypot(*vector)
    if not math.isfinite(norm):
        raise EmbeddingError("The embedding provider sent a vector that is not finite.")
    if norm == 0:
        message = f"The embedding of text {index} is the zero vector, which has no similarity to others."
        raise EmbeddingInputError(message, index=index)


async def _run_all(embed: Callable[[Batch], Awaitable[None]], batches: Iterable[Batch], limit: int) -> None:
    """Await ``embed`` for every batch, ``limit`` at a time; the first error cancels the others."""
    waiting = iter(batches)

    async def work() -> None:
        for batch in waiting:  # shared by all workers
            await embed(batch)

    if limit <= 1:
        return await work()
    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(limit):
                group.create_task(work())
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0]  # noqa: B904 - "from" would replace the error's own cause
