"""What all query doors do with a request: check it, start it, and answer it whole or as a stream."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace

from fastapi import Request, Response

from vectorforge.api.answer_buffer import AnswerBuffer
from vectorforge.api.dependencies import check_at_most, check_provider
from vectorforge.api.disconnect import cancelled_on_disconnect
from vectorforge.api.schemas.dry_run import DryRunResponse
from vectorforge.api.sse import EventEncoder
from vectorforge.api.stream import (
    OpenedQuery,
    QueryEventEncoder,
    QueryEventResponse,
    ResumableQueryResponse,
)
from vectorforge.api.time_limit import LAMBDA_MARGIN_S, invocation_time_s
from vectorforge.bootstrap import Application, TenantServices
from vectorforge.deadline import Deadline
from vectorforge.errors import NotFoundError
from vectorforge.pipeline.stopping import StopSignal
from vectorforge.pipeline.types import QueryConfig, QueryResult
from vectorforge.types import Collection
from vectorforge.vectorstore.filters import parse


async def find_asked_collection(
    application: Application, tenant: TenantServices, asked: str | None
) -> Collection:
    """The collection a request names, else the tenant's default one.

    Raises:
        NotFoundError: There is none; for the default one the text says how to fill it.
    """
    if asked is not None:
        return await tenant.find_collection(asked)
    name = application.config.query.default_collection
    collection = await tenant.collections.find_by_name(name)
    if collection is None:
        raise NotFoundError(
            f"The default collection {name!r} does not exist yet. Create it with POST /v1/collections and "
            "add documents with POST /v1/collections/{id}/documents, or run `vectorforge ingest <files>`."
        )
    return collection


def check_config(application: Application, config: QueryConfig, names: Mapping[str, str]) -> None:
    """Hold a request to the settings before anything is paid for.

    Args:
        application: Has the settings and the providers.
        config: What the request asks for.
        names: Field of ``QueryConfig`` -> the door's name for it.

    Raises:
        InvalidInputError: A value is over its limit, or a provider is unknown.
        FilterError: The filters cannot be understood.
    """
    settings = application.config.query
    check_at_most(names.get("top_k", "top_k"), config.top_k, settings.max_top_k)
    check_at_most(names.get("max_tokens", "max_tokens"), config.max_tokens, settings.max_answer_tokens)
    if config.filters is not None:
        parse(config.filters)
    llm_field = names.get("llm_provider", "llm_provider")
    check_provider(llm_field, config.llm_provider, application.llm_registry.list_providers())
    check_provider(
        "embedding_provider", config.embedding_provider, application.embedding_registry.list_providers()
    )


def deadline_of(request: Request, application: Application) -> Deadline:
    """The setting's time, on Lambda cut to what the invocation has left."""
    seconds = application.config.query.query_timeout_s
    left_s = invocation_time_s(request.scope)
    if left_s is not None:
        seconds = min(seconds, left_s - LAMBDA_MARGIN_S)
    return Deadline.after(seconds)


def is_extractive(result: QueryResult) -> bool:
    """Whether the answer quotes the documents and was written by no model."""
    return result.llm_response is not None and bool(result.llm_response.metadata.get("extractive"))


async def answer_whole(
    request: Request,
    application: Application,
    tenant: TenantServices,
    query: str,
    collection: Collection,
    config: QueryConfig,
) -> QueryResult:
    """The complete answer; the model is stopped when the client goes away.

    ``Cache-Control: no-cache`` has it made anew.

    Raises:
        ClientDisconnect: It has gone.
        VectorForgeError: The query failed.
    """
    async with cancelled_on_disconnect(request.receive):
        return await tenant.query_service.query(
            query,
            collection.id,
            _with_cache_control(request, config),
            request_id=request.scope["state"]["query_id"],
            deadline=deadline_of(request, application),
            data_version=collection.data_version,
        )


async def answer_dry(
    request: Request,
    application: Application,
    tenant: TenantServices,
    query: str,
    collection: Collection,
    config: QueryConfig,
) -> DryRunResponse:
    """The request that a model would get, which is not sent.

    Raises:
        VectorForgeError: The search failed, or the request cannot be known without asking a model.
    """
    deadline = deadline_of(request, application)
    return DryRunResponse.of(
        await tenant.query_service.dry_run(query, collection.id, config, deadline=deadline)
    )


async def answer_as_stream(
    request: Request,
    application: Application,
    tenant: TenantServices,
    query: str,
    collection: Collection,
    config: QueryConfig,
    *,
    with_sources: bool = True,
    encoder: QueryEventEncoder | None = None,
    resumable: bool = False,
) -> Response:
    """The answer as server-sent events; returns when the search is done.

    ``Cache-Control: no-cache`` has it made anew. ``encoder`` makes another format than our own of it;
    a ``resumable`` answer has ours, and is kept for a client that comes back (docs/streams.md).

    Raises:
        VectorForgeError: The query failed before its answer began.
    """
    state = request.scope["state"]
    stop, deadline = StopSignal(), deadline_of(request, application)
    events = tenant.query_service.query_events(
        query,
        collection.id,
        _with_cache_control(request, config),
        request_id=state["query_id"],
        deadline=deadline,
        data_version=collection.data_version,
        stop=stop,
    )
    encoder = encoder or EventEncoder(
        request_id=state["request_id"],
        problem_prefix=state.get("problem_prefix", ""),
        with_sources=with_sources,
    )
    ping_interval_s: float = request.app.state.ping_interval_s
    if not resumable:
        return QueryEventResponse(await OpenedQuery.open(events), encoder, ping_interval_s=ping_interval_s)
    settings = application.config.streams
    buffer = AnswerBuffer(
        tenant.answer_streams,
        state["query_id"],
        stop,
        deadline=deadline,
        max_bytes=settings.stream_buffer_bytes,
        grace_s=settings.resume_grace_s,
    )
    opening = asyncio.create_task(buffer.open())  # beside the search, whose events stay in this task
    try:
        opened = await OpenedQuery.open(events)
        is_kept = await opening
    finally:
        opening.cancel()
        await asyncio.wait({opening})
    if not is_kept:
        return QueryEventResponse(opened, encoder, ping_interval_s=ping_interval_s)
    return ResumableQueryResponse(opened, encoder, buffer, ping_interval_s=ping_interval_s)


def _with_cache_control(request: Request, config: QueryConfig) -> QueryConfig:
    """Heed ``no-cache`` (RFC 9111, section 5.2.1.4): the answer is made anew, and kept."""
    directives = request.headers.get("cache-control", "").lower().split(",")
    if "no-cache" in (directive.strip() for directive in directives):
        return replace(config, use_cache=False)
    return config
