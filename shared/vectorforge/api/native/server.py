"""Server routes: the description at ``/`` or its web page, ``/health`` and ``/v1/providers``."""

from typing import Annotated, Any, Literal, Self

from fastapi import APIRouter, Path, Query, Request, Response
from pydantic import BaseModel, Field

from vectorforge import __version__
from vectorforge.api.dependencies import ApplicationDep, Tenant
from vectorforge.api.error_schemas import problems
from vectorforge.api.native.pages import page_response
from vectorforge.api.request_state import RequestState
from vectorforge.api.schemas import Body
from vectorforge.embedding.registry import EmbeddingProviderRegistry
from vectorforge.errors import AuthenticationError, NotFoundError
from vectorforge.health import HealthChecker
from vectorforge.llm.registry import LLMProviderRegistry
from vectorforge.llm.types import ProviderCapability


class Component(Body):
    """Result of the probe of one component."""

    name: str
    healthy: bool
    detail: str
    latency_ms: float


class HealthResponse(BaseModel):
    """Health of the server; degraded when any probed part is unhealthy."""

    status: Literal["ok", "degraded"]
    version: str
    components: list[Component]


class LLMProviderBody(Body):
    """A provider that writes answers."""

    name: str
    default_model: str
    capabilities: list[str]
    is_default: bool
    extractive: bool

    @classmethod
    def of(cls, source: Any, /, **given: Any) -> Self:
        """Return the body of a ``ProviderInfo``."""
        extractive = ProviderCapability.EXTRACTIVE in source.capabilities
        return super().of(source, capabilities=sorted(source.capabilities), extractive=extractive, **given)


class EmbeddingProviderBody(Body):
    """A provider that turns text into vectors."""

    name: str
    default_model: str
    dimension: int | None
    is_default: bool


class ProvidersResponse(BaseModel):
    """Configured providers."""

    llm: list[LLMProviderBody]
    embedding: list[EmbeddingProviderBody]
    generation_enabled: bool

    @classmethod
    def of(cls, llm: LLMProviderRegistry, embedding: EmbeddingProviderRegistry) -> Self:
        """Return the body of the registered providers."""
        default = embedding.get_default()
        providers = [embedding.get(name) for name in embedding.list_providers()]
        writers = [LLMProviderBody.of(info) for info in llm.infos()]
        return cls(
            llm=writers,
            embedding=[
                EmbeddingProviderBody.of(
                    provider, dimension=provider.dimension(), is_default=provider is default
                )
                for provider in providers
            ],
            generation_enabled=bool(writers),
        )


class ModelsResponse(BaseModel):
    """Models that a vendor offers to the configured key."""

    provider: str
    default_model: str = Field(description="Used if a request names no model.")
    default_is_offered: bool = Field(description="True if it is in the list.")
    models: list[str] = Field(description="In the vendor's order.")


class RootResponse(BaseModel):
    """Description of this server and its endpoints."""

    name: str
    version: str
    documentation: str
    endpoints: dict[str, str]


router = APIRouter(tags=["server"])

DATABASE_TIMEOUT_S = 3.0


_RESPONSES: dict[int | str, dict[str, Any]] = {
    status: response for status, response in problems().items() if status in (401, 422, 500)
}
_RESPONSES[503] = {"model": HealthResponse, "description": "The database is not available."}


@router.head("/health", include_in_schema=False)
@router.get("/health", responses=_RESPONSES)
async def health(
    request: Request,
    response: Response,
    application: ApplicationDep,
    deep: Annotated[bool, Query(description="Also ask the providers; needs a credential.")] = False,
) -> HealthResponse:
    """Probe the database; with `deep=1` every provider too, and how transactions are sent."""
    if deep and RequestState.of(request.scope).principal is None:
        raise AuthenticationError(
            "An API key is required for the deep check, because it calls the providers."
        )
    database = HealthChecker(timeout_s=DATABASE_TIMEOUT_S)
    database.register("database", application.database.health)
    probes = await database.check()
    if not probes[0].healthy:
        response.status_code = 503
    if deep:
        probes.append(application.database.transaction_health())
        probes += [probe for probe in await application.health_checker.check() if probe.name != "database"]
    components = [Component.of(probe) for probe in probes]
    healthy = all(component.healthy for component in components)
    return HealthResponse(status="ok" if healthy else "degraded", version=__version__, components=components)


@router.get("/v1/providers", responses=problems())
async def list_providers(application: ApplicationDep, tenant: Tenant) -> ProvidersResponse:
    """List the configured language and embedding models, without calling them and without secrets."""
    return ProvidersResponse.of(application.llm_registry, application.embedding_registry)


@router.get("/v1/providers/{name}/models", responses=problems(404, 429, 502, 504))
async def list_models(
    name: Annotated[str, Path(max_length=100, description="Name of an LLM provider.")],
    application: ApplicationDep,
    tenant: Tenant,
) -> ModelsResponse:
    """List the models that a vendor offers to the configured key; calls the vendor once per request."""
    registry = application.llm_registry
    if name not in registry.list_providers():
        raise NotFoundError(registry.unknown(name))
    provider = registry.get(name)
    models = await provider.list_models()
    return ModelsResponse(
        provider=name,
        default_model=provider.default_model,
        default_is_offered=provider.default_model in models,
        models=models,
    )


ENDPOINTS = {
    "POST /v1/rag/query": "Query the default collection: an answer with citations, whole or streamed.",
    "POST /v1/collections/{id}/query": "Query one collection.",
    "POST /v1/search": "Search passages without an answer.",
    "POST /v1/collections": "Create a collection.",
    "POST /v1/collections/{id}/documents": "Add documents, as files or as JSON.",
    "GET /v1/jobs/{id}": "Progress of an ingestion.",
    "GET /v1/queries": "The query log.",
    "POST /v1/queries/{id}/feedback": "Rate an answer.",
    "GET /v1/stats": "Usage, latency, cost and quality.",
    "GET /v1/providers": "The configured models.",
    "GET /v1/providers/{name}/models": "The models that a vendor offers.",
    "GET /health": "Health check.",
}


@router.head("/", response_model=RootResponse, include_in_schema=False)
@router.get(
    "/",
    response_model=RootResponse,
    responses={
        200: {
            "description": "The description, or for `Accept: text/html` the web page.",
            "content": {"text/html": {}},
        }
    },
)
async def root(request: Request) -> Response | RootResponse:
    """Describe this server."""
    if "text/html" in request.headers.get("accept", ""):
        response = page_response("index.html")
        response.headers["Vary"] = "Accept"
        return response
    return RootResponse(
        name="VectorForge", version=__version__, documentation="/openapi.json", endpoints=ENDPOINTS
    )
