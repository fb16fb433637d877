"""An answer of repeated triggers on a real server: other clients are served while it is processed.

Progress is measured by order, not by a clock: queries sent after the hostile answer began are answered
before it ends. An event loop that processes it in one go answers none meanwhile.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

import httpx2
import pytest
from pydantic import SecretStr

from tests.support.http.event_stream import ReceivedEvent, read_events
from tests.support.http.live_api import (
    LiveApi,
    add_documents,
    ask_streaming,
    live_api,
    new_collection,
    settings_for,
)
from tests.support.vendors.fake_openai import FakeOpenAI
from tests.support.vendors.fake_vendor import Reply
from vectorforge.config import QuerySettings
from vectorforge.llm.providers.openai import OpenAIProvider
from vectorforge.local.postgres import EmbeddedPostgres

RAG = "/v1/rag/query"
LENGTH = 245_760
"""Characters; half of it once blocked the process for minutes. ``SERVED`` queries are faster."""
MAX_TOKENS = 16_384
HOSTILE = "Hostile question about dough?"
SLOWEST = "](&"
"""Processed at about 25 microseconds per character: the longest answer takes many times ``TIMEOUT_S``."""
LENGTHS = {
    **dict.fromkeys(("a.", "<a ", "](((((", '<a href="'), LENGTH),
    "![x](": LENGTH // 2,  # these two are processed at 8 and 16 microseconds per character
    "[1]": LENGTH // 4,
}
LONGEST = 1_048_576
"""Characters processed of an answer with ``MAX_TOKENS``."""
TIMEOUT_S = 0.5
"""Much less than the processing time of the longest answer of ``SLOWEST``."""
PIECE = 4_096
"""Characters of an event of the vendor's stream."""
SERVED = 3
"""Sequential requests of others while the hostile answer is processed."""


@dataclass
class Surroundings:
    """Two tenants of one server, whose model sends the first one hostile answers."""

    api: LiveApi
    vendor: FakeOpenAI
    hostile: httpx2.AsyncClient
    other: httpx2.AsyncClient
    served: int = 0
    """Number of answered requests of the other tenant."""

    def repeat(self, unit: str, length: int = LENGTH, *, usage: tuple[int, int] | None = (10, 10)) -> None:
        """Let the model answer the hostile query with this text, repeated."""
        text = (unit * (length // len(unit) + 1))[:length]
        texts = tuple(text[start : start + PIECE] for start in range(0, length, PIECE))

        def decide(body: Any) -> Reply:
            return Reply(texts=texts, usage=usage) if HOSTILE in str(body) else Reply()

        self.vendor.unscripted = decide

    async def last_text_and_end(self) -> tuple[int, int]:
        """Return the requests of others answered before the last text of the stream, and before its end."""
        body = {"query": HOSTILE, "max_tokens": MAX_TOKENS, "stream": True}
        last_text = 0
        async with self.hostile.stream("POST", RAG, json=body, timeout=120) as response:
            async for event in read_events(response.aiter_lines()):
                if event.name == "token":
                    last_text = self.served
        return last_text, self.served

    async def until_requested(self) -> None:
        """Wait until the model has received the hostile query."""
        async with asyncio.timeout(30):
            while not any(HOSTILE in str(body) for body in self.vendor.bodies):  # noqa: ASYNC110 - a fake's list
                await asyncio.sleep(0)


@pytest.fixture
async def start(
    postgres_server: EmbeddedPostgres, make_tenant: Callable[[], str]
) -> AsyncIterator[Callable[..., Any]]:
    async with AsyncExitStack() as stack:

        async def make(**query: Any) -> Surroundings:
            vendor = await stack.enter_async_context(FakeOpenAI())
            tenants = [make_tenant(), make_tenant()]
            config = settings_for(postgres_server.app_url, tenants, query=QuerySettings(**query))
            provider = OpenAIProvider(SecretStr(vendor.api_key), base_url=vendor.base_url, retries=0)
            api = await stack.enter_async_context(live_api(config, provider))
            clients = [await stack.enter_async_context(api.client(tenant)) for tenant in tenants]
            for client in clients:
                guide = "Let the dough rise for two hours before baking it."
                await add_documents(client, await new_collection(client), bread=guide)
                await client.post(RAG, json={"query": "How long must it rise?"})  # loads lazy modules
            return Surroundings(api, vendor, hostile=clients[0], other=clients[1])

        yield make


async def ask(here: Surroundings, *, streamed: bool) -> list[ReceivedEvent] | httpx2.Response:
    body = {"query": HOSTILE, "max_tokens": MAX_TOKENS}
    if streamed:
        return await ask_streaming(here.hostile, RAG, body)
    return await here.hostile.post(RAG, json=body, timeout=120)


async def served_until(here: Surroundings, hostile: "asyncio.Task[Any]", most: int) -> int:
    """Return the sequential requests of others answered before the hostile one, up to ``most``."""
    ahead = 0
    while not hostile.done() and ahead < most:
        assert (await here.other.get("/health")).status_code == 200
        ahead += not hostile.done()
        here.served += 1
    return ahead


# A long answer must not block the event loop
@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("unit", LENGTHS)
async def test_hostile_answer_does_not_block_other_requests(
    start: Callable[..., Any], unit: str, streamed: bool
) -> None:
    here = await start()
    here.repeat(unit, LENGTHS[unit])
    hostile = asyncio.create_task(ask(here, streamed=streamed))
    await here.until_requested()
    ended: list[str] = []
    hostile.add_done_callback(lambda _: ended.append("hostile"))
    question = asyncio.create_task(here.other.post(RAG, json={"query": "How long must the dough rise?"}))
    question.add_done_callback(lambda _: ended.append("other"))
    ahead = await served_until(here, hostile, SERVED)
    async with asyncio.timeout(120):
        assert (await question).status_code == 200
        await hostile
    assert ahead == SERVED
    assert ended == ["other", "hostile"]


# Tokens that the vendor did not count are counted between the last text and the end
async def test_token_count_of_long_answer_does_not_block_other_requests(
    start: Callable[..., Any],
) -> None:
    here = await start()
    here.repeat("a,b ", LONGEST, usage=None)
    hostile = asyncio.create_task(here.last_text_and_end())
    await here.until_requested()
    await served_until(here, hostile, most=10**9)
    last_text, end = await hostile
    assert end - last_text >= SERVED


# Without pauses it could not be ended
@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
async def test_hostile_answer_ends_at_its_own_deadline(start: Callable[..., Any], streamed: bool) -> None:
    here = await start(query_timeout_s=TIMEOUT_S)
    here.repeat(SLOWEST, LONGEST)
    found = await ask(here, streamed=streamed)
    done = found.json() if isinstance(found, httpx2.Response) else found[-1].data
    assert (done["outcome"], done["finish_reason"]) == ("deadline", "deadline")
    assert (await here.other.get("/health")).status_code == 200
