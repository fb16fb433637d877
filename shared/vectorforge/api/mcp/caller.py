"""Who calls a tool, on whose documents, and how long the answer may take."""

from dataclasses import dataclass
from typing import Self
from uuid import UUID, uuid4

from fastapi import Request

from vectorforge.api.dependencies import application_of, tenant_services_of
from vectorforge.api.querying import deadline_of
from vectorforge.bootstrap import Application, TenantServices
from vectorforge.deadline import Deadline
from vectorforge.errors import NotFoundError
from vectorforge.pipeline.run import QueryRun
from vectorforge.pipeline.types import QueryConfig
from vectorforge.retriever.base import CollectionChoice
from vectorforge.types import Collection

_NAMED_COLLECTIONS = 50


@dataclass(frozen=True, slots=True)
class Caller:
    """One call's surroundings. Nothing in the call's arguments can change them."""

    application: Application
    tenant: TenantServices
    deadline: Deadline
    query_id: UUID
    """Of the query log."""
    request_id: str
    """Names the call in our logs."""

    @classmethod
    def of_request(cls, request: Request) -> Self:
        """The caller of an HTTP request, whose tenant ``middleware.Authentication`` has found.

        Raises:
            AuthenticationError: There is no tenant; the middleware should have refused already.
        """
        application = application_of(request)
        state = request.scope["state"]
        return cls(
            application,
            tenant_services_of(request),
            deadline_of(request, application),
            state["query_id"],
            state["request_id"],
        )

    @classmethod
    def on_this_machine(cls, application: Application, tenant: TenantServices) -> Self:
        """A caller that has started this process and needs no credential."""
        query_id = uuid4()
        deadline = Deadline.after(application.config.query.query_timeout_s)
        return cls(application, tenant, deadline, query_id, str(query_id))

    async def collection(self, asked: str | None, *, profile_id: int | None = None) -> Collection:
        """The collection of this name or id; None means the default: of a profile, the profiles'.

        Raises:
            NotFoundError: There is none; the text lists those that there are.
        """
        if asked is None and profile_id is not None:
            return await self.tenant.profiles.collection()
        wanted = asked or self.application.config.query.default_collection
        try:
            return await self.tenant.find_collection(wanted)
        except NotFoundError as exc:
            raise NotFoundError(await self._what_there_is(wanted)) from exc

    async def begin(
        self, asked: str | None, query: str, config: QueryConfig, *, profile_id: int | None = None
    ) -> QueryRun:
        """Begin a query to the collection that ``collection`` describes.

        Raises:
            As ``collection``.
        """
        wanted = asked or self.application.config.query.default_collection
        choice = CollectionChoice.of(wanted)
        if asked is None and profile_id is not None:
            choice = self.tenant.profiles.choice
        try:
            return await self.tenant.query_service.begin(
                query, choice, config, request_id=self.query_id, deadline=self.deadline, buffered=True
            )
        except NotFoundError as exc:
            if choice.missing is not None:
                raise
            raise NotFoundError(await self._what_there_is(wanted)) from exc

    async def _what_there_is(self, wanted: str) -> str:
        names = [collection.name for collection in await self.tenant.collections.list()]
        if not names:
            return (
                "There are no collections yet. Documents have to be added first, which no tool here does: "
                "with `vectorforge ingest <files>`, or over HTTP with POST /v1/collections."
            )
        more = f" and {len(names) - _NAMED_COLLECTIONS} more" if len(names) > _NAMED_COLLECTIONS else ""
        listed = ", ".join(names[:_NAMED_COLLECTIONS])
        return f"There is no collection {wanted!r}. Call again with one of these: {listed}{more}."
