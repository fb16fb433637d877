"""Erase a large tenant, and search a full dump of the database, the queues and the logs for its data.

python -m tests.campaigns erasure
"""

import argparse
import asyncio
import logging
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from psycopg.conninfo import make_conninfo
from rich.console import Console

from tests.campaigns.erasure_tenant import (
    CANARY,
    OTHER,
    TENANT,
    add,
    ask,
    deliver_logs,
    deliver_uploads,
    erase,
    fail_for_good,
    fill,
    log_large,
    objects_of,
    redrive,
    upload,
)
from tests.campaigns.fault_campaign import machine, short_folder
from tests.campaigns.faults.report import write_section
from tests.support.aws.fake_aws import FakeAws
from tests.support.aws.sqs_events import Queue
from tests.support.http.live_api import build_application, live_api, new_collection, settings_for
from tests.support.postgres.tenant_dump import dump_database
from vectorforge.config import AwsSettings, IngestionSettings
from vectorforge.db.schema.migrate import migrate
from vectorforge.erasure.repo import sha256_of
from vectorforge.local.postgres import EmbeddedPostgres

_EXPLANATION = """
A server with a log queue, a bucket for large records and one for uploads gets documents of a tenant, as many
as asked for, and questions, conversations and streams; the canary word stands in all of them. Half of the
query log is written, the other half waits in its queue, with a large record in its bucket; a record is a dead
letter, and the message of an uploaded file waits, too. Then the tenant is erased over HTTP, the queues are
delivered, the dead letter is redriven, and everything is searched for the canary: pg_dump of the whole
database, both queues with their dead-letter queues, both buckets, and what the server logged. Not searched:
write-ahead logs, backups and free space of the database's files, which an erasure does not reach.

exit code: 0 nothing was found and it was in time, 1 something was found or it was not, 2 the arguments are
"""


@dataclass
class Findings:
    """Result of a run."""

    chunks: int = 0
    before: int = 0
    """Occurrences of the canary in the dump before the erasure."""
    filling_s: float = 0.0
    erasure_s: float = 0.0
    dead_letters: int = 0
    """Occurrences in dead letters after the erasure, until they were redriven."""
    places: dict[str, int] = field(default_factory=dict)
    """Occurrences of the canary after the erasure, by place."""
    certificate_is_sound: bool = False
    others_untouched: bool = False

    def text(self) -> str:
        """Return the result as one paragraph."""
        places = ", ".join(f"{place}: {hits}" for place, hits in self.places.items())
        return (
            f"{self.chunks:,} chunks, added in {self.filling_s:.0f} s, erased in {self.erasure_s:.1f} s. "
            f"The canary occurred in the dump {self.before:,} times before; afterwards, in {places}. "
            f"In dead letters, until they were redriven: {self.dead_letters}."
        )

    def violations(self, limit_s: float) -> list[str]:
        """Return the violated requirements."""
        found = [f"the canary is in {place}: {hits} times" for place, hits in self.places.items() if hits]
        if self.erasure_s > limit_s:
            found.append(f"it took {self.erasure_s:.1f} s; at most {limit_s:.0f} s are allowed")
        if not self.before:
            found.append("the canary was not in the dump before: the search would find nothing")
        if not self.dead_letters:
            found.append("the canary was in no dead letter: the search would find nothing")
        if not self.certificate_is_sound:
            found.append("the certificate's SHA-256 or its counts are wrong")
        if not self.others_untouched:
            found.append("another tenant's documents are not all there")
        return found


class _Heard(logging.Handler):
    """Record all log records of the library with their fields."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(f"{record.getMessage()} {vars(record)}")


async def run_campaign(
    migrator_url: str, aws: FakeAws, *, chunks: int, say: Callable[[str], object] = lambda _: None
) -> Findings:
    """Ingest, query, erase, deliver messages and search for leftovers.

    Args:
        migrator_url: Connection string of a superuser to a separate migrated database.
        aws: AWS services in the environment of this process.
        chunks: Minimum number of the tenant's chunks.
        say: Called with a description of each step.
    """
    logs, uploads = Queue(aws.client("sqs"), "query-logs"), Queue(aws.client("sqs"), "ingestion")
    bucket, overflow = aws.create_bucket(), aws.create_bucket()
    app_url = make_conninfo(migrator_url, user="vectorforge_app")
    aws_of_server = AwsSettings(
        query_log_queue_url=logs.url,
        query_log_overflow_bucket=overflow,
        uploads_bucket=bucket,
        query_log_timeout_s=5,
    )
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
            began = time.monotonic()
            findings.chunks = await fill(client, chunks)
            findings.filling_s = time.monotonic() - began
            await add(other, await new_collection(other), "An", 1)
            await upload(ingest, aws, uploads, bucket)
            fail_for_good(logs)
            await ask(client)
            await log_large(logs, overflow)
            await deliver_logs(logs, migrator_url, overflow)
            await ask(client)  # these wait in the queue
            await log_large(logs, overflow)
            findings.before = dump_database(migrator_url).count(CANARY.encode())
            say(f"erasing {findings.chunks:,} chunks")
            began = time.monotonic()
            body = await erase(client)
            findings.erasure_s = time.monotonic() - began
            say("delivering what waited in the queues")
            await deliver_logs(logs, migrator_url, overflow)
            await deliver_uploads(ingest, uploads)
            findings.dead_letters = redrive(logs)
            await deliver_logs(logs, migrator_url, overflow)
            findings.certificate_is_sound = _is_sound(body, findings.chunks)
            listed = (await other.get("/v1/collections")).json()["collections"]
            findings.others_untouched = [one["document_count"] for one in listed] == [1]
    finally:
        library.removeHandler(heard)
    say("searching")
    queues = [(name, dead) for name in (logs, uploads) for dead in (False, True)]
    found = {
        "the dump": dump_database(migrator_url),
        "the queues": "".join(body for queue, dead in queues for body in queue.bodies(dead=dead)).encode(),
        "the bucket of uploads": objects_of(aws, bucket),
        "the overflow bucket": objects_of(aws, overflow),
        "the logs": "\n".join(heard.lines).encode(),
    }
    findings.places = {place: text.count(CANARY.encode()) for place, text in found.items()}
    return findings


def _is_sound(body: dict[str, Any], chunks: int) -> bool:
    """Return whether a certificate is unchanged and has the right counts."""
    certificate = body["certificate"]
    erased = certificate["erased"]
    return (
        sha256_of(certificate) == body["sha256"]
        and (erased["chunks"], erased["embeddings"]) == (chunks + 1, chunks + 1)
        and erased["uploaded files"] == 1
    )


async def _run(options: argparse.Namespace, folder: Path) -> Findings:
    server = EmbeddedPostgres(folder / "postgres")
    await asyncio.to_thread(server.start)
    try:
        await migrate(server.migrator_url)
        with FakeAws() as aws:
            os.environ.update(aws.environment)
            return await run_campaign(server.migrator_url, aws, chunks=options.chunks, say=Console().print)
    finally:
        await asyncio.to_thread(server.stop, force=True)


def main(arguments: list[str] | None = None) -> None:
    """Run the campaign with the options of the command line, and write the report."""
    parser = argparse.ArgumentParser(
        prog='make campaign ARGS="erasure"',
        description=(__doc__ or "").splitlines()[0],
        epilog=_EXPLANATION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--chunks", type=int, default=10_000, help="of the tenant (default 10,000)")
    parser.add_argument("--limit", type=float, default=60.0, help="seconds for the erasure (default 60)")
    parser.add_argument("--no-page", action="store_true", help="do not write docs/results/reliability.md")
    options = parser.parse_args(arguments)
    if options.chunks < 1 or options.limit <= 0:
        parser.error("--chunks must be at least 1 and --limit more than 0.")
    logging.getLogger("werkzeug").setLevel(logging.ERROR)  # moto's logs would name every request
    with short_folder() as folder:
        findings = asyncio.run(_run(options, folder))
    violations = findings.violations(options.limit)
    print(findings.text(), *violations, f"{len(violations)} violations", sep="\n")
    if not options.no_page:
        write_section("erasure", f"{machine()}: {findings.text()} {len(violations)} violations.")
    sys.exit(1 if violations else 0)


if __name__ == "__main__":
    main()
