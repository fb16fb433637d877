"""``/v1/models``: what the ``model`` of a question may be."""

from fastapi import APIRouter

from vectorforge.api.dependencies import ApplicationDep, Tenant
from vectorforge.api.openai.error_responses import openai_problems
from vectorforge.api.openai.model_names import AskedModel
from vectorforge.api.openai.models import find_answering_collection, list_models
from vectorforge.api.schemas.openai_models import ModelBody, ModelList

router = APIRouter(prefix="/v1/models", tags=["openai"])


@router.get("", responses=openai_problems())
async def list_answering_models(tenant: Tenant) -> ModelList:
    """Presets and collections that can be asked."""
    return ModelList(data=await list_models(tenant))


@router.get("/{model:path}", responses=openai_problems(404))
async def show_answering_model(model: str, application: ApplicationDep, tenant: Tenant) -> ModelBody:
    """One of them; its name has a slash, which need not be encoded."""
    asked = AskedModel.parse(model)
    return ModelBody.of(asked.name, await find_answering_collection(application, tenant, asked))
