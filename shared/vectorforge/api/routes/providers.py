"""``/v1/providers``: what is configured."""

from fastapi import APIRouter

from vectorforge.api.dependencies import ApplicationDep, Tenant
from vectorforge.api.responses import problems
from vectorforge.api.schemas.server import EmbeddingProviderBody, LLMProviderBody, ProvidersResponse
from vectorforge.bootstrap import Application
from vectorforge.llm.types import ProviderCapability

router = APIRouter(prefix="/v1", tags=["server"])


@router.get("/providers", responses=problems())
async def list_providers(application: ApplicationDep, tenant: Tenant) -> ProvidersResponse:
    """The configured language and embedding models. Nothing is asked of them, and no secret is shown."""
    llm = _llm_providers(application)
    return ProvidersResponse(
        llm=llm, embedding=_embedding_providers(application), generation_enabled=bool(llm)
    )


def _llm_providers(application: Application) -> list[LLMProviderBody]:
    return [
        LLMProviderBody(
            name=info.name,
            default_model=info.default_model,
            capabilities=sorted(info.capabilities),
            is_default=info.is_default,
            extractive=ProviderCapability.EXTRACTIVE in info.capabilities,
        )
        for info in application.llm_registry.infos()
    ]


def _embedding_providers(application: Application) -> list[EmbeddingProviderBody]:
    registry = application.embedding_registry
    default = registry.get_default().provider_name()
    providers = [registry.get(name) for name in registry.list_providers()]
    return [
        EmbeddingProviderBody(
            name=provider.provider_name(),
            default_model=provider.default_model,
            dimension=provider.dimension(),
            is_default=provider.provider_name() == default,
        )
        for provider in providers
    ]
