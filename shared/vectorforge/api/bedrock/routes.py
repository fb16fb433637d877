"""``/bedrock``: Retrieve, RetrieveAndGenerate and RetrieveAndGenerateStream of Bedrock's Knowledge Bases.

A knowledge base is a collection, and a session a stored conversation. docs/use/bedrock-knowledge-bases.md
"""

import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Path, Request, Response

from vectorforge.api.bedrock.answers import (
    MEDIA_TYPE,
    AnswerEventEncoder,
    Structure,
    reference_to,
    whole_answer,
)
from vectorforge.api.bedrock.schemas import (
    MAX_ID_CHARS,
    KnowledgeBaseConfiguration,
    RetrievalConfiguration,
    RetrieveAndGenerateRequest,
    RetrieveRequest,
    native_filter,
)
from vectorforge.api.dependencies import (
    AdmittedTenant,
    ApplicationDep,
    Tenant,
    check_at_most,
    deadline_of,
    principal_of,
)
from vectorforge.api.error_schemas import aws_problems
from vectorforge.api.querying import SurfaceQuery, check_config, find_collection
from vectorforge.api.request_state import RequestState
from vectorforge.bootstrap import Application, TenantServices
from vectorforge.errors import InvalidInputError
from vectorforge.pipeline.presets import BEDROCK
from vectorforge.retriever.base import CollectionChoice
from vectorforge.types import SearchMode
from vectorforge.vectorstore.filters.parse import parse

router = APIRouter(prefix="/bedrock", tags=["bedrock"])

_SEARCH = "retrievalConfiguration.vectorSearchConfiguration"
_SETTINGS = "retrieveAndGenerateConfiguration.knowledgeBaseConfiguration"
_GENERATION = f"{_SETTINGS}.generationConfiguration"
_MODES = {"HYBRID": SearchMode.HYBRID, "SEMANTIC": SearchMode.DENSE, None: None}
_KNOWLEDGE_BASE = re.compile(r"arn:[^/]*:knowledge-base/(.+)", re.DOTALL)
_MODEL = re.compile(r"arn:[^/]*:(?:foundation-model|inference-profile)/(.+)", re.DOTALL)


def _responses(description: str, media_type: str = "application/json") -> dict[int | str, dict[str, Any]]:
    found = {"description": f"{description} of the service model.", "content": {media_type: {}}}
    return {200: found, **aws_problems(404, 409, 413, 415, 429, 502, 504)}


@router.post(
    "/knowledgebases/{knowledge_base_id:path}/retrieve",
    response_model=None,
    responses=_responses("A `RetrieveResponse`"),
)
async def retrieve(
    request: Request,
    knowledge_base_id: Annotated[str, Path(max_length=MAX_ID_CHARS, description="Name or id, or an ARN.")],
    body: RetrieveRequest,
    application: ApplicationDep,
    tenant: AdmittedTenant,
) -> Structure:
    """Return the chunks of a collection nearest to a query, best first."""
    config = BEDROCK.config(**_search_options(body.retrieval_configuration, _SEARCH))
    check_at_most(f"{_SEARCH}.numberOfResults", config.top_k, application.config.query.max_top_k)
    parse(config.filters)  # before the embedding is paid for
    collection = await find_collection(application, tenant, _collection_of(knowledge_base_id))
    retrieved = await tenant.retriever.retrieve(
        body.retrieval_query.text,
        collection.id,
        config.top_k,
        config.filters,
        config.min_score,
        deadline=deadline_of(request),
        search_mode=config.search_mode,
        allow_lexical_fallback=application.config.query.degraded_answers,
    )
    results = [
        {
            **reference_to(found, found.chunk.locations),
            "score": found.score,
            "documentId": str(found.chunk.document_id),
        }
        for found in retrieved
    ]
    return {"retrievalResults": results}


@router.post(
    "/retrieveAndGenerate", response_model=None, responses=_responses("A `RetrieveAndGenerateResponse`")
)
async def retrieve_and_generate(
    request: Request, body: RetrieveAndGenerateRequest, application: ApplicationDep, tenant: Tenant
) -> Response | Structure:
    """Answer a query from a collection, with cited parts."""
    async with _open_query(request, body, application, tenant) as (query, session_id):
        return await query.answer(lambda result: whole_answer(result, session_id), stream=False)


@router.post(
    "/retrieveAndGenerateStream",
    response_model=None,
    responses=_responses("A `RetrieveAndGenerateStreamResponseOutput`", MEDIA_TYPE),
)
async def retrieve_and_generate_stream(
    request: Request, body: RetrieveAndGenerateRequest, application: ApplicationDep, tenant: Tenant
) -> Response:
    """Answer a query from a collection, with cited parts, as events of an AWS event stream."""
    async with _open_query(request, body, application, tenant) as (query, session_id):
        encoder = AnswerEventEncoder(session_id, request_id=RequestState.of(request.scope).request_id)
        return await query.stream(encoder)


@asynccontextmanager
async def _open_query(
    request: Request, body: RetrieveAndGenerateRequest, application: Application, tenant: TenantServices
) -> AsyncIterator[tuple[SurfaceQuery, str]]:
    """Yield a request's query and the id of its session; a new session is deleted if the block raises."""
    query = _read_query(request, body, application, tenant)
    if body.session_id is not None:
        session = await _find_session(tenant, body.session_id)
    else:
        session = (await tenant.conversations.start_session(principal_of(request).credential)).id
    try:
        yield replace(query, config=replace(query.config, conversation_id=session)), str(session)
    except Exception:
        if body.session_id is None:  # it is empty
            await tenant.conversations.delete(session)
        raise


def _read_query(
    request: Request, body: RetrieveAndGenerateRequest, application: Application, tenant: TenantServices
) -> SurfaceQuery:
    settings = body.retrieve_and_generate_configuration.knowledge_base_configuration
    config = BEDROCK.config(
        tenant.choose_variant(None),
        **_search_options(settings.retrieval_configuration, f"{_SETTINGS}.{_SEARCH}"),
        **_generation_options(settings, body.input.text),
        **_model_options(settings.model_arn, application.llm_registry.list_providers()),
    )
    limited = {
        "top_k": f"{_SETTINGS}.{_SEARCH}.numberOfResults",
        "max_tokens": f"{_GENERATION}.inferenceConfig.textInferenceConfig.maxTokens",
    }
    check_config(application, config, limited)
    return SurfaceQuery(request, body.input.text, _collection_of(settings.knowledge_base_id), config)


def _collection_of(knowledge_base_id: str) -> CollectionChoice:
    arn = _KNOWLEDGE_BASE.fullmatch(knowledge_base_id)
    return CollectionChoice((arn[1] if arn else knowledge_base_id,))


def _search_options(settings: RetrievalConfiguration, field: str) -> dict[str, Any]:
    """Return the search settings as fields of ``QueryConfig``; ``field`` names them in errors."""
    search = settings.vector_search_configuration
    options = {
        "top_k": search.number_of_results,
        "search_mode": _MODES[search.override_search_type],
        "filters": None if search.filter is None else native_filter(search.filter, f"{field}.filter"),
    }
    return {name: value for name, value in options.items() if value is not None}


def _generation_options(settings: KnowledgeBaseConfiguration, query: str) -> dict[str, Any]:
    generation = settings.generation_configuration
    options = generation.inference_config.text_inference_config.model_dump(exclude_none=True)
    if stop := options.pop("stop_sequences", None):
        options["stop"] = tuple(stop)
    if (template := generation.prompt_template.text_prompt_template) is not None:
        options["system_prompt"] = _system_prompt(template, query)
    if settings.orchestration_configuration.query_transformation_configuration is not None:
        options["effort"] = "low"
    return options


def _system_prompt(template: str, query: str) -> str:
    """Return Bedrock's prompt template as one of ours, whose literal braces are doubled."""
    field = f"{_GENERATION}.promptTemplate.textPromptTemplate"
    if "$search_results$" not in template:
        raise InvalidInputError(f"{field} must contain $search_results$.", field=field)
    if "$current_time$" in template:
        raise InvalidInputError(f"{field}: $current_time$ is not supported.", field=field)
    values = {"search_results": "{context}", "query": _doubled(query), "output_format_instructions": ""}
    names = "|".join(values)
    return re.sub(rf"\$({names})\$", lambda found: values[found[1]], _doubled(template))


def _doubled(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")


def _model_options(model_arn: str, providers: Sequence[str]) -> dict[str, str]:
    """Return the provider and model of ``modelArn``; empty for the default."""
    provider, _, model = model_arn.partition("/")
    if provider in providers:
        return {"llm_provider": provider, **({"llm_model": model} if model else {})}
    if "bedrock" not in providers:
        return {}
    arn = _MODEL.fullmatch(model_arn)
    return {"llm_provider": "bedrock", "llm_model": arn[1] if arn else model_arn}


async def _find_session(tenant: TenantServices, session_id: str) -> UUID:
    try:
        found = await tenant.conversations.find_by_id(UUID(session_id))
    except ValueError:
        found = None
    if found is None:
        raise InvalidInputError(
            "sessionId: this session does not exist. Sessions end 24 hours after their last query; send the "
            "query without sessionId to start one.",
            field="sessionId",
        )
    return found.id
