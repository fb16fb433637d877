"""Which collection a model's name means, and which models there are."""

from vectorforge.api.openai.model_names import AskedModel
from vectorforge.api.querying import find_asked_collection
from vectorforge.bootstrap import Application, TenantServices
from vectorforge.errors import AnsweringModelNotFoundError, NotFoundError
from vectorforge.pipeline.docrag import DEFAULT_COLLECTION
from vectorforge.pipeline.presets import DOCRAG
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
