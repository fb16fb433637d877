"""Bodies of ``/``, ``/health`` and ``/v1/providers``."""

from typing import Literal

from pydantic import BaseModel


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


class EmbeddingProviderBody(BaseModel):
    """A provider that turns text into vectors."""

    name: str
    default_model: str
    dimension: int | None
    is_default: bool


class ProvidersResponse(BaseModel):
    """What is configured."""

    llm: list[LLMProviderBody]
    embedding: list[EmbeddingProviderBody]
    generation_enabled: bool


class RootResponse(BaseModel):
    """What this server is and what it can be asked."""

    name: str
    version: str
    documentation: str
    endpoints: dict[str, str]
