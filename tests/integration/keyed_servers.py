"""Two servers on one database, and requests with an ``Idempotency-Key`` to them."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import httpx2

from tests.support.http.live_api import LiveApi, add_documents, live_api, new_collection, settings_for
from tests.support.vendors.scripted_llm import ScriptedLLM
from vectorforge.config import CacheSettings, StreamSettings
from vectorforge.db.connection import Database
from vectorforge.db.repositories.query_log_repo import QueryLog, QueryLogRepository

RAG = "/v1/rag/query"
REPLAYED = "idempotent-replayed"
ASKED = "How long does the kettle take?"
PIECES = ("The kettle \u2028", "holds [Context 1]", ".\n\nIt boils", " in five minutes — üä.")
QUESTION: dict[str, Any] = {"query": ASKED}
STREAM: dict[str, Any] = {**QUESTION, "stream": True}


def new_key() -> dict[str, str]:
    """Return the header with an unused key."""
    return {"Idempotency-Key": f"key-{uuid4()}"}


@dataclass(frozen=True, slots=True)
class KeyedServers:
    """Both servers, with equally scripted models."""

    apis: Sequence[LiveApi]
    clients: Sequence[httpx2.AsyncClient]
    """Clients of the tenant, one for each server."""
    llms: Sequence[ScriptedLLM]
    tenant: str
    stranger: str
    collection_id: str
    document_id: str

    @property
    def generations(self) -> int:
        """Return the number of calls of a model."""
        return sum(len(llm.calls) for llm in self.llms)

    async def ask(
        self, number: int, key: dict[str, str], body: dict[str, Any] = QUESTION, path: str = RAG
    ) -> httpx2.Response:
        """Query a server by number, and return the whole response."""
        return await self.clients[number % 2].post(path, json=body, headers=key)

    async def logs(self) -> list[QueryLog]:
        """Return all rows of the tenant's query log."""
        return await QueryLogRepository(self.database.for_tenant(self.tenant)).list(limit=1000)

    @property
    def database(self) -> Database:
        """Return the database of the second server."""
        return self.apis[1].application.database

    async def change_kept(self, assignment: str) -> None:
        """Change the tenant's stored answers, e.g. to expire them."""
        db = self.database.for_tenant(self.tenant)
        await db.execute(
            f"UPDATE vectorforge.answer_streams SET {assignment} WHERE tenant_id = %s", (self.tenant,)
        )


@asynccontextmanager
async def keyed_servers(
    app_url: str,
    tenants: tuple[str, str],
    *,
    llms: Sequence[ScriptedLLM] | None = None,
    streams: StreamSettings | None = None,
    fill: bool = True,
    **sections: Any,
) -> AsyncIterator[KeyedServers]:
    """Start both servers; only the tenant's default collection has a document.

    Args:
        app_url: Connection string of the app role.
        tenants: The tenant and the stranger.
        llms: Other models.
        streams: Settings of stored answers.
        fill: Whether to create the collection; otherwise there are no ids.
        **sections: Other sections of the settings.
    """
    models = llms or [ScriptedLLM(PIECES) for _ in range(2)]
    config = settings_for(
        app_url,
        tenants,
        cache=CacheSettings(answer_cache=False),
        streams=streams or StreamSettings(),
        **sections,
    )
    async with (
        live_api(config, models[0]) as first,
        live_api(config, models[1]) as second,
        first.client(tenants[0]) as client,
        second.client(tenants[0]) as other,
    ):
        collection_id = document_id = ""
        if fill:
            collection_id = await new_collection(client)
            job = await add_documents(client, collection_id, kettle=f"{ASKED} Five minutes.")
            document_id = job["documents"][0]["document_id"]
        yield KeyedServers((first, second), (client, other), models, *tenants, collection_id, document_id)
