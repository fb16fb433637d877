"""A large tenant for the erasure campaign: its data, its messages in transit, and their delivery."""

import asyncio
import json
from typing import Any

import httpx2
from psycopg.conninfo import make_conninfo

from tests.support.aws.fake_aws import FakeAws
from tests.support.aws.sqs_events import Queue
from tests.support.http.live_api import ask_streaming, new_collection
from tests.support.rag.query_logs import make_log, message
from vectorforge.aws.clients import AwsClients
from vectorforge.aws.handlers.ingest import handle
from vectorforge.aws.handlers.query_log_writer import QueryLogBatch
from vectorforge.aws.query_log_queue import QueryLogOverflow, QueryLogQueue
from vectorforge.bootstrap import Application
from vectorforge.db.connection import Database
from vectorforge.db.repositories.query_log_repo import QueryLogWriter
from vectorforge.deadline import Deadline

CANARY = "quokkasaurus"
TENANT, OTHER = "acme", "other"
_PASSAGES_A_DOCUMENT = 100
_DOCUMENTS_A_REQUEST = 10
_LARGE_CHARS = 1_200_000
"""Larger than an SQS message may be."""


async def fill(client: httpx2.AsyncClient, passages: int) -> int:
    """Add documents until the tenant has that many chunks; return their number."""
    collection = await new_collection(client)
    done = 0
    while done < passages:
        await add(client, collection, f"{CANARY} {done}", _DOCUMENTS_A_REQUEST)
        done = (await client.get(f"/v1/collections/{collection}")).json()["chunk_count"]
    return done


async def add(client: httpx2.AsyncClient, collection: str, word: str, documents: int) -> None:
    """Add documents of a hundred chunks each, and wait for them."""
    sent = [
        {
            "source": f"{word}-{number}.md",
            "text": "\n\n".join(
                f"{word} {number} {paragraph}: the dough of batch {paragraph * 7 % 101} rises {paragraph} "
                f"minutes, then rests at oven {number} until shift {paragraph % 9} has weighed it again."
                for paragraph in range(_PASSAGES_A_DOCUMENT)
            ),
            "media_type": "text/markdown",
        }
        for number in range(documents)
    ]
    answer = await client.post(f"/v1/collections/{collection}/documents", json={"documents": sent})
    answer.raise_for_status()
    async with asyncio.timeout(600):
        job: dict[str, Any] = {"status": "queued"}
        while job["status"] in ("queued", "running"):
            job = (await client.get(f"/v1/jobs/{answer.json()['id']}")).json()
            await asyncio.sleep(0.05)
    if job["status"] != "succeeded":
        raise RuntimeError("The documents could not be ingested.")


async def upload(ingest: Application, aws: FakeAws, uploads: Queue, bucket: str) -> None:
    """Upload a file to the bucket, ingest it, and enqueue its message a second time."""
    key = f"{TENANT}/{CANARY}/letter.txt"
    aws.client("s3").put_object(Bucket=bucket, Key=key, Body=f"A letter about the {CANARY}.".encode())
    record = {"eventSource": "aws:s3", "eventName": "ObjectCreated:Put"}
    record["s3"] = {"bucket": {"name": bucket}, "object": {"key": key, "sequencer": "01"}}  # type: ignore[assignment]
    for _ in range(2):
        uploads.send(json.dumps({"Records": [record]}))
    records = uploads.receive(most=1)
    await handle(ingest, {"Records": records}, Deadline.after(60))
    uploads.delete(records)


async def ask(client: httpx2.AsyncClient) -> None:
    """Query alone, in a conversation, and as resumable streams."""
    conversation = (await client.post("/v1/conversations", json={"title": f"The {CANARY}"})).json()["id"]
    for number in range(5):
        question = {"query": f"How long does the dough of the {CANARY} {number} rise?"}
        (await client.post("/v1/rag/query", json=question)).raise_for_status()
        in_conversation = {**question, "conversation_id": conversation}
        (await client.post("/v1/rag/query", json=in_conversation)).raise_for_status()
        await ask_streaming(client, "/v1/rag/query", {**question, "resumable": True})


async def log_large(queue: Queue, overflow_bucket: str) -> None:
    """Send a record that is too large for the queue, as servers do."""
    sender = QueryLogQueue(AwsClients(), queue.url, overflow_bucket=overflow_bucket, timeout_s=20)
    answer = f"The {CANARY} rises. " * (_LARGE_CHARS // 20)
    await sender.for_tenant(TENANT).create(make_log(query_text=CANARY, generated_response=answer))
    await sender.aclose()


def fail_for_good(queue: Queue) -> None:
    """Send a valid record that failed to be stored five times, as in a long outage: a dead letter."""
    queue.send(message(TENANT, make_log(query_text=CANARY, generated_response=CANARY)))
    while (event := queue.event()) is not None:
        queue.settle(event, None)


def redrive(queue: Queue) -> int:
    """Redrive the dead letters; return the occurrences of the canary in them."""
    bodies = queue.bodies(dead=True)
    queue.send(*bodies)
    return sum(body.count(CANARY) for body in bodies)


async def deliver_logs(queue: Queue, migrator_url: str, overflow_bucket: str) -> None:
    """Store the records in the queue with the log writer's code."""
    url, clients = make_conninfo(migrator_url, user="vectorforge_log_writer"), AwsClients()
    overflow = QueryLogOverflow(clients, overflow_bucket)
    async with Database(url, pool_size=1) as database:
        while records := queue.receive():
            batch = QueryLogBatch()
            batch.read(records)
            await batch.store(QueryLogWriter(database), overflow)
            queue.delete([record for record in records if record["messageId"] not in batch.failures])
    clients.close()


async def deliver_uploads(ingest: Application, queue: Queue) -> None:
    """Process the messages in the queue with the ingest function's code."""
    while records := queue.receive():
        answer = await handle(ingest, {"Records": records}, Deadline.after(60))
        failed = {one["itemIdentifier"] for one in (answer or {}).get("batchItemFailures", [])}
        queue.delete([record for record in records if record["messageId"] not in failed])


async def erase(client: httpx2.AsyncClient) -> dict[str, Any]:
    """Erase the tenant; return the response with the certificate."""
    answer = await client.delete("/v1/tenant", params={"confirm": TENANT}, timeout=300)
    answer.raise_for_status()
    body: dict[str, Any] = answer.json()
    while body["status"] != "done":
        await asyncio.sleep(0.2)
        body = (await client.get(f"/v1/erasures/{body['id']}")).json()
    return body


def objects_of(aws: FakeAws, bucket: str) -> bytes:
    """Return all names and contents of a bucket."""
    s3 = aws.client("s3")
    keys = [found["Key"] for found in s3.list_objects_v2(Bucket=bucket).get("Contents", [])]
    return b"\n".join(
        key.encode() + b"\n" + s3.get_object(Bucket=bucket, Key=key)["Body"].read() for key in keys
    )
