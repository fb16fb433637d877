"""200 invocations of every kind in one process leak nothing."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any, Unpack

import httpx2
import pytest

from infra.emulator.lambda_service.front_doors import FunctionUrl
from infra.emulator.lambda_service.function_process import FunctionProcess
from infra.emulator.lambda_service.invocation import Invocation, InvocationOptions
from tests.support.aws.live_query_function import QUERY_PATH, QuerySurroundings, query_surroundings
from tests.support.http.event_stream import check_order, read_events
from tests.support.vendors.fake_embeddings import Reply as EmbeddingReply
from tests.support.vendors.fake_vendor import Reply
from vectorforge.local.postgres import EmbeddedPostgres

HANDLER = "tests.functions.inspected_query_handler.handler"
INVOCATIONS = 200
WARM_UP = 30
MEMORY_LIMIT_BYTES = 8_000_000
"""Less than 50 kB per invocation; the arenas of malloc and of Python grow in steps of up to 1 MB."""
POOLED = 3
"""Additional connections or threads of a pool, since two were used concurrently; a leak has one for each
round."""


@dataclass
class LostByTheService:
    """The function behind a service that cuts the runtime's connection after some bytes."""

    function: FunctionProcess

    async def invoke(self, event: object, **options: Unpack[InvocationOptions]) -> Invocation:
        return await self.function.invoke(event, **(options | {"abort_after": 3000}))


@dataclass
class Visitor:
    """Sends every kind of request to the function."""

    function: FunctionProcess
    surroundings: QuerySurroundings
    client: httpx2.AsyncClient
    lossy_client: httpx2.AsyncClient
    sent: int = 0

    def question(self, *, stream: bool = True) -> dict[str, Any]:
        self.sent += 1
        return {"query": f"Question {self.sent}: how long does a refund take?", "stream": stream}

    async def streamed(self) -> None:
        assert (await self._events())[-1] == "done"

    async def buffered(self) -> None:
        response = await self.client.post(QUERY_PATH, json=self.question(stream=False))
        assert (response.status_code, response.json()["response"]) == (200, "The answer is 42 [Source 1].")

    async def failed_before_the_first_byte(self) -> None:
        self.surroundings.embeddings.replies.append(EmbeddingReply(status=400))
        response = await self.client.post(QUERY_PATH, json=self.question())
        assert response.status_code == 422
        assert response.headers["content-type"] == "application/problem+json"

    async def failed_in_the_middle(self) -> None:
        self.surroundings.vendor.script(Reply(ending="cut"))
        assert (await self._events())[-1] == "error"

    async def client_gone(self) -> None:
        """Disconnect: the front door does not notify the function, which answers to the end."""
        async with self.client.stream("POST", QUERY_PATH, json=self.question()) as response:
            async for line in response.aiter_lines():
                if line.startswith("event: token"):
                    break

    async def lost_by_the_service(self) -> None:
        self.surroundings.vendor.script(Reply(texts=("word " * 200,) * 50, pause_s=0.001))
        with pytest.raises(httpx2.RemoteProtocolError):
            async with self.lossy_client.stream("POST", QUERY_PATH, json=self.question()) as response:
                await response.aread()

    async def not_a_request(self) -> None:
        invocation = await self.function.invoke({"Records": []})
        await invocation.ended.wait()
        assert invocation.error is not None

    async def _events(self) -> list[str]:
        async with self.client.stream("POST", QUERY_PATH, json=self.question()) as response:
            events = [event async for event in read_events(response.aiter_lines())]
        check_order(events)
        return [event.name for event in events]

    @property
    def ways(self) -> tuple[Callable[[], Awaitable[None]], ...]:
        return (
            self.streamed,
            self.buffered,
            self.failed_before_the_first_byte,
            self.failed_in_the_middle,
            self.client_gone,
            self.lost_by_the_service,
            self.not_a_request,
        )

    async def ask(self, times: int) -> None:
        for number in range(times):
            await self.ways[number % len(self.ways)]()

    async def held(self) -> dict[str, int]:
        invocation = await self.function.invoke({"inspect": True})
        counts: dict[str, int] = await invocation.result()
        return counts


@pytest.fixture
async def visitor(
    postgres_server: EmbeddedPostgres, make_tenant: Callable[[], str]
) -> AsyncIterator[Visitor]:
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        surroundings = await enter(query_surroundings(postgres_server.app_url, make_tenant()))
        environment = surroundings.environment(embedding_max_retries="0", llm_max_retries="0")
        function = await enter(FunctionProcess(surroundings.function(environment, handler=HANDLER)))
        front_door = await enter(FunctionUrl(function))
        lossy_front_door = await enter(FunctionUrl(LostByTheService(function)))
        yield Visitor(
            function,
            surroundings,
            await enter(surroundings.client(front_door.url)),
            await enter(surroundings.client(lossy_front_door.url)),
        )


@pytest.mark.slow
async def test_two_hundred_invocations_in_one_process_leak_nothing(visitor: Visitor) -> None:
    async with asyncio.timeout(120):
        await visitor.ask(WARM_UP)
        before = await visitor.held()
        await visitor.ask(INVOCATIONS - WARM_UP)
        after = await visitor.held()
    assert visitor.function.starts == 1
    grown = {name: after[name] - before[name] for name in before}
    assert grown.pop("memory") < MEMORY_LIMIT_BYTES, (before, after)
    allowed = {"sockets": POOLED, "files": POOLED, "threads": POOLED}
    left = {name: count for name, count in grown.items() if count > allowed.get(name, 0)}
    assert left == {}, (before, after)
