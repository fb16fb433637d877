"""Bodies of ``/``, ``/health`` and ``/v1/providers``."""

from typing import Literal, Self

from pydantic import BaseModel, Field

from vectorforge.embedding.base import EmbeddingProvider
from vectorforge.embedding.registry import EmbeddingProviderRegistry
from vectorforge.llm.registry import LLMProviderRegistry
from vectorforge.llm.types import ProviderCapability, ProviderInfo


class Component(BaseModel):
    """What the probe of one part found."""

    name: str
    healthy: bool
    detail: str
    latency_ms: float


class HealthResponse(BaseModel):
    """Health of the server; degraded when any probed part is unhealthy."""

    status: Literal["ok", "degraded"]
    version: str
    components: list[Component]


class LLMProviderBody(BaseModel):
    """A provider that writes answers."""

    name: str
    default_model: str
    capabilities: list[str]
    is_default: bool
    extractive: bool

    @classmethod
    def of(cls, info: ProviderInfo) -> Self:
        """The body for the description."""
        return cls(
            name=info.name,
            default_model=info.default_model,
            capabilities=sorted(info.capabilities),
            is_default=info.is_default,
            extractive=ProviderCapability.EXTRACTIVE in info.capabilities,
        )


class EmbeddingProviderBody(BaseModel):
    """A provider that turns text into vectors."""

    name: str
    default_model: str
    dimension: int | None
    is_default: bool

    @classmethod
    def of(cls, provider: EmbeddingProvider, *, is_default: bool) -> Self:
        """The body for the provider."""
        return cls(
            name=provider.provider_name(),
            default_model=provider.default_model,
            dimension=provider.dimension(),
            is_default=is_default,
        )


class ProvidersResponse(BaseModel):
    """What is configured."""

    llm: list[LLMProviderBody]
    embedding: list[EmbeddingProviderBody]
    generation_enabled: bool

    @classmethod
    def of(cls, llm: LLMProviderRegistry, embedding: EmbeddingProviderRegistry) -> Self:
        """The body for what is registered."""
        default = embedding.get_default()
        providers = [embedding.get(name) for name in embedding.list_providers()]
        writers = [LLMProviderBody.of(info) for info in llm.infos()]
        return cls(
            llm=writers,
            embedding=[EmbeddingProviderBody.of(p, is_default=p is default) for p in providers],
            generation_enabled=bool(writers),
        )


class ModelsResponse(BaseModel):
    """What a vendor offers to the key that is configured."""

    provider: str
    default_model: str = Field(description="Asked when a request names none.")
    default_is_offered: bool = Field(description="Whether it is in the list.")
    models: list[str] = Field(description="In the vendor's order.")


class RootResponse(BaseModel):
    """What this server is and what it can be asked."""

    name: str
    version: str
    documentation: str
    endpoints: dict[str, str]
