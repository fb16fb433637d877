"""Streams that are stopped, abandoned, oversize or cut off by a shutdown."""

import asyncio

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
        text = "".join(PIECES[:4])
        assert done.data["answer"] == text_of(events) == text
        assert [event.name for event in events].count("citation") == 2  # the citations so far
        assert (usage.name, usage.data["estimated"]) == ("usage", True)
        assert servers.llm.closed_early == 1  # the rest is not charged
        log = await servers.logged(query_id)
        assert (log["outcome"], log["generated_response"], log["error_code"]) == ("aborted", text, None)
        response_again = await other.post(stop)
        assert (response_again.status_code, response_again.content) == (204, b"")
        assert (await client.post(f"/v1/queries/{servers.collection_id}/stop")).status_code == 404


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
        await asyncio.sleep(3)  # twice as long as permitted without a reader, but it has one
        assert servers.llm.closed_early == 0
        servers.let_through(1)
        (token,) = await reading
        assert token.name == "token"
        log = await servers.logged(query_id)  # without readers it ends
        assert (log["outcome"], log["generated_response"]) == ("aborted", "".join(PIECES[:2]))
        assert servers.llm.closed_early == 1
        late = await resume(other, query_id, 4)  # the stored events and the end
        assert (late[-1].name, late[-1].data["finish_reason"]) == ("done", "stopped")


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


async def test_oversize_answer_is_not_buffered_to_its_end(make_instances: MakeInstances) -> None:
    servers: Instances = await make_instances(open_gate=False, stream_buffer_bytes=2000)
    async with servers.first.client(servers.tenant) as client, servers.second.client(servers.tenant) as other:
        servers.let_through(len(PIECES))
        whole = await servers.ask(client, until=-1)
        check_order(whole)  # its own client receives all of it
        assert text_of(whole) == ANSWER
        query_id = whole[0].data["request_id"]
        stored = await resume(other, query_id, 0)
        check_order(stored)
        assert stored[:-1] == whole[: len(stored) - 1]
        assert (stored[-1].name, stored[-1].data["code"]) == ("error", "stream_too_long")
        assert await resume(other, query_id, len(stored)) == []

        # After the disconnect such an answer has no possible reader, so it ends.
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
