"""Ingestion jobs through SQS: enqueued, run, rejected, without loss or duplicates."""

import asyncio
import json
from typing import Any
from uuid import UUID, uuid4

import pytest

from tests.support.aws.ingest_stage import TENANT, Stage, build, event
from tests.support.aws.lambda_context import LambdaContext
from tests.support.http.live_api import key_of
from tests.support.http.live_server import serve
from vectorforge.api.app import create_app
from vectorforge.aws.handlers.ingest import IngestFunction, handle
from vectorforge.db.repositories.job_repo import JobDispatcher
from vectorforge.deadline import Deadline


async def test_document_over_http_is_ingested_by_the_function(stage: Stage) -> None:
    app = create_app(stage.application)
    async with serve(app) as url:
        import httpx2

        headers = {"Authorization": f"Bearer {key_of(TENANT)}"}
        async with httpx2.AsyncClient(base_url=url, headers=headers) as client:
            made = await client.post("/v1/collections", json={"name": "default"})
            documents = [{"source": "refunds.txt", "text": "A refund takes five days."}]
            path = f"/v1/collections/{made.json()['id']}/documents"
            response = await client.post(path, json={"documents": documents})
            assert response.status_code == 202
            job_id = UUID(response.json()["id"])
            await asyncio.sleep(0.3)  # the server must leave it to the function
            assert (await stage.look(job_id)).status == "queued"
            assert json.loads(stage.queue.receive()[0]["body"]) == {
                "tenant_id": TENANT,
                "job_id": str(job_id),
                "waits": 0,
            }
            stage.queue.send(json.dumps({"tenant_id": TENANT, "job_id": str(job_id)}))
            await stage.application.open()
            assert await stage.deliver() == (1, [])
            answer = await client.post(
                f"/v1/collections/{made.json()['id']}/query", json={"query": "How long does a refund take?"}
            )
            assert "five days" in answer.text


# faults.md row 38
async def test_duplicate_messages_of_a_job_run_it_once(stage: Stage) -> None:
    job_id = await stage.job("one", "two", "three")
    for _ in range(49):
        await stage.application.background.announce_job(TENANT, job_id)
    for _ in range(5):
        assert await stage.deliver() == (10, [])
    assert await stage.deliver() == (0, [])
    assert stage.queue.count() == (0, 0, 0)
    assert stage.embedder.texts == ["one", "two", "three"]
    assert await stage.attempts(job_id) == [1, 1, 1]


async def test_concurrent_invocations_with_one_message_run_the_job_once(stage: Stage) -> None:
    job_id = await stage.job(*(f"Text number {n}" for n in range(8)))
    stage.embedder._delay_s = 0.05
    for _ in range(4):
        await stage.application.background.announce_job(TENANT, job_id)
    results = await asyncio.gather(*(stage.deliver(most=1) for _ in range(5)))
    assert [failed for _, failed in results] == [[]] * 5
    assert len(stage.embedder.texts) == 8
    assert (await stage.look(job_id)).status == "succeeded"


async def test_message_of_deleted_job_is_dropped(stage: Stage) -> None:
    await stage.job("text")
    collection = await stage.tenant.find_collection("default")
    await stage.tenant.collections.delete(collection.id)
    stage.queue.send(json.dumps({"tenant_id": "nobody", "job_id": str(uuid4())}))
    assert await stage.deliver() == (2, [])
    assert stage.queue.count() == (0, 0, 0)


async def test_message_of_job_claimed_elsewhere_is_delivered_again(stage: Stage) -> None:
    older = await stage.job("older")
    younger = await stage.job("younger")
    claimed = await JobDispatcher(stage.application.database).claim(60)
    assert claimed is not None
    assert claimed.job_id == older
    assert await stage.deliver() == (2, [])  # one is held, the other waits behind it and needs no message
    assert stage.queue.count() == (0, 0, 1)
    assert stage.embedder.texts == []

    await stage.tenant.jobs.release(older)
    stage.queue.send(json.dumps({"tenant_id": TENANT, "job_id": str(younger), "waits": 3}))
    assert await stage.deliver() == (1, [])
    assert stage.embedder.texts == ["older", "younger"]


async def test_waiting_jobs_keep_one_message(stage: Stage) -> None:
    texts = [f"Text number {n}" for n in range(20)]
    jobs = [await stage.job(text) for text in texts]
    claimed = await JobDispatcher(stage.application.database).claim(60)
    assert claimed is not None
    while (await stage.deliver())[0]:
        pass
    assert stage.queue.count() == (0, 0, 1)  # of the job that another worker holds

    await stage.tenant.jobs.release(claimed.job_id)  # that worker had to stop, and reports it
    await stage.application.background.announce_job(TENANT, claimed.job_id)
    assert await stage.deliver() == (1, [])
    assert [(await stage.look(job)).status for job in jobs] == ["succeeded"] * 20
    assert stage.embedder.texts == texts


async def test_older_job_of_the_collection_runs_first(stage: Stage) -> None:
    older = await stage.job("older")
    stage.queue.purge()
    younger = await stage.job("younger")
    assert await stage.deliver() == (1, [])
    assert stage.embedder.texts == ["older", "younger"]
    assert [(await stage.look(job)).status for job in (older, younger)] == ["succeeded"] * 2


async def test_message_of_finished_job_starts_nothing(stage: Stage) -> None:
    done = await stage.job("done")
    assert await stage.deliver() == (1, [])
    waiting = await stage.job("a document that may kill its function")
    stage.queue.purge()
    await stage.application.background.announce_job(TENANT, done)
    assert await stage.deliver() == (1, [])
    assert (await stage.look(waiting)).status == "queued"


# faults.md row 39
async def test_poison_message_goes_to_the_dead_letter_queue_alone(stage: Stage) -> None:
    job_id = await stage.job("text")
    poison = ["no JSON", "[]", "{}", '{"job_id": 7}', json.dumps({"tenant_id": "", "job_id": str(uuid4())})]
    poison += [json.dumps({"Records": [{"s3": {}}]}), json.dumps({"Records": 7}), "[" * 100_000]
    poison += [json.dumps({"tenant_id": TENANT, "job_id": str(uuid4()), "waits": "x"})]
    for body in poison:
        stage.queue.send(body)
    received, failed = await stage.deliver()
    assert (received, len(failed)) == (10, len(poison))
    assert (await stage.look(job_id)).status == "succeeded"
    for _ in range(6):
        await stage.deliver()
    assert stage.queue.count() == (0, 0, 0)
    assert stage.queue.count(dead=True) == (len(poison), 0, 0)


async def test_unreachable_database_fails_the_messages_without_loss(
    stage: Stage, fresh_database_url: str
) -> None:
    job_id = await stage.job("text")
    url = fresh_database_url + " host=127.0.0.1 port=1 connect_timeout=2"
    broken = build(url, stage.queue.url, stage.embedder)
    [record] = stage.queue.receive()
    answer = await handle(broken, {"Records": [record]}, Deadline.after(30))
    assert answer == {"batchItemFailures": [{"itemIdentifier": record["messageId"]}]}
    assert stage.queue.count() == (0, 1, 0)
    assert (await stage.look(job_id)).status == "queued"


async def test_event_of_a_job_in_its_real_shape_is_read(stage: Stage) -> None:
    assert await handle(stage.application, event("ingest_sqs_job"), Deadline.after(30)) == {
        "batchItemFailures": []  # there is no such job (any more)
    }


async def test_function_with_closed_loop_creates_another(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {
        "DATABASE_URL": stage.url,
        "INGESTION_QUEUE_URL": stage.queue.url,
        "EMBEDDING_BASE_URL": "http://127.0.0.1:1/v1",
        "EMBEDDING_MODEL": "m",
        "EMBEDDING_DIMENSION": "3",
    }
    for name, value in settings.items():
        monkeypatch.setenv(f"VECTORFORGE_{name}", value)
    function = IngestFunction()
    context = LambdaContext(remaining_ms=60_000)

    def twice() -> list[dict[str, Any] | None]:
        answers = [function({"Event": "s3:TestEvent"}, context)]  # opens a pool, and no connection in it
        assert function._loop is not None
        function._loop.close()  # as in a fork of the process, which has no such thread
        answers.append(function(event("ingest_sqs_job"), context))
        function.shutdown()
        return answers

    assert await asyncio.to_thread(twice) == [None, {"batchItemFailures": []}]
