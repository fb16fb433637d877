"""Query handling shared by the API surfaces: check, begin, answer whole or as a stream."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from fastapi import Request, Response

from vectorforge.api.dependencies import check_at_most, check_provider, deadline_of
from vectorforge.api.query_bodies import DryRunResponse
from vectorforge.api.request_state import STORED_RESPONSE_KEY, RequestState
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
from vectorforge.retriever.base import CollectionChoice
from vectorforge.types import Collection
from vectorforge.vectorstore.filters.parse import parse

if TYPE_CHECKING:  # loaded by the first request with a key
    from vectorforge.api.streaming.stored_response import StoredResponse


async def find_requested_collection(
    application: Application, tenant: TenantServices, requested: str | None
) -> Collection:
    """Return the collection that a request names, else the tenant's default one.

    Raises:
        NotFoundError: It does not exist; for the default one the message explains how to create it.
        DeadlineExceededError: The database did not answer within the time limit of a query.
    """
    name = application.config.query.default_collection
    async with query_time_limit(application):
        if requested is not None:
            return await tenant.find_collection(requested)
        collection = await tenant.collections.find_by_name(name)
    if collection is None:
        raise _no_default_collection(name)
    return collection


def requested_collection(
    application: Application, name: str | None, *, preferred: str | None = None
) -> CollectionChoice:
    """Return the collection of a query: the one named, else ``preferred`` if it exists, else the default."""
    if name is not None:
        return CollectionChoice((name,))
    default = application.config.query.default_collection
    names = (default,) if preferred is None else (preferred, default)
    return CollectionChoice(names, _no_default_collection(default))


@asynccontextmanager
async def query_time_limit(application: Application, deadline: Deadline | None = None) -> AsyncIterator[None]:
    """Limit the time of work before a query, in addition to the limits of connections and statements.

    Args:
        application: Settings.
        deadline: Deadline of the query; None for its whole time from now.

    Raises:
        DeadlineExceededError: The time ran out.
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
    """Check a request against the settings before it costs anything.

    Args:
        application: Settings and providers.
        config: Settings of the query.
        names: Field of ``QueryConfig`` -> its name on the API surface.

    Raises:
        InvalidInputError: A value is over its limit, or a provider is unknown.
        FilterError: The filters are malformed.
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


def is_extractive(result: QueryResult) -> bool:
    """Return True if the answer quotes the documents."""
    return result.llm_response is not None and bool(result.llm_response.metadata.get("extractive"))


async def answer_whole(
    request: Request,
    application: Application,
    tenant: TenantServices,
    query: str,
    collection: Collection | CollectionChoice,
    config: QueryConfig,
) -> QueryResult:
    """Return the complete answer; a disconnect stops the model.

    ``Cache-Control: no-cache`` bypasses the cache.

    Raises:
        ClientDisconnect: The client disconnected.
        VectorForgeError: The query failed.
    """
    async with cancelled_on_disconnect(request.receive):
        return await tenant.query_service.query(
            query,
            collection,
            _with_cache_control(request, config),
            request_id=RequestState.of(request.scope).query_id,
            deadline=deadline_of(request, application),
        )


async def answer_dry(
    request: Request,
    application: Application,
    tenant: TenantServices,
    query: str,
    collection: Collection | CollectionChoice,
    config: QueryConfig,
) -> DryRunResponse:
    """Return the request that the model would get, which is not sent.

    Raises:
        VectorForgeError: The search failed, or a model would have to be called first.
    """
    deadline = deadline_of(request, application)
    return DryRunResponse.of(await tenant.query_service.dry_run(query, collection, config, deadline=deadline))


async def answer_as_stream(
    request: Request,
    application: Application,
    tenant: TenantServices,
    query: str,
    collection: Collection | CollectionChoice,
    config: QueryConfig,
    *,
    with_sources: bool = True,
    encoder: QueryEventEncoder | None = None,
    resumable: bool = False,
) -> Response:
    """Return the answer as server-sent events when the search has ended.

    ``Cache-Control: no-cache`` bypasses the cache. ``encoder`` replaces our own format; a ``resumable``
    answer has ours, and is stored for a client that reconnects (docs/use/streams.md), as is any answer
    with an ``Idempotency-Key``.

    Raises:
        VectorForgeError: The query failed before its answer began.
    """
    state = RequestState.of(request.scope)
    stored: StoredResponse | None = request.scope.get(STORED_RESPONSE_KEY)
    stop = StopSignal() if stored is None else stored.stop
    deadline = deadline_of(request, application)
    run = await tenant.query_service.begin(
        query,
        collection,
        _with_cache_control(request, config),
        request_id=state.query_id,
        deadline=deadline,
        stop=stop,
    )
    events = tenant.query_service.events(run)
    encoder = encoder or EventEncoder(
        request_id=state.request_id,
        problem_prefix=state.problem_prefix,
        with_sources=with_sources,
    )
    ping_interval_s: float = request.app.state.ping_interval_s
    if stored is not None:
        return await stored.stream(events, encoder, resumable=resumable, ping_interval_s=ping_interval_s)
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
    opening = asyncio.create_task(buffer.open())  # while the search, whose events stay in this task, runs
    try:
        opened = await OpenedQuery.open(events)
        is_kept = await opening
    finally:
        opening.cancel()
        await asyncio.wait({opening})
    if not is_kept:
        return QueryEventResponse(opened, encoder, ping_interval_s=ping_interval_s, deadline=deadline)
    return ResumableQueryResponse(opened, encoder, buffer, ping_interval_s=ping_interval_s)


def _with_cache_control(request: Request, config: QueryConfig) -> QueryConfig:
    """Apply ``no-cache`` (RFC 9111, section 5.2.1.4): the answer is generated and stored."""
    directives = request.headers.get("cache-control", "").lower().split(",")
    if "no-cache" in (directive.strip() for directive in directives):
        return replace(config, use_cache=False)
    return config
