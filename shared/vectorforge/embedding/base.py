"""What every embedding provider does alike: batches, cache, retries, checks, metrics."""

import asyncio
import json
import math
from abc import ABC, abstractmethod
from array import array
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from typing import ClassVar, TypeAlias

from vectorforge.deadline import Deadline
from vectorforge.embedding.cache import CACHE_TENANT, FRESH_VECTORS, EmbeddingCache
from vectorforge.errors import (
    DeadlineExceededError,
    EmbeddingError,
    EmbeddingInputError,
    EmbeddingTimeoutError,
    VectorForgeError,
)
from vectorforge.float32 import ValidatedVector, fast_is_finite
from vectorforge.health import ComponentHealth, HealthChecker
from vectorforge.telemetry import InMemoryMetrics, MetricsCollector, measure
from vectorforge.types import Vector
from vectorforge.vendors.retry import RetryBudget, with_retries

Batch: TypeAlias = Sequence[tuple[int, str]]
"""(position among the caller's texts, text)"""


class EmbeddingProvider(ABC):
    """Turns text into vectors. A vendor implements ``_call_api``: one batch, one attempt.

    Args:
        metrics: Where ``embedding.*`` goes; kept in memory when not given.
        health_checker: Gets the probe ``embedding.<name>``.
        cache: Vectors seen before; nothing is cached when not given.
        retries: Attempts of one batch after the first.
        timeout_s: Longest wait for one attempt, in seconds.
        batch_size: Texts of one call at most; ``max_batch_size`` bounds it.
    """

    max_batch_size: ClassVar[int] = 2048
    concurrent_batches: ClassVar[int] = 1
    """Batches of one ``embed_documents`` on their way at the same time."""
    is_remote: ClassVar[bool] = True
    """Whether a vector costs a call to somebody else, and so is worth keeping for other processes."""
    query_prefix: ClassVar[str] = ""
    """What new collections put before questions when they are not told; nothing is added here."""
    document_prefix: ClassVar[str] = ""
    """The same for passages."""

    def __init__(
        self,
        *,
        metrics: MetricsCollector | None = None,
        health_checker: HealthChecker | None = None,
        cache: EmbeddingCache | None = None,
        retries: int = 3,
        timeout_s: float = 30.0,
        batch_size: int = 64,
    ) -> None:
        self.metrics = metrics if metrics is not None else InMemoryMetrics()
        self.retry_budget = RetryBudget()  # a registry gives all its providers one
        self._cache = cache
        self._retries = retries
        self._timeout_s = timeout_s
        self._batch_size = max(1, min(batch_size, self.max_batch_size))
        self._seen_dimensions: dict[str, int] = {}
        if health_checker is not None:
            health_checker.register(f"embedding.{self.provider_name()}", self._health_probe)

    @abstractmethod
    def provider_name(self) -> str:
        """Name of the provider, as collections store it."""

    @property
    def name(self) -> str:
        """The same as ``provider_name()``."""
        return self.provider_name()

    @property
    @abstractmethod
    def default_model(self) -> str:
        """Model used when a call names none."""

    @abstractmethod
    async def _call_api(self, texts: Sequence[str], model: str) -> Sequence[Vector]:
        """Embed one batch, in one attempt; one vector a text, in the order of ``texts``.

        Raises:
            EmbeddingError: With ``retryable`` set; ``EmbeddingInputError`` when the texts are refused.
        """

    def dimension(self, model: str | None = None) -> int | None:
        """Length of a model's vectors; None when it is not known before its first call."""
        return self._seen_dimensions.get(model or self.default_model)

    async def embed_query(
        self, text: str, *, model: str | None = None, deadline: Deadline | None = None
    ) -> list[float]:
        """The vector of a question: finite float32 values, not all zero, ``dimension(model)`` of them.

        Raises:
            EmbeddingInputError: The text is blank, too long, or refused.
            EmbeddingError: The provider failed; its subclasses say how.
            DeadlineExceededError: The time ran out.
        """
        return (await self.embed_query_text(text, model=model, deadline=deadline)).tolist()

    async def embed_query_text(
        self, text: str, *, model: str | None = None, deadline: Deadline | None = None
    ) -> "array[float]":
        """As ``embed_query``, but in an array of 4-byte floats."""
        return (await self._for_queries().embed_chunks([text], model=model, deadline=deadline))[0]

    async def embed_documents(
        self,
        texts: Sequence[str],
        *,
        model: str | None = None,
        deadline: Deadline | None = None,
        on_progress: Callable[[int], None] | None = None,
    ) -> list[list[float]]:
        """The vectors of texts, in the order of the texts and as many; equal texts are embedded once.

        Args:
            texts: Not blank. None at all gives no vectors.
            model: Instead of the default one.
            deadline: No call goes on after it.
            on_progress: Called with the number of distinct texts done so far, after each batch.

        Raises:
            EmbeddingInputError: A text is blank, too long, or refused; ``index`` is its position. Blank
                and overlong texts are found before anything is sent.
            EmbeddingError: The provider failed; its subclasses say how. Vectors that came before are
                in the cache.
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
        """As ``embed_documents``, but in arrays of 4-byte floats, which equal texts share."""
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
            found = await self._embed_batch(batch, model, deadline or Deadline.never())
            vectors.update(zip((text for _, text in batch), found, strict=True))
            progress(len(vectors))

        await _run_all(embed, batches, min(self.concurrent_batches, len(batches)))
        return [vectors[text] for text in texts]

    async def preload(self) -> None:
        """Load ahead what the first call would load; connects to nothing. Vendors' providers do more."""
        return

    async def aclose(self) -> None:
        """Release connections and threads. The provider is not used afterwards."""
        return

    def _for_queries(self) -> "EmbeddingProvider":
        """What embeds questions: this, or a copy of it for a vendor that has to be told."""
        return self

    def _check_text(self, index: int, text: str, model: str) -> None:
        """Refuse a text that no call would embed. Vendors add their limits."""
        if not text.strip():
            raise EmbeddingInputError(f"Text {index} is blank; there is nothing to embed.", index=index)

    def _batches(self, items: Batch, model: str) -> Iterator[Batch]:
        """Cut into batches of at most ``batch_size``. Vendors may cut finer."""
        for start in range(0, len(items), self._batch_size):
            yield items[start : start + self._batch_size]

    def _model_key(self, model: str) -> str:
        """Everything besides the text that decides a vector; part of the cache's key."""
        return json.dumps([self.provider_name(), model])

    def _tags(self, model: str) -> dict[str, str]:
        return {"provider": self.provider_name(), "model": model}

    def _cached(self, texts: Sequence[str], model: str) -> "dict[str, array[float]]":
        if self._cache is None or FRESH_VECTORS.get():
            return {}
        kept = self._cache.get_many(self._model_key(model), texts, tenant_id=CACHE_TENANT.get())
        found = {text: array("f", vector) for text, vector in kept.items()}
        if found:
            self.metrics.increment("embedding.cache_hits", len(found), self._tags(model))
        return found

    async def _embed_batch(self, batch: Batch, model: str, deadline: Deadline) -> "list[array[float]]":
        """One batch with its retries; a refused one is halved until the text at fault is found."""
        texts = [text for _, text in batch]
        try:
            with measure(self.metrics, "embedding", self._tags(model)):
                self.metrics.increment("embedding.texts", len(texts), self._tags(model))
                raw = await with_retries(
                    lambda: self._attempt(texts, model, deadline),
                    retries=self._retries,
                    deadline=deadline,
                    budget=self.retry_budget,
                )
                vectors = self._checked(raw, batch, model)
        except EmbeddingInputError as exc:
            if exc.index is not None:
                raise
            if len(batch) == 1:
                index = batch[0][0]
                message = f"The embedding provider refused text {index}."
                raise EmbeddingInputError(message, index=index) from exc
            middle = len(batch) // 2
            first = await self._embed_batch(batch[:middle], model, deadline)
            return first + await self._embed_batch(batch[middle:], model, deadline)
        if self._cache is not None:
            made = dict(zip(texts, vectors, strict=True))
            self._cache.put_many(self._model_key(model), made, tenant_id=CACHE_TENANT.get())
        return vectors

    async def _attempt(self, texts: Sequence[str], model: str, deadline: Deadline) -> Sequence[Vector]:
        try:
            async with asyncio.timeout(deadline.clamp(self._timeout_s)):
                return await self._call_api(texts, model)
        except TimeoutError as exc:
            if deadline.remaining_s() <= 0:
                raise DeadlineExceededError from exc
            message = f"The embedding provider did not answer within {self._timeout_s:g} s."
            raise EmbeddingTimeoutError(message) from exc

    def _checked(self, raw: Sequence[Vector], batch: Batch, model: str) -> "list[array[float]]":
        """The vectors as float32 (what the database stores), or an error: never a misaligned or NaN one."""
        if len(raw) != len(batch):
            raise EmbeddingError(f"The embedding provider sent {len(raw)} vectors for {len(batch)} texts.")
        expected = self.dimension(model) or len(raw[0])
        vectors: list[array[float]] = []
        for (index, _), values in zip(batch, raw, strict=True):
            if len(values) != expected:
                raise EmbeddingError(
                    f"The embedding provider sent {len(values)} dimensions; {model} has {expected}."
                )
            vector = ValidatedVector("f", values)
            if fast_is_finite(vector):
                vectors.append(vector)
            else:
                _check_numbers(vector, index)
                vectors.append(array("f", vector))
        if expected:
            self._seen_dimensions.setdefault(model, expected)
        return vectors

    async def _health_probe(self) -> ComponentHealth:
        """Embed one word, past cache and retries."""
        component = f"embedding.{self.provider_name()}"
        try:
            await self._attempt(["health"], self.default_model, Deadline.never())
        except VectorForgeError as exc:
            return ComponentHealth(component, False, exc.message)
        return ComponentHealth(component, True, self.default_model)


def _check_numbers(vector: "array[float]", index: int) -> None:
    norm = math.hypot(*vector)
    if not math.isfinite(norm):
        raise EmbeddingError("The embedding provider sent a vector that is not finite.")
    if norm == 0:
        message = f"The embedding of text {index} is the zero vector, which nothing is similar to."
        raise EmbeddingInputError(message, index=index)


async def _run_all(embed: Callable[[Batch], Awaitable[None]], batches: Iterable[Batch], limit: int) -> None:
    """Await ``embed`` for every batch, ``limit`` at a time; the first error cancels the others."""
    waiting = iter(batches)

    async def work() -> None:
        for batch in waiting:  # shared: each worker takes the next one
            await embed(batch)

    if limit <= 1:
        return await work()
    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(limit):
                group.create_task(work())
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0]  # noqa: B904 - "from" would replace the error's own cause
