"""Which collection a model's name means, and which models there are."""

from contextlib import suppress

from vectorforge.api.openai.model_names import ASKABLE, AskedModel, model_name
from vectorforge.api.querying import find_asked_collection, look_up_question, time_of_a_question
from vectorforge.api.schemas.openai_models import ModelBody
from vectorforge.bootstrap import Application, TenantServices
from vectorforge.errors import AnsweringModelNotFoundError, NotFoundError
from vectorforge.pipeline.docrag import DEFAULT_COLLECTION
from vectorforge.pipeline.presets import DOCRAG
from vectorforge.pipeline.types import QueryConfig
from vectorforge.retriever.base import KnownQuestion
from vectorforge.types import Collection


async def find_answering_collection(
    application: Application, tenant: TenantServices, asked: AskedModel
) -> Collection:
    """The collection that the model answers from.

    Raises:
        AnsweringModelNotFoundError: The tenant has none of this name.
        NotFoundError: None is named, and there is no default one; the text says how to make it.
    """
    if asked.collection is None and asked.preset is DOCRAG:
        own = await tenant.collections.find_by_name(DEFAULT_COLLECTION)
        return own or await find_asked_collection(application, tenant, None)
    try:
        return await find_asked_collection(application, tenant, asked.collection)
    except NotFoundError as exc:
        if asked.collection is None:
            raise
        raise AnsweringModelNotFoundError from exc


async def look_up_answering_collection(
    application: Application, tenant: TenantServices, asked: AskedModel, question: str, config: QueryConfig
) -> KnownQuestion:
    """``find_answering_collection``, and in the same statement what is kept of the question.

    Raises:
        As ``find_answering_collection``.
    """
    if asked.collection is None and asked.preset is DOCRAG:
        with suppress(NotFoundError):
            async with time_of_a_question(application):
                return await tenant.look_up_question(DEFAULT_COLLECTION, question, config)
    try:
        return await look_up_question(application, tenant, asked.collection, question, config)
    except NotFoundError as exc:
        if asked.collection is None:
            raise
        raise AnsweringModelNotFoundError from exc


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
