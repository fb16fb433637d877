"""The HTTP client, blocking and asynchronous, with a running server."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest

from tests.support.http.cuttable_relay import cuttable
from tests.support.http.live_api import LiveApi, add_documents, key_of, live_api, new_collection, settings_for
from tests.support.vendors.scripted_llm import ScriptedLLM
from vectorforge.http_client import AnswerEvent, AsyncVectorForge, Citation, Done, Sources, Token, VectorForge
from vectorforge.http_client.errors import (
    InvalidRequestError,
    JobNotFinishedError,
    MissingObjectError,
    RateLimitedError,
    ServerUnreachableError,
    StateConflictError,
    StreamInterruptedError,
    UnauthenticatedError,
)
from vectorforge.http_client.models import Meta
from vectorforge.http_client.stored_models import Job
from vectorforge.limits.settings import Limits
from vectorforge.local.postgres import EmbeddedPostgres

REFUNDS = "The finance team approves every refund above 500 euros."
QUERY = "Who approves refunds?"
PIECES = ("The finance ", "team ", "approves them. ", "[Context 1]")


@dataclass
class Caller:
    """Awaits the methods of either client."""

    client: VectorForge | AsyncVectorForge

    async def __call__(self, method: str, *args: Any, **options: Any) -> Any:
        bound = attrgetter(method)(self.client)
        if isinstance(self.client, VectorForge):
            return await asyncio.to_thread(bound, *args, **options)
        return await bound(*args, **options)

    async def events(self, query: str, **options: Any) -> AsyncGenerator[AnswerEvent, None]:
        if isinstance(self.client, AsyncVectorForge):
            async with aclosing(self.client.stream(query, **options)) as stream:
                async for event in stream:
                    yield event
            return
        blocking = self.client.stream(query, **options)

        def following() -> AnswerEvent | None:
            return next(blocking, None)

        try:
            while (found := await asyncio.to_thread(following)) is not None:
                yield found
        finally:
            await asyncio.to_thread(blocking.close)


@dataclass
class Surroundings:
    """A server with a scripted model, and its tenant."""

    api: LiveApi
    llm: ScriptedLLM
    gate: asyncio.Semaphore
    tenant: str

    async def hold_answers(self) -> None:
        """Hold streams after their first token."""
        while not self.gate.locked():
            await self.gate.acquire()

    def release_answers(self) -> None:
        for _ in range(100):
            self.gate.release()


@pytest.fixture
async def server(
    postgres_server: EmbeddedPostgres, make_tenant: Callable[[], str]
) -> AsyncIterator[Surroundings]:
    gate, tenant = asyncio.Semaphore(100), make_tenant()
    llm = ScriptedLLM(PIECES, gate=gate)
    async with live_api(settings_for(postgres_server.app_url, [tenant]), llm) as api:
        async with api.client(tenant) as client:
            await add_documents(client, await new_collection(client), refunds=REFUNDS)
        yield Surroundings(api, llm, gate, tenant)


@pytest.fixture(params=["sync", "async"])
def mode(request: pytest.FixtureRequest) -> str:
    return str(request.param)


async def caller_of(mode: str, url: str, key: str | None, **options: Any) -> Caller:
    return Caller((VectorForge if mode == "sync" else AsyncVectorForge)(url, key, **options))


@pytest.fixture
async def call(server: Surroundings, mode: str) -> AsyncIterator[Caller]:
    caller = await caller_of(mode, server.api.url, key_of(server.tenant))
    yield caller
    await caller("close")


async def test_documents_are_added_found_rated_and_erased(
    server: Surroundings, call: Caller, tmp_path: Path
) -> None:
    created = await call("collections.create", "Team A/notes", dense_weight=0.4)
    name = created.name
    seen: list[Job] = []
    notes = [{"source": "refunds.md", "text": REFUNDS, "metadata": {"team": "finance"}}]
    job = await call("documents.add", name, notes)
    finished = await call("jobs.wait", job.id, on_progress=seen.append)
    assert (finished.status, finished.documents_done) == ("succeeded", 1)
    assert seen[-1] == finished
    (tmp_path / "holidays.md").write_text("Everybody has thirty days of holidays.")
    job = await call("documents.add", name, files=[tmp_path / "holidays.md"], metadata={"team": "hr"})
    await call("jobs.wait", job.id)
    listed = await call("documents.list", name, filters={"team": "finance"})
    assert [document.source for document in listed.documents] == ["refunds.md"]
    assert await call("documents.get", listed.documents[0].id) == listed.documents[0]
    found = await call("search", QUERY, collection=name, top_k=1)
    assert [result.source for result in found.results] == ["refunds.md"]
    answer = await call("query", QUERY, collection=name, filters={"team": "finance"})
    assert answer.response == "The finance team approves them. [Context 1]"
    assert answer.context[answer.citations[0].source_number - 1].metadata["team"] == "finance"
    rating = await call("feedback.create", answer.query_id, "down", reasons=["incomplete"])
    assert (rating.query_id, rating.reasons) == (answer.query_id, ["incomplete"])
    assert (await call("collections.update", name, dense_weight=0.2)).dense_weight == 0.2
    assert (await call("documents.delete", listed.documents[0].id)).status == "done"
    assert (await call("collections.delete", created.id)).kind == "collection"
    assert name not in {collection.name for collection in (await call("collections.list")).collections}


async def test_base_url_of_openai_clients_is_accepted(server: Surroundings, mode: str) -> None:
    caller = await caller_of(mode, f"{server.api.url}/v1/", key_of(server.tenant))
    assert (await caller("search", QUERY)).results
    await caller("close")


async def test_stream_yields_typed_events(server: Surroundings, call: Caller) -> None:
    events = [event async for event in call.events(QUERY)]
    done = events[-1]
    assert isinstance(done, Done)
    assert "".join(event.text for event in events if isinstance(event, Token)) == done.answer
    (sources,) = [event for event in events if isinstance(event, Sources)]
    (citation,) = [event for event in events if isinstance(event, Citation)]
    assert citation.chunk_id == sources.sources[0].chunk_id


async def test_problems_are_typed_errors(server: Surroundings, call: Caller, mode: str) -> None:
    with pytest.raises(InvalidRequestError) as invalid:
        await call("query", QUERY, k=21)
    assert (invalid.value.status, invalid.value.code, invalid.value.field) == (422, "invalid_input", "k")
    assert invalid.value.errors[0]["limit"] == 20
    assert str(invalid.value).count("less than or equal") == 1
    with pytest.raises(InvalidRequestError):
        await anext(call.events(QUERY, k=21))
    with pytest.raises(MissingObjectError) as missing:
        await call("collections.get", "a/b")
    assert (missing.value.code, missing.value.detail) == ("not_found", 'There is no collection "a/b".')
    assert missing.value.request_id in str(missing.value)
    with pytest.raises(StateConflictError):
        await call("collections.create", "default")
    stranger = await caller_of(mode, server.api.url, "wrong")
    with pytest.raises(UnauthenticatedError):
        await stranger("search", QUERY)
    await stranger("close")
    absent = await caller_of(mode, "http://127.0.0.1:1", None, retries=1)
    with pytest.raises(ServerUnreachableError, match=r"POST http://127\.0\.0\.1:1/v1/rag/query"):
        await absent("query", QUERY)
    await absent("close")


async def test_job_that_does_not_finish_in_time_is_an_error(server: Surroundings, call: Caller) -> None:
    await server.api.application.background.worker.stop()
    job = await call("documents.add", "default", [{"source": "later.md", "text": "Later."}])
    with pytest.raises(JobNotFinishedError, match="queued"):
        await call("jobs.wait", job.id, timeout_s=0.3)


async def test_stream_over_limit_is_retried_after_a_while(server: Surroundings, mode: str) -> None:
    limits = Limits(concurrent_streams=1)
    await server.api.application.for_tenant(server.tenant).limits.own.change(limits)
    await server.hold_answers()
    async with live_api(server.api.application.config, server.llm) as api:  # knows the limit
        call = await caller_of(mode, api.url, key_of(server.tenant))
        first = call.events(QUERY)
        await anext(first)
        hasty = await caller_of(mode, api.url, key_of(server.tenant), retries=0)
        with pytest.raises(RateLimitedError) as limited:
            await anext(hasty.events(f"{QUERY} Now?"))
        assert (limited.value.status, limited.value.code) == (429, "limit_exceeded")
        assert limited.value.retry_after_s == 1
        second = asyncio.create_task(collected(call.events(f"{QUERY} Now?")))
        await asyncio.sleep(0.2)
        server.release_answers()
        assert isinstance((await collected(first))[-1], Done)
        assert isinstance((await asyncio.wait_for(second, 30))[-1], Done)
        for caller in (call, hasty):
            await caller("close")


async def collected(events: AsyncGenerator[AnswerEvent, None]) -> list[AnswerEvent]:
    return [event async for event in events]


async def until(happens: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while True:
            if happens():
                return
            await asyncio.sleep(0.02)


async def check_aborted(server: Surroundings, meta: AnswerEvent | None) -> None:
    """Check that the only query was stopped, and did not run into the model's time limit."""
    await until(lambda: server.llm.closed_early == 1)
    assert isinstance(meta, Meta)
    logs = server.api.application.for_tenant(server.tenant).query_logs
    async with asyncio.timeout(10):
        while True:
            logged = await logs.find_by_id(meta.request_id)
            if logged is not None and logged.outcome != "started":
                break
            await asyncio.sleep(0.02)
    assert logged.outcome == "aborted"


async def test_closing_the_stream_stops_the_answer(server: Surroundings, call: Caller) -> None:
    await server.hold_answers()
    meta = None
    async with aclosing(call.events(QUERY)) as events:
        async for event in events:
            meta = meta or event
            if isinstance(event, Token):
                break
    await check_aborted(server, meta)
    server.release_answers()
    assert (await call("query", QUERY)).response  # the client is usable


async def test_cancelled_task_stops_the_answer(server: Surroundings) -> None:
    async with AsyncVectorForge(server.api.url, key_of(server.tenant)) as client:
        await server.hold_answers()
        received = asyncio.Queue[AnswerEvent]()

        async def read() -> None:
            async with aclosing(client.stream(QUERY)) as events:
                async for event in events:
                    received.put_nowait(event)

        task = asyncio.create_task(read())
        meta = await received.get()
        while not isinstance(await received.get(), Token):
            pass
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await check_aborted(server, meta)
        server.llm._delay_s = 30
        buffered = asyncio.create_task(client.query(f"{QUERY} Now?"))
        await asyncio.sleep(0.2)
        buffered.cancel()
        with pytest.raises(asyncio.CancelledError):
            await buffered
        server.llm._delay_s = 0
        assert (await client.query(QUERY)).response


async def test_connection_lost_in_mid_stream_is_an_error_and_its_key_has_the_answer(
    server: Surroundings, mode: str
) -> None:
    await server.hold_answers()
    async with cuttable(server.api.url) as relay:
        call = await caller_of(mode, relay.url, key_of(server.tenant))
        seen: list[AnswerEvent] = []

        async def read_and_cut() -> None:
            async for event in call.events(QUERY):
                seen.append(event)
                if isinstance(event, Token):
                    relay.cut()

        with pytest.raises(StreamInterruptedError) as interrupted:
            await read_and_cut()
        error = interrupted.value
        assert int(error.last_event_id) == len(seen)
        assert len(server.llm.calls) == 1, "a stream is not repeated after its first event"
        server.release_answers()
        again = await collected(call.events(QUERY, idempotency_key=error.idempotency_key))
        assert isinstance(again[-1], Done)
        assert again[-1].answer == "The finance team approves them. [Context 1]"
        assert again[: len(seen)] == seen
        assert len(server.llm.calls) == 1
        await call("close")


async def test_query_whose_connection_is_lost_is_repeated_under_its_key(
    server: Surroundings, mode: str
) -> None:
    server.llm._delay_s = 2
    async with cuttable(server.api.url) as relay:
        call = await caller_of(mode, relay.url, key_of(server.tenant))
        query = asyncio.create_task(call("query", QUERY))
        await until(lambda: bool(server.llm.calls))
        relay.cut()
        assert (await query).response == "The finance team approves them. [Context 1]"
        assert len(server.llm.calls) == 1
        await call("close")
