"""``model`` in OpenAI's words: a preset of ours and, after a slash, a collection.

Bodies of ``/v1/models``: https://platform.openai.com/docs/api-reference/models.

Which collection a model's name means, and which models there are.

``/v1/models``: what the ``model`` of a question may be.
"""

from dataclasses import dataclass
from typing import Literal, Self

from fastapi import APIRouter
from pydantic import BaseModel, Field

from vectorforge.api.dependencies import ApplicationDep, Tenant
from vectorforge.api.openai.errors import openai_problems
from vectorforge.api.querying import find_requested_collection, requested_collection
from vectorforge.api.schemas import MAX_NAME_CHARS
from vectorforge.bootstrap import Application, TenantServices
from vectorforge.errors import AnsweringModelNotFoundError, NotFoundError
from vectorforge.pipeline.presets import DEFAULT_COLLECTION, DOCRAG, RAG_QUERY, VECTORFORGE, Preset
from vectorforge.retriever.base import CollectionChoice
from vectorforge.types import Collection

ASKABLE = {preset.name: preset for preset in (VECTORFORGE, RAG_QUERY, DOCRAG)}
"""Presets that a model's name may begin with; profiles need a number and have a door of their own."""


@dataclass(frozen=True, slots=True)
class RequestedModel:
    """What a model's name asks for."""

    name: str
    """As it was asked for, to be said again in the answer."""
    preset: Preset
    collection: str | None
    """Name or id; None: the default collection."""

    @classmethod
    def parse(cls, name: str) -> "RequestedModel":
        """``vectorforge``, ``vectorforge/handbook``, ``docrag/handbook`` and so on.

        Raises:
            AnsweringModelNotFoundError: It begins with no preset, or no collection can
                have the name that follows.
        """
        prefix, slash, collection = name.partition("/")
        preset = ASKABLE.get(prefix)
        if preset is None or (slash and not collection) or len(collection) > MAX_NAME_CHARS:
            raise AnsweringModelNotFoundError
        return cls(name, preset, collection or None)


def model_name(preset: str, collection: str | None = None) -> str:
    """The name of the model that answers from this collection."""
    return f"{preset}/{collection}" if collection else preset


class ModelBody(BaseModel):
    """A preset that answers from a collection."""

    id: str = Field(description="What `model` of a question says.")
    object: Literal["model"] = "model"
    created: int = Field(description="When the collection was made; Unix time in seconds.")
    owned_by: Literal["vectorforge"] = "vectorforge"

    @classmethod
    def of(cls, name: str, collection: Collection) -> Self:
        """The body of the model of this name."""
        made = collection.created_at
        return cls(id=name, created=int(made.timestamp()) if made else 0)


class ModelList(BaseModel):
    """Every model of the tenant."""

    object: Literal["list"] = "list"
    data: list[ModelBody]


async def find_answering_collection(
    application: Application, tenant: TenantServices, asked: RequestedModel
) -> Collection:
    """The collection that the model answers from.

    Raises:
        AnsweringModelNotFoundError: The tenant has none of this name.
        NotFoundError: None is named, and there is no default one; the text says how to make it.
    """
    if asked.collection is None and asked.preset is DOCRAG:
        own = await tenant.collections.find_by_name(DEFAULT_COLLECTION)
        return own or await find_requested_collection(application, tenant, None)
    try:
        return await find_requested_collection(application, tenant, asked.collection)
    except NotFoundError as exc:
        if asked.collection is None:
            raise
        raise AnsweringModelNotFoundError from exc


def answering_collection(application: Application, asked: RequestedModel) -> CollectionChoice:
    """Return the collection that the model answers from, with the errors of ``find_answering_collection``."""
    if asked.collection is not None:
        return CollectionChoice((asked.collection,), AnsweringModelNotFoundError())
    return requested_collection(
        application, None, preferred=DEFAULT_COLLECTION if asked.preset is DOCRAG else None
    )


async def list_models(tenant: TenantServices) -> list[ModelBody]:
    """Return every model that needs nothing but a query: each preset with each collection, once.

    A preset alone is an alias of its default collection and is not listed; neither are collections whose
    queries must name a profile.
    """
    collections = [c for c in await tenant.collections.list() if not c.by_profile]
    return [
        ModelBody.of(model_name(preset, collection.name), collection)
        for preset in ASKABLE
        for collection in collections
    ]


router = APIRouter(prefix="/v1/models", tags=["openai"])


@router.get("", responses=openai_problems())
async def list_answering_models(tenant: Tenant) -> ModelList:
    """Presets and collections that can be asked."""
    return ModelList(data=await list_models(tenant))


@router.get("/{model:path}", responses=openai_problems(404))
async def show_answering_model(model: str, application: ApplicationDep, tenant: Tenant) -> ModelBody:
    """One of them; its name has a slash, which need not be encoded."""
    asked = RequestedModel.parse(model)
    return ModelBody.of(asked.name, await find_answering_collection(application, tenant, asked))
