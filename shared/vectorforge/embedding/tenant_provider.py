"""An embedding provider as one tenant uses it."""

from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from vectorforge.deadline import Deadline
from vectorforge.embedding.base import EmbeddingProvider
from vectorforge.embedding.cache import CACHE_TENANT
from vectorforge.types import Vector


class TenantEmbeddingProvider(EmbeddingProvider):
    """Embeds by another provider, with the tenant's share of that one's cache.

    Args:
        provider: Shared by all tenants; stays open when this one is closed.
        tenant_id: Of the tenant.
    """

    def __init__(self, provider: EmbeddingProvider, tenant_id: str) -> None:
        super().__init__(metrics=provider.metrics)
        self._shared = provider
        self._tenant_id = tenant_id
        # class variables of the other providers
        for name in ("is_remote", "query_prefix", "document_prefix"):
            self.__dict__[name] = getattr(provider, name)

    def provider_name(self) -> str:
        """Name of the shared provider."""
        return self._shared.provider_name()

    @property
    def default_model(self) -> str:
        """Model used when a call names none."""
        return self._shared.default_model

    def dimension(self, model: str | None = None) -> int | None:
        """As ``EmbeddingProvider.dimension``."""
        return self._shared.dimension(model)

    async def embed_query_text(
        self, text: str, *, model: str | None = None, deadline: Deadline | None = None
    ) -> "array[float]":
        """As ``EmbeddingProvider.embed_query_text``."""
        with self._as_tenant():
            return await self._shared.embed_query_text(text, model=model, deadline=deadline)

    async def embed_chunks(
        self,
        texts: Sequence[str],
        *,
        model: str | None = None,
        deadline: Deadline | None = None,
        on_progress: Callable[[int], None] | None = None,
    ) -> "list[array[float]]":
        """As ``EmbeddingProvider.embed_chunks``."""
        with self._as_tenant():
            return await self._shared.embed_chunks(
                texts, model=model, deadline=deadline, on_progress=on_progress
            )

    async def preload(self) -> None:
        """As ``EmbeddingProvider.preload``."""
        await self._shared.preload()

    async def _call_api(self, texts: Sequence[str], model: str) -> Sequence[Vector]:
        return await self._shared.embed_chunks(texts, model=model)

    @contextmanager
    def _as_tenant(self) -> Iterator[None]:
        token = CACHE_TENANT.set(self._tenant_id)
        try:
            yield
        finally:
            CACHE_TENANT.reset(token)
