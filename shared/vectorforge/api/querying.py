"""Query handling shared by the API surfaces: routes, checks, and answers, whole, streamed or as a dry run."""

import json
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar, get_type_hints

from fastapi import Request, Response
from fastapi.routing import APIRoute
from pydantic import BaseModel

from vectorforge.api.answers import DryRunResponse
from vectorforge.api.dependencies import (
    application_of,
    check_at_most,
    check_provider,
    deadline_of,
    tenant_services_of,
)
from vectorforge.api.error_schemas import ANSWER_PROBLEMS
from vectorforge.api.request_state import STORED_RESPONSE_KEY, RequestState
from vectorforge.api.schemas import QueryRequest
from vectorforge.api.streaming.sse import EventEncoder, QueryEventEncoder, event_stream_content
from vectorforge.api.streaming.stream import OpenedQuery, QueryEventResponse, cancelled_on_disconnect
from vectorforge.bootstrap import Application, TenantServices
from vectorforge.deadline import Deadline, off_event_loop, time_limit
from vectorforge.errors import NotFoundError
from vectorforge.pipeline.stopping import StopSignal
from vectorforge.pipeline.types import QueryConfig, QueryResult
from vectorforge.pipeline.variants import Variant
from vectorforge.retriever.base import CollectionChoice
from vectorforge.types import Collection
from vectorforge.vectorstore.filters.parse import parse

if TYPE_CHECKING:  # loaded by the first request with a key
    from vectorforge.api.streaming.stored_response import StoredResponse

T = TypeVar("T")


class QueryRoute(APIRoute):
    """Route that answers a request with an ``Idempotency-Key`` once, except for a dry run.

    The handler has a parameter ``body``, a model in JSON.
    """

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the function that answers a request."""
        answer = super().get_route_handler()
        model: type[BaseModel] = get_type_hints(self.endpoint)["body"]

        async def handle(request: Request) -> Response:
            body = await request.body()  # here, since FastAPI makes a 400 of a disconnect
            media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
            if "idempotency-key" not in request.headers or media_type != "application/json":
                return await answer(request)
            from vectorforge.api.streaming.idempotency import IdempotentResponse, key_of

            try:
                query = model.model_validate(json.loads(body))
            except (ValueError, RecursionError):  # FastAPI describes the error
                return await answer(request)
            if getattr(query, "dry_run", False):  # costs nothing, so it is not stored
                key_of(request.headers)
                return await answer(request)
            return IdempotentResponse(request, body, answer)

        return handle


def answer_responses(dry_run: str = "") -> dict[int | str, dict[str, Any]]:
    """Return the OpenAPI responses of a route that answers as JSON or in native events."""
    description = f"The answer: JSON, or with `stream: true` server-sent events.{dry_run}"
    return {200: {"description": description, "content": event_stream_content()}, **ANSWER_PROBLEMS}


async def find_collection(
    application: Application, tenant: TenantServices, choice: CollectionChoice
) -> Collection:
    """Return the collection of a choice.

    Raises:
        NotFoundError: None of its names exists; for the default collection the message says how to create it.
        DeadlineExceededError: The database did not answer within the time limit of a query.
    """
    *preferred, last = choice.names
    async with query_time_limit(application):
        for name in preferred:
            with suppress(NotFoundError):
                return await tenant.find_collection(name)
        try:
            return await tenant.find_collection(last)
        except NotFoundError as exc:
            raise choice.not_found(exc) from None


def requested_collection(
    application: Application, name: str | None, *, preferred: str | None = None
) -> CollectionChoice:
    """Return the collection of a query: the one named, else ``preferred`` if it exists, else the default."""
    if name is not None:
        return CollectionChoice((name,))
    default = application.config.query.default_collection
    names = (default,) if preferred is None else (preferred, default)

    def missing(_error: NotFoundError) -> NotFoundError:
        return NotFoundError(
            f"The default collection {default!r} does not exist yet. Create it with POST /v1/collections and "
            "add documents with POST /v1/collections/{id}/documents, or run `vectorforge ingest <files>`.",
        )

    return CollectionChoice(names, missing)


@asynccontextmanager
async def query_time_limit(application: Application, deadline: Deadline | None = None) -> AsyncIterator[None]:
    """Limit the time of work before a query, in addition to the limits of connections and statements.

    Without a deadline it is the whole time of a query from now.

    Raises:
        DeadlineExceededError: The time ran out.
    """
    time_s = application.config.query.query_timeout_s
    async with time_limit(time_s if deadline is None else deadline.clamp(time_s)):
        yield


def check_config(application: Application, config: QueryConfig, names: Mapping[str, str]) -> None:
    """Check a request against the settings before it costs anything.

    ``names`` maps a field of ``QueryConfig`` to its name on the API surface, for errors.

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
    check_provider(llm_field, config.llm_provider, application.llm_registry)
    check_provider("embedding_provider", config.embedding_provider, application.embedding_registry)


@dataclass(frozen=True, slots=True)
class SurfaceQuery:
    """A query that an API surface has read from a request; ``Cache-Control: no-cache`` bypasses the cache."""

    request: Request
    text: str
    collection: Collection | CollectionChoice
    config: QueryConfig

    async def answer(
        self,
        encode_whole: Callable[[QueryResult], T],
        *,
        stream: bool | None,
        encoder: QueryEventEncoder | None = None,
        with_sources: bool = True,
        resumable: bool = False,
    ) -> Response | T:
        """Return the answer, whole or as server-sent events; a disconnect stops the model.

        Args:
            encode_whole: Makes the response of a whole answer.
            stream: True for events; the response returns when the search has ended.
            encoder: Encoder of the events; None for the native format.
            with_sources: False leaves the chunks out of native events.
            resumable: True stores native events for a client that reconnects (docs/use/streams.md).

        Raises:
            ClientDisconnect: The client disconnected.
            VectorForgeError: The query failed before its answer began.
        """
        if stream:
            return await self.stream(encoder, with_sources=with_sources, resumable=resumable)
        async with cancelled_on_disconnect(self.request.receive):
            result = await tenant_services_of(self.request).query_service.query(
                self.text,
                self.collection,
                self._config,
                request_id=RequestState.of(self.request.scope).query_id,
                deadline=deadline_of(self.request),
            )
        return await off_event_loop(len(result.answer), lambda: encode_whole(result))

    async def stream(
        self, encoder: QueryEventEncoder | None, *, with_sources: bool = True, resumable: bool = False
    ) -> Response:
        """Return the answer as server-sent events, with the arguments and errors of ``answer``."""
        request, tenant = self.request, tenant_services_of(self.request)
        state, deadline = RequestState.of(request.scope), deadline_of(request)
        stored: StoredResponse | None = request.scope.get(STORED_RESPONSE_KEY)
        stop: StopSignal | None = StopSignal() if resumable else None
        if stored is not None:
            stop = stored.stop
        run = await tenant.query_service.begin(
            self.text, self.collection, self._config, request_id=state.query_id, deadline=deadline, stop=stop
        )
        events = tenant.query_service.events(run)
        encoder = encoder or EventEncoder(
            request_id=state.request_id, problem_prefix=state.problem_prefix, with_sources=with_sources
        )
        if stored is not None:
            return await stored.stream(events, encoder, resumable=resumable)
        if stop is None:
            return QueryEventResponse(await OpenedQuery.open(events), encoder, deadline=deadline)
        from vectorforge.api.streaming.answer_buffer import AnswerBuffer
        from vectorforge.api.streaming.stored_response import resumable_response

        settings = application_of(request).config.streams
        buffer = AnswerBuffer(
            tenant.answer_streams,
            state.query_id,
            stop,
            deadline=deadline,
            max_bytes=settings.stream_buffer_bytes,
            grace_s=settings.resume_grace_s,
        )
        return await resumable_response(events, encoder, buffer)

    @property
    def _config(self) -> QueryConfig:
        """Settings with ``no-cache`` (RFC 9111, section 5.2.1.4): the answer is generated and stored."""
        directives = self.request.headers.get("cache-control", "").lower().split(",")
        if "no-cache" in (directive.strip() for directive in directives):
            return replace(self.config, use_cache=False)
        return self.config


async def answer_request(
    request: Request,
    body: QueryRequest,
    collection: CollectionChoice,
    config_of: Callable[[Variant | None], QueryConfig],
    encode_whole: Callable[[QueryResult], T],
    *,
    names: Mapping[str, str],
    with_sources: bool = True,
) -> Response | T | DryRunResponse:
    """Answer a request in this project's own format: whole, as events, or with the request for the model.

    ``config_of`` makes the settings of the body with a variant; ``names`` are those of ``check_config``, the
    other arguments those of ``SurfaceQuery.answer``.

    Raises:
        VectorForgeError: A setting is invalid, or the query failed before its answer began.
    """
    tenant = tenant_services_of(request)
    config = config_of(tenant.choose_variant(body.variant, body.conversation_id))
    check_config(application_of(request), config, names)
    if body.dry_run:
        dry_run = await tenant.query_service.dry_run(
            body.query, collection, config, deadline=deadline_of(request)
        )
        return DryRunResponse.of(dry_run)
    query = SurfaceQuery(request, body.query, collection, config)
    return await query.answer(
        encode_whole, stream=body.stream, with_sources=with_sources, resumable=body.resumable
    )
