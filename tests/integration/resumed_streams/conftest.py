"""Several server instances on one database, and clients that resume a stream."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

import httpx2
import pytest

from tests.support.http.event_stream import ReceivedEvent, read_events
from tests.support.http.live_api import LiveApi, add_documents, live_api, new_collection, settings_for
from tests.support.vendors.scripted_llm import ScriptedLLM
from vectorforge.config import CacheSettings, StreamSettings

PIECES = (
    "The kettle \u2028",
    "holds [Context 1]",
    ".\n\nIt ",
    "boils [Context 1]",
    " in five",
    " minutes — ",
    "üä.",
)
ANSWER = "".join(PIECES)
QUESTION = {"query": "How long does the kettle take?", "stream": True, "resumable": True}


@dataclass
class Instances:
    """Two servers on one database; the model streams at the first one."""

    first: LiveApi
    second: LiveApi
    tenant: str
    stranger: str
    llm: ScriptedLLM
    gate: asyncio.Semaphore
    collection_id: str

    def let_through(self, pieces: int) -> None:
        """Let the model emit further pieces."""
        for _ in range(pieces):
            self.gate.release()

    async def ask(
        self, client: httpx2.AsyncClient, *, until: int, path: str = "/v1/rag/query"
    ) -> "list[ReceivedEvent]":
        """Start a new answer, cut the connection, and return the first events."""
        async with client.stream("POST", path, json=QUESTION) as response:
            response.raise_for_status()
            return await first_events(response, until)

    async def logged(self, query_id: str) -> dict[str, Any]:
        """Return the record of the query's end."""
        async with self.second.client(self.tenant) as client, asyncio.timeout(20):
            while True:
                response = await client.get(f"/v1/queries/{query_id}")
                if response.status_code == 200 and response.json()["outcome"] != "started":
                    log: dict[str, Any] = response.json()
                    return log
                await asyncio.sleep(0.02)


async def first_events(response: httpx2.Response, count: int) -> list[ReceivedEvent]:
    events: list[ReceivedEvent] = []
    async for event in read_events(response.aiter_lines()):
        if event.name != "comment":
            events.append(event)
        if len(events) == count:
            break
    return events


async def resume(
    client: httpx2.AsyncClient, query_id: str, after: int, *, until: int = -1
) -> list[ReceivedEvent]:
    """Return the events after one, requested as by an ``EventSource``."""
    headers = {"Last-Event-ID": str(after)}
    async with client.stream("GET", f"/v1/queries/{query_id}/events", headers=headers) as response:
        response.raise_for_status()
        if response.status_code == 204:
            return []
        return await first_events(response, until)


def text_of(events: Sequence[ReceivedEvent]) -> str:
    return "".join(event.data["text"] for event in events if event.name == "token")


MakeInstances = Callable[..., Any]


@pytest.fixture
async def make_instances(app_url: str, make_tenant: Callable[[], str]) -> AsyncIterator[MakeInstances]:
    """Start both servers with these settings of streams."""
    async with AsyncExitStack() as stack:

        async def make(*, open_gate: bool = True, **settings: Any) -> Instances:
            gate = asyncio.Semaphore(10_000 if open_gate else 0)
            llm = ScriptedLLM(PIECES, gate=gate)
            tenants = [make_tenant(), make_tenant()]
            config = settings_for(
                app_url,
                tenants,
                cache=CacheSettings(answer_cache=False),
                streams=StreamSettings(**settings),
            )
            first = await stack.enter_async_context(live_api(config, llm))
            second = await stack.enter_async_context(live_api(config, ScriptedLLM(("Not me.",))))
            async with first.client(tenants[0]) as client:
                collection_id = await new_collection(client)
                await add_documents(
                    client, collection_id, kettle="How long does the kettle take? Five minutes."
                )
            return Instances(first, second, tenants[0], tenants[1], llm, gate, collection_id)

        yield make
