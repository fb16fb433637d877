"""A stream cut anywhere continues at any instance, without missing or repeated events."""

import asyncio
import socket

import httpx2
import pytest

from tests.integration.resumed_streams.conftest import (
    ANSWER,
    PIECES,
    QUESTION,
    Instances,
    MakeInstances,
    first_events,
    resume,
    text_of,
)
from tests.support.http.event_stream import check_order, read_events
from tests.support.http.live_api import live_api
from tests.support.vendors.scripted_llm import ScriptedLLM


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
