"""A stream that is cut anywhere goes on at any instance: nothing is missing, nothing comes twice."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

import httpx2
import pytest

from tests.support.http.event_stream import ReceivedEvent, check_order, read_events
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
    """Two servers on one database; the model writes at the first one."""

    first: LiveApi
    second: LiveApi
    tenant: str
    stranger: str
    llm: ScriptedLLM
    gate: asyncio.Semaphore
    collection_id: str

    def let_through(self, pieces: int) -> None:
        """Let the model say so many pieces more."""
        for _ in range(pieces):
            self.gate.release()

    async def ask(
        self, client: httpx2.AsyncClient, *, until: int, path: str = "/v1/rag/query"
    ) -> "list[ReceivedEvent]":
        """The first events of a new answer; then the connection is cut."""
        async with client.stream("POST", path, json=QUESTION) as response:
            response.raise_for_status()
            return await first_events(response, until)

    async def logged(self, query_id: str) -> dict[str, Any]:
        """The record of the query's end."""
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
    """The events after one, as an ``EventSource`` asks for them."""
    headers = {"Last-Event-ID": str(after)}
    async with client.stream("GET", f"/v1/queries/{query_id}/events", headers=headers) as response:
        response.raise_for_status()
        if response.status_code == 204:
            return []
        return await first_events(response, until)


def text_of(events: Sequence[ReceivedEvent]) -> str:
    return "".join(event.data["text"] for event in events if event.name == "token")


MakeInstances = Callable[..., Any]

DIRECTLY = pytest.mark.parametrize("app_url", ["direct"], indirect=True)
"""Without PgBouncer: the others have been through it."""


@pytest.fixture
async def make_instances(app_url: str, make_tenant: Callable[[], str]) -> AsyncIterator[MakeInstances]:
    """Starts both, with these settings of streams."""
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


async def test_stream_interrupted_at_any_event_is_resumed_by_other_instance(
    make_instances: MakeInstances,
) -> None:
    servers: Instances = await make_instances()
    async with servers.first.client(servers.tenant) as client, servers.second.client(servers.tenant) as other:
        whole = await servers.ask(client, until=-1)
        check_order(whole)
        assert text_of(whole) == ANSWER == whole[-1].data["answer"]
        for cut in range(1, len(whole) + 1):
            events = await servers.ask(client, until=cut)
            assert len(events) == cut
            query_id = events[0].data["request_id"]
            events += await resume(other, query_id, cut)
            check_order(events)  # ids count 1, 2, 3, and the last event is the only terminal one
            assert [event.name for event in events] == [event.name for event in whole]
            assert text_of(events) == ANSWER
            log = await servers.logged(query_id)
            assert (log["outcome"], log["generated_response"]) == ("answered", ANSWER)


@DIRECTLY
@pytest.mark.parametrize("path", ["/v1/collections/{}/query", "/v1/docrag/query", "/v1/rag/query"])
async def test_native_surfaces_support_resume(make_instances: MakeInstances, path: str) -> None:
    servers: Instances = await make_instances()
    async with servers.first.client(servers.tenant) as client, servers.second.client(servers.tenant) as other:
        begun = await servers.ask(client, until=2, path=path.format(servers.collection_id))
        events = begun + await resume(other, begun[0].data["request_id"], 2)
    check_order(events)
    assert events[-1].name == "done"
    assert text_of(events) == events[-1].data["answer"]


async def test_repeatedly_interrupted_stream_with_slow_model_is_resumed(
    make_instances: MakeInstances,
) -> None:
    servers: Instances = await make_instances(open_gate=False)
    async with servers.first.client(servers.tenant) as client, servers.second.client(servers.tenant) as other:
        events = await servers.ask(client, until=3)
        query_id = events[0].data["request_id"]
        clients = [client, other]
        while events[-1].name not in ("done", "error"):
            servers.let_through(1)  # one more piece
            clients.reverse()
            events += await resume(clients[0], query_id, len(events), until=1)
        check_order(events)
        assert text_of(events) == ANSWER
        assert await resume(other, query_id, len(events)) == []  # 204
        again = await resume(other, query_id, 0)  # long after its end, and from its start
        assert again == events
        by_parameter = f"/v1/queries/{query_id}/events?last_event_id=1"  # of an EventSource's first request
        async with other.stream("GET", by_parameter) as response:
            assert await first_events(response, -1) == events[1:]
        async with other.stream("GET", by_parameter, headers={"Last-Event-ID": "5"}) as response:
            assert await first_events(response, -1) == events[5:]


@DIRECTLY
async def test_concurrent_readers_follow_the_same_answer(make_instances: MakeInstances) -> None:
    servers: Instances = await make_instances(open_gate=False)
    async with servers.first.client(servers.tenant) as client, servers.second.client(servers.tenant) as other:
        async with client.stream("POST", "/v1/rag/query", json=QUESTION) as response:
            events = read_events(response.aiter_lines())
            meta = await anext(events)
            query_id = meta.data["request_id"]
            readers = [asyncio.create_task(resume(who, query_id, 0)) for who in (client, other)]
            servers.let_through(len(PIECES))
            whole = [meta, *[event async for event in events]]
        assert await asyncio.gather(*readers) == [whole, whole]


async def test_answer_is_stopped_from_other_instance(make_instances: MakeInstances) -> None:
    servers: Instances = await make_instances(open_gate=False)
    async with servers.first.client(servers.tenant) as client, servers.second.client(servers.tenant) as other:
        servers.let_through(3)
        async with client.stream("POST", "/v1/rag/query", json=QUESTION) as response:
            events = await first_events(response, 7)  # meta, sources, four tokens, a citation
            query_id = events[0].data["request_id"]
            assert servers.llm.closed_early == 0
            stop = f"/v1/queries/{query_id}/stop"
            assert [(await other.post(stop)).status_code for _ in range(2)] == [202, 202]
        async with asyncio.timeout(10):
            events = await resume(other, query_id, 0)
        check_order(events)
        usage, done = events[-2:]
        assert (done.name, done.data["finish_reason"], done.data["outcome"]) == ("done", "stopped", "aborted")
        said = "".join(PIECES[:4])
        assert done.data["answer"] == text_of(events) == said
        assert [event.name for event in events].count("citation") == 2  # what was cited so far
        assert (usage.name, usage.data["estimated"]) == ("usage", True)
        assert servers.llm.closed_early == 1  # nobody pays for the rest
        log = await servers.logged(query_id)
        assert (log["outcome"], log["generated_response"], log["error_code"]) == ("aborted", said, None)
        response_again = await other.post(stop)
        assert (response_again.status_code, response_again.content) == (204, b"")
        assert (await client.post(f"/v1/queries/{servers.collection_id}/stop")).status_code == 404


@DIRECTLY
async def test_answer_is_stopped_before_first_token(make_instances: MakeInstances) -> None:
    servers: Instances = await make_instances()
    silent = ScriptedLLM(PIECES, delay_s=600)
    async with (
        live_api(servers.first.application.config, silent) as api,
        api.client(servers.tenant) as client,
        client.stream("POST", "/v1/rag/query", json=QUESTION) as response,
    ):
        lines = read_events(response.aiter_lines())
        events = [await anext(lines)]
        async with servers.second.client(servers.tenant) as other:
            stopped = await other.post(f"/v1/queries/{events[0].data['request_id']}/stop")
        assert stopped.status_code == 202
        async with asyncio.timeout(10):
            events += [event async for event in lines]
    check_order(events)
    assert [event.name for event in events] == ["meta", "sources", "usage", "done"]
    assert (events[-1].data["answer"], events[-1].data["finish_reason"]) == ("", "stopped")


async def test_abandoned_answer_is_stopped_after_grace_period(make_instances: MakeInstances) -> None:
    servers: Instances = await make_instances(open_gate=False, resume_grace_s=1.5)
    async with servers.first.client(servers.tenant) as client, servers.second.client(servers.tenant) as other:
        query_id = (await servers.ask(client, until=3))[0].data["request_id"]
        reading = asyncio.create_task(resume(other, query_id, 3, until=1))
        await asyncio.sleep(3)  # twice as long as it may be without a reader, but it has one
        assert servers.llm.closed_early == 0
        servers.let_through(1)
        (token,) = await reading
        assert token.name == "token"
        log = await servers.logged(query_id)  # without anybody it ends by itself
        assert (log["outcome"], log["generated_response"]) == ("aborted", "".join(PIECES[:2]))
        assert servers.llm.closed_early == 1
        late = await resume(other, query_id, 4)  # who comes back after that gets what there is, and the end
        assert (late[-1].name, late[-1].data["finish_reason"]) == ("done", "stopped")


@DIRECTLY
async def test_non_resumable_stream_ends_with_its_client(make_instances: MakeInstances) -> None:  # C31
    servers: Instances = await make_instances(open_gate=False)
    async with servers.first.client(servers.tenant) as client, servers.second.client(servers.tenant) as other:
        body = {**QUESTION, "resumable": False}
        async with client.stream("POST", "/v1/rag/query", json=body) as response:
            query_id = (await first_events(response, 3))[0].data["request_id"]
        log = await servers.logged(query_id)
        assert (log["outcome"], log["generated_response"], servers.llm.closed_early) == (
            "aborted",
            PIECES[0],
            1,
        )
        assert (await other.get(f"/v1/queries/{query_id}/events")).status_code == 404
        assert (await other.post(f"/v1/queries/{query_id}/stop")).status_code == 404
        refused = await client.post("/v1/rag/query", json={**QUESTION, "stream": False})
        assert (refused.status_code, refused.json()["errors"][0]["field"]) == (422, "resumable")


@DIRECTLY
async def test_running_answer_of_other_tenant_returns_404(make_instances: MakeInstances) -> None:  # C17
    servers: Instances = await make_instances(open_gate=False)
    async with (
        servers.first.client(servers.tenant) as client,
        servers.second.client(servers.stranger) as other,
    ):
        query_id = (await servers.ask(client, until=3))[0].data["request_id"]
        for response in (
            await other.get(f"/v1/queries/{query_id}/events"),
            await other.post(f"/v1/queries/{query_id}/stop"),
        ):
            assert (response.status_code, response.json()["code"]) == (404, "not_found")
        servers.let_through(len(PIECES))
        assert (await resume(client, query_id, 0))[-1].data["finish_reason"] == "stop"  # and did not stop it


@DIRECTLY
async def test_invalid_last_event_id_returns_422(make_instances: MakeInstances) -> None:
    servers: Instances = await make_instances()
    path = f"/v1/queries/{servers.collection_id}/events"
    async with servers.second.client(servers.tenant) as client:
        for wrong in ("-1", "1.5", "x", "\u0661", "2147483647", "9" * 50):
            for response in (
                await client.get(path, params={"last_event_id": wrong}),
                await client.get(path, headers=[(b"Last-Event-ID", wrong.encode())]),
            ):
                assert response.status_code == 422
                assert response.json()["errors"][0]["field"] == "last_event_id"


@DIRECTLY
async def test_oversize_answer_is_not_buffered_to_its_end(make_instances: MakeInstances) -> None:
    servers: Instances = await make_instances(open_gate=False, stream_buffer_bytes=2000)
    async with servers.first.client(servers.tenant) as client, servers.second.client(servers.tenant) as other:
        servers.let_through(len(PIECES))
        whole = await servers.ask(client, until=-1)
        check_order(whole)  # its own client gets all of it
        assert text_of(whole) == ANSWER
        query_id = whole[0].data["request_id"]
        kept = await resume(other, query_id, 0)
        check_order(kept)
        assert kept[:-1] == whole[: len(kept) - 1]
        assert (kept[-1].name, kept[-1].data["code"]) == ("error", "stream_too_long")
        assert await resume(other, query_id, len(kept)) == []

        # Once its client has gone, nobody can read such an answer any more, so it ends.
        pieces, gate = ["word " * 1000, "more"], asyncio.Semaphore(0)
        long = ScriptedLLM(pieces, gate=gate)
        async with (
            live_api(servers.first.application.config, long) as api,
            api.client(servers.tenant) as lone,
        ):
            await servers.ask(lone, until=3)
            async with asyncio.timeout(10):
                while not long.closed_early:  # noqa: ASYNC110 - it has no event
                    await asyncio.sleep(0.02)


@DIRECTLY
async def test_server_shutdown_ends_running_answers_with_error(make_instances: MakeInstances) -> None:
    servers: Instances = await make_instances(open_gate=False)
    gated = ScriptedLLM(PIECES, gate=asyncio.Semaphore(0))
    async with live_api(servers.first.application.config, gated) as api, api.client(servers.tenant) as client:
        begun = await servers.ask(client, until=3)
    async with servers.second.client(servers.tenant) as other, asyncio.timeout(20):
        events = begun + await resume(other, begun[0].data["request_id"], len(begun))
    check_order(events)
    assert (events[-1].name, events[-1].data["code"]) == ("error", "stream_lost")
    assert gated.closed_early == 1


@DIRECTLY
async def test_stalled_client_does_not_block_other_readers(make_instances: MakeInstances) -> None:
    servers: Instances = await make_instances(resume_grace_s=2, stream_buffer_bytes=64_000_000)
    pieces = ["\U0001f600" * 25_000] * 40  # four megabytes: more than the buffers on the way hold
    small = httpx2.AsyncHTTPTransport(socket_options=[(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)])
    async with (
        live_api(servers.first.application.config, ScriptedLLM(pieces)) as api,
        api.client(servers.tenant, transport=small) as client,
        servers.second.client(servers.tenant) as other,
        client.stream("POST", "/v1/rag/query", json={**QUESTION, "max_tokens": 16_384}) as response,
    ):
        meta = await anext(read_events(response.aiter_lines()))  # and nothing is read from here on
        async with asyncio.timeout(60):
            events = await resume(other, meta.data["request_id"], 0)
    check_order(events)
    assert events[-1].name == "done"
    assert text_of(events) == "".join(pieces)
