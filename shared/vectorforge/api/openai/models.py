"""Which collection a model's name means, and which models there are."""

from collections.abc import Iterator, Sequence
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


async def list_models(application: Application, tenant: TenantServices) -> list[ModelBody]:
    """The models that answer when they are given nothing but a question: each preset with each collection.

    A preset alone stands for its default collection. Collections in which every question has to name a
    profile are left out.
    """
    collections = [c for c in await tenant.collections.list() if not c.by_profile]
    default = application.config.query.default_collection
    return [model for preset in ASKABLE for model in _models_of(preset, collections, default)]


def _models_of(preset: str, collections: Sequence[Collection], default: str) -> Iterator[ModelBody]:
    names = (DEFAULT_COLLECTION, default) if preset == DOCRAG.name else (default,)
    by_name = {collection.name: collection for collection in collections}
    if own := next((by_name[name] for name in names if name in by_name), None):
        yield ModelBody.of(model_name(preset), own)
    for collection in collections:
        yield ModelBody.of(model_name(preset, collection.name), collection)
