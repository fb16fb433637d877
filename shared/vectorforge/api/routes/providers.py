"""``/v1/providers``: what is configured, and which models the vendors offer."""

from typing import Annotated

from fastapi import APIRouter, Path

from vectorforge.api.dependencies import ApplicationDep, Tenant
from vectorforge.api.responses import problems
from vectorforge.api.schemas.server import ModelsResponse, ProvidersResponse
from vectorforge.errors import NotFoundError

router = APIRouter(prefix="/v1", tags=["server"])


@router.get("/providers", responses=problems())
async def list_providers(application: ApplicationDep, tenant: Tenant) -> ProvidersResponse:
    """The configured language and embedding models. Nothing is asked of them, and no secret is shown."""
    return ProvidersResponse.of(application.llm_registry, application.embedding_registry)


@router.get("/providers/{name}/models", responses=problems(404, 429, 502, 504))
async def list_models(
    name: Annotated[str, Path(max_length=100, description="Of a provider that writes answers.")],
    application: ApplicationDep,
    tenant: Tenant,
) -> ModelsResponse:
    """The models that a vendor offers to the configured key. The vendor is asked once for each request."""
    registry = application.llm_registry
    if name not in registry.list_providers():
        there = ", ".join(registry.list_providers()) or "none"
        raise NotFoundError(f"No provider of this name writes answers. There are: {there}.")
    provider = registry.get(name)
    models = await provider.list_models()
    return ModelsResponse(
        provider=name,
        default_model=provider.default_model,
        default_is_offered=provider.default_model in models,
        models=models,
    )
