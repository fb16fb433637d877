"""What all query doors do with a request: check it, start it, and answer it whole or as a stream."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from fastapi import Request, Response

from vectorforge.api.dependencies import check_at_most, check_provider
from vectorforge.api.middleware.limits import LAMBDA_MARGIN_S, invocation_time_s
from vectorforge.api.native.query_bodies import DryRunResponse
from vectorforge.api.request_state import RequestState
from vectorforge.api.streaming.answer_buffer import AnswerBuffer
from vectorforge.api.streaming.client_stream import cancelled_on_disconnect
from vectorforge.api.streaming.sse import EventEncoder
from vectorforge.api.streaming.stream import (
    OpenedQuery,
    QueryEventEncoder,
    QueryEventResponse,
    ResumableQueryResponse,
)
from vectorforge.bootstrap import Application, TenantServices
from vectorforge.deadline import Deadline
from vectorforge.errors import DeadlineExceededError, NotFoundError
from vectorforge.pipeline.stopping import StopSignal
from vectorforge.pipeline.types import QueryConfig, QueryResult
from vectorforge.retriever.base import QueryLookup
from vectorforge.types import Collection
from vectorforge.vectorstore.filters.parse import parse


async def find_requested_collection(
    application: Application, tenant: TenantServices, asked: str | None
) -> Collection:
    """The collection a request names, else the tenant's default one.

    Raises:
        NotFoundError: There is none; for the default one the text says how to fill it.
        DeadlineExceededError: The database did not answer in the time of a question.
    """
    name = application.config.query.default_collection
    async with query_time_limit(application):
        if asked is not None:
            return await tenant.find_collection(asked)
        collection = await tenant.collections.find_by_name(name)
    if collection is None:
        raise _no_default_collection(name)
    return collection


async def look_up_query(
    application: Application, tenant: TenantServices, asked: str | None, query: str, config: QueryConfig
) -> QueryLookup:
    """``find_requested_collection``, and in the same statement what is kept of the question.

    Raises:
        NotFoundError, DeadlineExceededError: As ``find_requested_collection``.
    """
    name = application.config.query.default_collection
    try:
        async with query_time_limit(application):
            return await tenant.look_up_query(name if asked is None else asked, query, config)
    except NotFoundError:
        if asked is None:
            raise _no_default_collection(name) from None
        raise


@asynccontextmanager
async def query_time_limit(application: Application, deadline: Deadline | None = None) -> AsyncIterator[None]:
    """Limits what comes before a question begins, whatever limits a connection and a statement have.

    Args:
        application: Has the settings.
        deadline: Of the question; None: its whole time from now on.

    Raises:
        DeadlineExceededError: The time is over.
    """
    time_s = application.config.query.query_timeout_s
    try:
        async with asyncio.timeout(time_s if deadline is None else deadline.clamp(time_s)):
            yield
    except TimeoutError as exc:
        raise DeadlineExceededError from exc


def _no_default_collection(name: str) -> NotFoundError:
    return NotFoundError(
        f"The default collection {name!r} does not exist yet. Create it with POST /v1/collections and "
        "add documents with POST /v1/collections/{id}/documents, or run `vectorforge ingest <files>`."
    )


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
    """The setting's time from the request's arrival, on Lambda cut to what the invocation has left."""
    at = RequestState.of(request.scope).arrived_at + application.config.query.query_timeout_s
    left_s = invocation_time_s(request.scope)
    if left_s is not None:
        at = min(at, Deadline.after(left_s - LAMBDA_MARGIN_S).at)
    return Deadline(at)


def is_extractive(result: QueryResult) -> bool:
    """Whether the answer quotes the documents and was written by no model."""
    return result.llm_response is not None and bool(result.llm_response.metadata.get("extractive"))


async def answer_whole(
    request: Request,
    application: Application,
    tenant: TenantServices,
    query: str,
    asked: Collection | QueryLookup,
    config: QueryConfig,
) -> QueryResult:
    """The complete answer; the model is stopped when the client goes away.

    ``Cache-Control: no-cache`` has it made anew.

    Raises:
        ClientDisconnect: It has gone.
        VectorForgeError: The query failed.
    """
    deadline = deadline_of(request, application)
    async with cancelled_on_disconnect(request.receive):
        async with query_time_limit(application, deadline):
            await tenant.limits.admit_query(query, config, is_stream=False)
        return await tenant.query_service.query(
            query,
            _collection_of(asked).id,
            _with_cache_control(request, config),
            request_id=RequestState.of(request.scope).query_id,
            deadline=deadline,
            **_already_known(asked),
        )


async def answer_dry(
    request: Request,
    application: Application,
    tenant: TenantServices,
    query: str,
    asked: Collection | QueryLookup,
    config: QueryConfig,
) -> DryRunResponse:
    """The request that a model would get, which is not sent.

    Raises:
        VectorForgeError: The search failed, or the request cannot be known without asking a model.
    """
    deadline = deadline_of(request, application)
    async with query_time_limit(application, deadline):
        await tenant.limits.admit()
    return DryRunResponse.of(
        await tenant.query_service.dry_run(query, _collection_of(asked).id, config, deadline=deadline)
    )


async def answer_as_stream(
    request: Request,
    application: Application,
    tenant: TenantServices,
    query: str,
    asked: Collection | QueryLookup,
    config: QueryConfig,
    *,
    with_sources: bool = True,
    encoder: QueryEventEncoder | None = None,
    resumable: bool = False,
) -> Response:
    """Return the answer as server-sent events, once the search is done.

    ``Cache-Control: no-cache`` has it made anew. ``encoder`` makes another format than our own of it;
    a ``resumable`` answer has ours, and is kept for a client that comes back (docs/streams.md); so is any
    under an ``Idempotency-Key``.

    Raises:
        VectorForgeError: The query failed before its answer began.
    """
    state = RequestState.of(request.scope)
    kept = state.stored_response
    stop = StopSignal() if kept is None else kept.stop
    deadline = deadline_of(request, application)
    async with query_time_limit(application, deadline):
        await tenant.limits.admit_query(query, config, is_stream=True)
    events = tenant.query_service.query_events(
        query,
        _collection_of(asked).id,
        _with_cache_control(request, config),
        request_id=state.query_id,
        deadline=deadline,
        stop=stop,
        **_already_known(asked),
    )
    encoder = encoder or EventEncoder(
        request_id=state.request_id,
        problem_prefix=state.problem_prefix,
        with_sources=with_sources,
    )
    ping_interval_s: float = request.app.state.ping_interval_s
    if kept is not None:
        return await kept.stream(events, encoder, resumable=resumable, ping_interval_s=ping_interval_s)
    if not resumable:
        opened = await OpenedQuery.open(events)
        return QueryEventResponse(opened, encoder, ping_interval_s=ping_interval_s, deadline=deadline)
    settings = application.config.streams
    buffer = AnswerBuffer(
        tenant.answer_streams,
        state.query_id,
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
        return QueryEventResponse(opened, encoder, ping_interval_s=ping_interval_s, deadline=deadline)
    return ResumableQueryResponse(opened, encoder, buffer, ping_interval_s=ping_interval_s)


def _collection_of(asked: Collection | QueryLookup) -> Collection:
    return asked.collection if isinstance(asked, QueryLookup) else asked


def _already_known(asked: Collection | QueryLookup) -> dict[str, Any]:
    """What need not be read again."""
    return {"known": asked} if isinstance(asked, QueryLookup) else {"data_version": asked.data_version}


def _with_cache_control(request: Request, config: QueryConfig) -> QueryConfig:
    """Heed ``no-cache`` (RFC 9111, section 5.2.1.4): the answer is made anew, and kept."""
    directives = request.headers.get("cache-control", "").lower().split(",")
    if "no-cache" in (directive.strip() for directive in directives):
        return replace(config, use_cache=False)
    return config
