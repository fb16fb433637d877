"""A browser's ``EventSource`` reads a resumable answer, and reconnects automatically after a cut."""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Page
from starlette.types import Receive, Scope, Send

from tests.browser.conftest import Visit
from tests.support.http.event_stream import read_events
from tests.support.http.live_api import (
    LiveApi,
    add_documents,
    build_application,
    new_collection,
    settings_for,
)
from tests.support.http.live_server import serve
from tests.support.vendors.scripted_llm import ScriptedLLM
from vectorforge.api.app import create_app
from vectorforge.config import CacheSettings
from vectorforge.local.postgres import EmbeddedPostgres

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

PIECES = tuple(f"word{number} " for number in range(12))
READ = """(url) => new Promise((resolve) => {
  const seen = { ids: [], text: "", errors: 0, end: null, closedBySource: false };
  const source = new EventSource(url);
  const take = (event) => { seen.ids.push(Number(event.lastEventId)); return JSON.parse(event.data); };
  for (const name of ["meta", "sources", "citation", "usage"]) source.addEventListener(name, take);
  source.addEventListener("token", (event) => { seen.text += take(event).text; });
  source.addEventListener("done", (event) => { seen.end = take(event).finish_reason; });
  source.onerror = () => {
    seen.errors += 1;
    if (source.readyState === EventSource.CLOSED) { seen.closedBySource = true; resolve(seen); }
  };
})"""


@dataclass
class Cuts:
    """Cuts the connection of each reader after the next of some events."""

    app: Any
    after: list[int] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    """``Last-Event-ID`` of each request of a reader; empty for none."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not scope["path"].endswith("/events"):
            await self.app(scope, receive, send)
            return
        self.asked.append(dict(scope["headers"]).get(b"last-event-id", b"").decode())
        left = self.after.pop(0) if self.after else -1

        async def cutting_send(message: Any) -> None:
            nonlocal left
            body = message.get("body", b"")
            if left < 0 or message["type"] != "http.response.body" or not body:
                await send(message)
                return
            events = [part + b"\n\n" for part in body.split(b"\n\n")[:-1]]
            await send({**message, "body": b"".join(events[: left + 1])})  # the first one is ``retry``
            left -= len(events)
            if left < 0:
                raise ConnectionResetError("cut by the test")

        await self.app(scope, receive, cutting_send)


@dataclass
class Server:
    url: str
    cuts: Cuts
    gate: asyncio.Semaphore


@pytest_asyncio.fixture(loop_scope="session")
async def server(postgres_server: EmbeddedPostgres, make_tenant: Callable[[], str]) -> AsyncIterator[Server]:
    gate = asyncio.Semaphore(0)
    config = settings_for(
        postgres_server.app_url,
        server={"auth": "local", "local_tenant": make_tenant()},
        cache=CacheSettings(answer_cache=False),
    )
    application = build_application(config, ScriptedLLM(PIECES, gate=gate))
    cuts = Cuts(create_app(application))
    async with serve(cuts) as url:
        async with LiveApi(url, application).client(None) as client:
            await add_documents(client, await new_collection(client), kettle="The kettle takes five minutes.")
        yield Server(url, cuts, gate)


async def begin(server: Server) -> str:
    """Query, read the first event and disconnect; return the query's id."""
    body = {"query": "How long does the kettle take?", "stream": True, "resumable": True}
    async with (
        LiveApi(server.url, None).client(None) as client,  # type: ignore[arg-type] # only its address counts
        client.stream("POST", "/v1/rag/query", json=body) as response,
    ):
        meta = await anext(read_events(response.aiter_lines()))
        return str(meta.data["request_id"])


async def follow(page: Page, query_id: str) -> Any:
    return await page.evaluate(READ, f"/v1/queries/{query_id}/events")


async def test_event_source_reads_to_the_end_and_stops_reconnecting(server: Server, visit: Visit) -> None:
    page = await visit(server.url, failed_requests=True)
    query_id = await begin(server)
    reading = asyncio.create_task(follow(page, query_id))
    for _ in PIECES:
        await asyncio.sleep(0.05)
        server.gate.release()
    seen = await reading
    assert (seen["text"], seen["end"]) == ("".join(PIECES), "stop")
    assert seen["ids"] == list(range(1, len(seen["ids"]) + 1))
    # The end of the response looks like a cut: it reconnects with the last id, and 204 makes it stop.
    assert server.cuts.asked == ["", str(len(seen["ids"]))]


async def test_event_source_reconnects_after_disconnects(server: Server, visit: Visit) -> None:
    server.cuts.after = [3, 2]
    page = await visit(server.url, failed_requests=True)
    query_id = await begin(server)
    reading = asyncio.create_task(follow(page, query_id))
    for _ in PIECES:
        await asyncio.sleep(0.05)
        server.gate.release()
    seen = await reading
    assert (seen["text"], seen["end"]) == ("".join(PIECES), "stop")
    assert seen["ids"] == list(range(1, len(seen["ids"]) + 1))  # each once, although it was cut off twice
    # Chromium may drop data received just before a cut; then it requests it again.
    first, second, third, last = [int(asked or 0) for asked in server.cuts.asked]
    assert (first, last) == (0, len(seen["ids"]))
    assert 0 <= second <= 3
    assert second <= third <= second + 2
