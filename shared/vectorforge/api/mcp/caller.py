"""The context of a call of an MCP tool (tenant, deadline, ids), and what a tool is."""

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Generic, Self, TypeVar
from uuid import UUID, uuid4

from fastapi import Request
from pydantic import BaseModel

from vectorforge.api.dependencies import application_of, deadline_of, tenant_services_of
from vectorforge.api.mcp.progress import Progress
from vectorforge.api.problems import problem_of, retry_after_s
from vectorforge.api.request_state import RequestState
from vectorforge.bootstrap import Application, TenantServices
from vectorforge.deadline import Deadline
from vectorforge.errors import NotFoundError, VectorForgeError, log_unexpected
from vectorforge.pipeline.run import QueryRun
from vectorforge.pipeline.types import QueryConfig
from vectorforge.retriever.base import CollectionChoice
from vectorforge.types import Collection

logger = logging.getLogger(__name__)

_NAMED_COLLECTIONS = 50


@dataclass(frozen=True, slots=True)
class Caller:
    """Context of one call; its arguments cannot change it."""

    application: Application
    tenant: TenantServices
    deadline: Deadline
    query_id: UUID
    """Id in the query log."""
    request_id: str
    """Id of the call in the logs."""
    progress: Progress | None = None
    """Reports the progress of a call; None if its client requests none."""

    @classmethod
    def of_request(cls, request: Request) -> Self:
        """Return the caller of an authenticated HTTP request.

        Raises:
            AuthenticationError: The request has no principal.
        """
        application = application_of(request)
        state = RequestState.of(request.scope)
        return cls(
            application,
            tenant_services_of(request),
            deadline_of(request),
            state.query_id,
            state.request_id,
        )

    @classmethod
    def on_this_machine(cls, application: Application, tenant: TenantServices) -> Self:
        """Return the caller of a local process, which needs no credential."""
        query_id = uuid4()
        deadline = Deadline.after(application.config.query.query_timeout_s)
        return cls(application, tenant, deadline, query_id, str(query_id))

    async def collection(self, name: str | None, *, profile_id: int | None = None) -> Collection:
        """Return the collection with this name or id; None selects the default, or the profiles' collection.

        Raises:
            NotFoundError: It does not exist; the message lists the existing ones.
        """
        if name is None and profile_id is not None:
            return await self.tenant.profiles.collection()
        wanted = name or self.application.config.query.default_collection
        try:
            return await self.tenant.find_collection(wanted)
        except NotFoundError as exc:
            raise NotFoundError(await self._existing_collections(wanted)) from exc

    async def begin(
        self, name: str | None, query: str, config: QueryConfig, *, profile_id: int | None = None
    ) -> QueryRun:
        """Begin a query to the collection that ``collection`` describes.

        Raises:
            As ``collection``.
        """
        wanted = name or self.application.config.query.default_collection
        choice = CollectionChoice.of(wanted)
        if name is None and profile_id is not None:
            choice = self.tenant.profiles.choice
        try:
            return await self.tenant.query_service.begin(
                query,
                choice,
                config,
                request_id=self.query_id,
                deadline=self.deadline,
                buffered=self.progress is None,
            )
        except NotFoundError as exc:
            if choice.missing is not None:
                raise
            raise NotFoundError(await self._existing_collections(wanted)) from exc

    async def _existing_collections(self, wanted: str) -> str:
        names = [collection.name for collection in await self.tenant.collections.list()]
        if not names:
            return (
                "There are no collections yet. Add documents first, outside of these tools: "
                "with `vectorforge ingest <files>`, or over HTTP with POST /v1/collections."
            )
        more = f" and {len(names) - _NAMED_COLLECTIONS} more" if len(names) > _NAMED_COLLECTIONS else ""
        listed = ", ".join(names[:_NAMED_COLLECTIONS])
        return f"There is no collection {wanted!r}. Call again with one of these: {listed}{more}."


_A = TypeVar("_A", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Answered:
    """Result of a call."""

    result: BaseModel
    text: str
    """The same for reading."""


@dataclass(frozen=True, slots=True)
class ToolDefinition(Generic[_A]):
    """A tool."""

    name: str
    title: str
    description: str
    arguments: type[_A]
    result: type[BaseModel]
    run: Callable[[Caller, _A], Awaitable[Answered]]


def advice(error: Exception, caller: Caller) -> str:
    """Describe an error and its remedy; exceptions of other libraries stay hidden."""
    problem = problem_of(error, request_id=caller.request_id)
    if problem.status == 500:
        log_unexpected(logger, f"Tool call {caller.request_id} failed", error)
    if problem.status < 500 and problem.status != 429:
        return problem.detail
    seconds = retry_after_s(error)
    may_pass = isinstance(error, VectorForgeError) and error.retryable
    again = f"Try again in {seconds} seconds." if seconds else "Try again once." if may_pass else ""
    return " ".join(filter(None, [problem.detail, again, f"(Request {caller.request_id})"]))
