"""Ingest function: runs ingestion jobs and creates jobs for uploads to S3.

An invocation works like a server's ingestion worker: it claims waiting jobs, tenants in turn, until none is
left. Before its timeout it stops between two documents and announces its unfinished jobs again, so that a
long job costs no delivery attempts. Messages only wake the function; the jobs are in the database. A job that
waits for an older one needs no message: the worker of the older one continues with it, or announces it.
"""

from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

from vectorforge.aws.handlers.bulk_load import BulkLoad
from vectorforge.aws.handlers.ingest_events import ListedObjects, Message, UploadInbox, read_uploads
from vectorforge.aws.handlers.ingest_messages import MessageBatch
from vectorforge.aws.handlers.ingest_work import IngestWork
from vectorforge.aws.object_store import ObjectStore
from vectorforge.aws.observability import FunctionTelemetry
from vectorforge.aws.queues import VISIBILITY_S
from vectorforge.bootstrap import Application
from vectorforge.config import VectorForgeConfig
from vectorforge.deadline import Deadline
from vectorforge.threads import LoopThread


class IngestFunction:
    """Handles SQS messages (jobs, S3 notifications), S3 events, scheduled events and bulk loads."""

    def __init__(self) -> None:
        self._started: _Started | None = None
        self._loop: LoopThread | None = None

    def startup(self) -> None:
        """Read the settings and make the application, once; nothing connects before the first event.

        Raises:
            ConfigurationError: A setting is missing or wrong.
        """
        self._start()

    def shutdown(self) -> None:
        """Close what was opened; an event after that starts again."""
        started, self._started = self._started, None
        loop, self._loop = self._loop, None
        if started is not None and loop is not None and loop.is_running:
            loop.run(started.application.close)
            loop.close()

    def __call__(self, event: Mapping[str, Any], context: Any) -> dict[str, Any] | None:
        """Handle one event.

        Returns:
            For SQS the messages to redeliver; for a batch of a bulk load the status of each object; None for
            other events.

        Raises:
            VectorForgeError: The whole event failed; Lambda redelivers it.
        """
        if self._loop is not None and not self._loop.is_running:
            # As in a fork: what was opened belongs to the other process, and is of no use to this one.
            self._started, self._loop = None, None
        started = self._start()
        with started.telemetry.invocation(context):
            deadline = Deadline.after(context.get_remaining_time_in_millis() / 1000)
            if self._loop is None:  # not at startup: a snapshot would lose the thread
                self._loop = LoopThread(AsyncExitStack(), name="ingest")
            return self._loop.run(partial(handle, started.application, event, deadline))

    def _start(self) -> "_Started":
        if self._started is None:
            config = VectorForgeConfig.from_environment()
            telemetry = FunctionTelemetry("ingest", config)
            application = Application.build(config, metrics=telemetry.metrics, tracer=telemetry.tracer)
            self._started = _Started(telemetry, application)
        return self._started


@dataclass(frozen=True, slots=True)
class _Started:
    telemetry: FunctionTelemetry
    application: Application


async def handle(
    application: Application,
    event: Mapping[str, Any],
    deadline: Deadline,
    *,
    visibility_s: int = VISIBILITY_S,
) -> dict[str, Any] | None:
    """Handle one event; see ``IngestFunction.__call__``.

    Args:
        application: Is opened when it is not open.
        event: Of SQS, S3 or EventBridge, or a batch of a bulk load (see ``ListedObjects``).
        deadline: When the invocation is killed.
        visibility_s: See ``VISIBILITY_S``; whole seconds.
    """
    work = IngestWork(application, deadline)
    if event.get("source") == "aws.events":
        await application.open()
        await work.carry_out(cleans_logs=True)
        if not work.time_is_over:  # else the next poll continues, and messages would multiply
            await work.hand_on()
        return None
    inbox = UploadInbox(application, ObjectStore(application.aws.clients))
    if event.get("action") == ListedObjects.ACTION:
        return await BulkLoad(application, work, inbox).load(ListedObjects.of(event))
    records = event.get("Records") or []
    if any(record.get("eventSource") == "aws:sqs" for record in records):
        batch = MessageBatch(application, work, inbox, visibility_s=visibility_s)
        failed = await batch.handle([Message.of(record) for record in records])
        return {"batchItemFailures": [{"itemIdentifier": message_id} for message_id in failed]}
    await _handle_uploads(application, event, work, inbox)
    return None


async def _handle_uploads(
    application: Application, event: Mapping[str, Any], work: IngestWork, inbox: UploadInbox
) -> None:
    """Ingest the objects of an S3 event without a queue.

    Raises:
        VectorForgeError: Unfinished jobs could not be announced; the same event can be retried.
    """
    uploads = read_uploads(event)
    await application.open()
    jobs = [job for upload in uploads for job in await inbox.accept(upload)]
    if await work.not_ended(jobs):
        await work.carry_out()
    for job in await work.not_ended(jobs):
        await work.announce_anew(job)
