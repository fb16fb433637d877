"""Erases a large tenant, and looks for what it held in a full dump of the database, the queues and the logs.

python -m tests.campaigns.erasure_campaign
"""

import argparse
import asyncio
import json
import logging
import os
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
from psycopg.conninfo import make_conninfo
from rich.console import Console

from vectorforge.bootstrap import Application
from vectorforge.config import AwsSettings, IngestionSettings
from vectorforge.db.connection import Database
from vectorforge.db.migrate import migrate
from vectorforge.db.repositories.query_log_writer import QueryLogWriter
from vectorforge.deadline import Deadline
from vectorforge.erasure.certificate import sha256_of
from vectorforge.local.postgres import EmbeddedPostgres
from vectorforge.serverless.ingest import handle
from vectorforge.serverless.query_log_batch import QueryLogBatch
from vectorforge.testing.fake_aws import FakeAws
from vectorforge.testing.live_api import (
    ask_streaming,
    build_application,
    live_api,
    new_collection,
    settings_for,
)
from vectorforge.testing.sqs_events import Queue
from vectorforge.testing.tenant_dump import dump_database

_EXPLANATION = """
A server with a log queue and a bucket for uploads gets documents of a tenant, as many as asked for,
and questions, conversations and streams; the canary word stands in all of them. Half of the query log is
written, the other half waits in its queue, and so does the message of an uploaded file. Then the tenant is
erased over HTTP, the queues are delivered, and everything is searched for the canary: pg_dump of the whole
database, both queues with their dead-letter queues, the bucket, and what the server logged.

exit code: 0 nothing was found and it was in time, 1 something was found or it was not, 2 the arguments are
"""
CANARY = "quokkasaurus"
TENANT, OTHER = "acme", "other"
_PASSAGES_A_DOCUMENT = 100
_DOCUMENTS_A_REQUEST = 10


@dataclass
class Findings:
    """What the run has shown."""

    passages: int = 0
    before: int = 0
    """Times the canary stood in the dump before."""
    erasure_s: float = 0.0
    places: dict[str, int] = field(default_factory=dict)
    """Times the canary was found afterwards, by place."""
    certificate_is_sound: bool = False
    others_untouched: bool = False

    def violations(self, limit_s: float) -> list[str]:
        """What is not as it has to be."""
        found = [f"the canary is in {place}: {hits} times" for place, hits in self.places.items() if hits]
        if self.erasure_s > limit_s:
            found.append(f"it took {self.erasure_s:.1f} s; at most {limit_s:.0f} s are allowed")
        if not self.before:
            found.append("the canary was not in the dump before: the search would find nothing")
        if not self.certificate_is_sound:
            found.append("the certificate's SHA-256 or its counts are wrong")
        if not self.others_untouched:
            found.append("another tenant's documents are not all there")
        return found


class _Heard(logging.Handler):
    """Everything that the library logs, with its fields."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(f"{record.getMessage()} {vars(record)}")


async def run_campaign(
    migrator_url: str, aws: FakeAws, *, passages: int, say: Callable[[str], object] = lambda _: None
) -> Findings:
    """Fill, ask, erase, deliver, search.

    Args:
        migrator_url: A migrated database of its own, as a superuser.
        aws: Whose environment is this process's.
        passages: Of the tenant, at least.
        say: Is told what is being done.
    """
    logs, uploads = Queue(aws.client("sqs"), "query-logs"), Queue(aws.client("sqs"), "ingestion")
    bucket = aws.create_bucket()
    app_url = make_conninfo(migrator_url, user="vectorforge_app")
    aws_of_server = AwsSettings(query_log_queue_url=logs.url, uploads_bucket=bucket, query_log_timeout_s=5)
    chunking = IngestionSettings(chunk_size_chars=220, chunk_overlap_chars=0)
    server = settings_for(app_url, [TENANT, OTHER], aws=aws_of_server, ingestion=chunking)
    function = settings_for(app_url, aws=AwsSettings(ingestion_queue_url=uploads.url, uploads_bucket=bucket))
    heard, library, findings = _Heard(), logging.getLogger("vectorforge"), Findings()
    library.addHandler(heard)
    try:
        async with (
            build_application(function) as ingest,
            live_api(server) as api,
            api.client(TENANT) as client,
            api.client(OTHER) as other,
        ):
            say("filling")
            findings.passages = await _fill(client, passages)
            await _add(other, await new_collection(other), "An", 1)
            await _upload(ingest, aws, uploads, bucket)
            await _ask(client)
            await _deliver_logs(logs, migrator_url)
            await _ask(client)  # these wait in the queue
            findings.before = dump_database(migrator_url).count(CANARY.encode())
            say(f"erasing {findings.passages:,} passages")
            began = time.monotonic()
            body = await _erase(client)
            findings.erasure_s = time.monotonic() - began
            say("delivering what waited in the queues")
            await _deliver_logs(logs, migrator_url)
            await _deliver_uploads(ingest, uploads)
            certificate = body["certificate"]
            findings.certificate_is_sound = (
                sha256_of(certificate) == body["sha256"]
                and certificate["erased"]["chunks"] == findings.passages + 1
                and certificate["erased"]["uploaded files"] == 1
            )
            listed = (await other.get("/v1/collections")).json()["collections"]
            findings.others_untouched = [one["document_count"] for one in listed] == [1]
    finally:
        library.removeHandler(heard)
    say("searching")
    found = {
        "the dump": dump_database(migrator_url),
        "the queues": "".join(
            body for queue in (logs, uploads) for dead in (False, True) for body in queue.bodies(dead=dead)
        ).encode(),
        "the bucket": json.dumps(aws.client("s3").list_objects_v2(Bucket=bucket), default=str).encode(),
        "the logs": "\n".join(heard.lines).encode(),
    }
    findings.places = {place: text.count(CANARY.encode()) for place, text in found.items()}
    return findings


async def _fill(client: httpx2.AsyncClient, passages: int) -> int:
    collection = await new_collection(client)
    done = 0
    while done < passages:
        await _add(client, collection, f"{CANARY} {done}", _DOCUMENTS_A_REQUEST)
        done = (await client.get(f"/v1/collections/{collection}")).json()["chunk_count"]
    return done


async def _add(client: httpx2.AsyncClient, collection: str, word: str, documents: int) -> None:
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


async def _upload(ingest: Application, aws: FakeAws, uploads: Queue, bucket: str) -> None:
    """A file in the bucket that was ingested, and its message once more."""
    key = f"{TENANT}/{CANARY}/letter.txt"
    aws.client("s3").put_object(Bucket=bucket, Key=key, Body=f"A letter about the {CANARY}.".encode())
    record = {"eventSource": "aws:s3", "eventName": "ObjectCreated:Put"}
    record["s3"] = {"bucket": {"name": bucket}, "object": {"key": key, "sequencer": "01"}}  # type: ignore[assignment]
    for _ in range(2):
        uploads.send(json.dumps({"Records": [record]}))
    records = uploads.receive(most=1)
    await handle(ingest, {"Records": records}, Deadline.after(60))
    uploads.delete(records)


async def _ask(client: httpx2.AsyncClient) -> None:
    conversation = (await client.post("/v1/conversations", json={"title": f"The {CANARY}"})).json()["id"]
    for number in range(5):
        question = {"query": f"How long does the dough of the {CANARY} {number} rise?"}
        (await client.post("/v1/rag/query", json=question)).raise_for_status()
        in_conversation = {**question, "conversation_id": conversation}
        (await client.post("/v1/rag/query", json=in_conversation)).raise_for_status()
        await ask_streaming(client, "/v1/rag/query", {**question, "resumable": True})


async def _deliver_logs(queue: Queue, migrator_url: str) -> None:
    url = make_conninfo(migrator_url, user="vectorforge_log_writer")
    async with Database(url, pool_size=1) as database:
        while records := queue.receive():
            batch = QueryLogBatch()
            batch.read(records)
            await batch.store(QueryLogWriter(database), None)
            queue.delete([record for record in records if record["messageId"] not in batch.failures])


async def _deliver_uploads(ingest: Application, queue: Queue) -> None:
    while records := queue.receive():
        answer = await handle(ingest, {"Records": records}, Deadline.after(60))
        failed = {one["itemIdentifier"] for one in (answer or {}).get("batchItemFailures", [])}
        queue.delete([record for record in records if record["messageId"] not in failed])


async def _erase(client: httpx2.AsyncClient) -> dict[str, Any]:
    answer = await client.delete("/v1/tenant", params={"confirm": TENANT}, timeout=300)
    answer.raise_for_status()
    body: dict[str, Any] = answer.json()
    while body["status"] != "done":
        await asyncio.sleep(0.2)
        body = (await client.get(f"/v1/erasures/{body['id']}")).json()
    return body


def main() -> None:
    """Parse the command line, run, print."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.campaigns.erasure_campaign",
        description=(__doc__ or "").splitlines()[0],
        epilog=_EXPLANATION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--passages", type=int, default=10_000, help="of the tenant (default 10000)")
    parser.add_argument("--limit", type=float, default=60.0, help="seconds for the erasure (default 60)")
    options = parser.parse_args()
    if options.passages < 1 or options.limit <= 0:
        parser.error("--passages must be at least 1 and --limit more than 0.")
    console = Console()
    with tempfile.TemporaryDirectory(prefix="vf-erasure-") as folder, FakeAws() as aws:
        Path(folder).chmod(0o755)  # as root, PostgreSQL runs as an account that has to pass through
        os.environ.update(aws.environment)
        server = EmbeddedPostgres(Path(folder) / "postgres")
        server.start()
        try:
            asyncio.run(migrate(server.migrator_url))
            findings = asyncio.run(
                run_campaign(server.migrator_url, aws, passages=options.passages, say=console.print)
            )
        finally:
            server.stop(force=True)
    violations = findings.violations(options.limit)
    console.print(f"{findings.passages:,} passages erased in {findings.erasure_s:.1f} s")
    console.print(
        f"the canary stood in the dump {findings.before:,} times before; afterwards: {findings.places}"
    )
    for violation in violations:
        console.print(f"[red]violation[/red] {violation}", highlight=False)
    console.print(f"{len(violations)} violations")
    sys.exit(1 if violations else 0)


if __name__ == "__main__":
    main()
