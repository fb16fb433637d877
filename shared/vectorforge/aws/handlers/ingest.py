"""Ingest function: runs ingestion jobs and creates jobs for uploads to S3.

An invocation works like a server's ingestion worker: it claims waiting jobs, tenants in turn, until none is
left. Before its timeout it stops between two documents and announces its unfinished jobs again, so that a
long job costs no delivery attempts. Messages only wake the function; the jobs are in the database. A job that
waits for an older one needs no message: the worker of the older one continues with it, or announces it.
"""

import logging
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from functools import partial
from typing import Any

from vectorforge.aws.buckets import Bucket
from vectorforge.aws.handlers.ingest_events import ListedObjects, Message, Upload, UploadInbox, read_uploads
from vectorforge.aws.handlers.ingest_work import BulkLoad, IngestWork
from vectorforge.aws.observability import FunctionTelemetry
from vectorforge.aws.queues import (
    VISIBILITY_S,
    AnnouncedJob,
    AnyJob,
    delay_messages,
    hide_messages,
    postpone_messages,
)
from vectorforge.bootstrap import Application
from vectorforge.config import VectorForgeConfig
from vectorforge.deadline import Deadline
from vectorforge.errors import (
    ConfigurationError,
    InvalidInputError,
    QueueError,
    VectorForgeError,
    log_unexpected,
)
from vectorforge.threads import LoopThread

logger = logging.getLogger(__name__)


class IngestFunction:
    """Handles SQS messages (jobs, S3 notifications), S3 events, scheduled events and bulk loads."""

    def __init__(self) -> None:
        self._started: tuple[FunctionTelemetry, Application] | None = None
        self._loop: LoopThread | None = None

    def startup(self) -> tuple[FunctionTelemetry, Application]:
        """Read the settings and make the application, once; nothing connects before the first event.

        Raises:
            ConfigurationError: A setting is missing or wrong.
        """
        if self._started is None:
            config = VectorForgeConfig.from_environment()
            telemetry = FunctionTelemetry("ingest", config)
            application = Application.build(config, metrics=telemetry.metrics, tracer=telemetry.tracer)
            self._started = telemetry, application
        return self._started

    def shutdown(self) -> None:
        """Close what was opened; an event after that starts again."""
        started, self._started = self._started, None
        loop, self._loop = self._loop, None
        if started is not None and loop is not None and loop.is_running:
            loop.run(started[1].close)
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
        telemetry, application = self.startup()
        with telemetry.invocation(context):
            deadline = Deadline.after(context.get_remaining_time_in_millis() / 1000)
            if self._loop is None:  # not at startup: a snapshot would lose the thread
                self._loop = LoopThread(AsyncExitStack(), name="ingest")
            return self._loop.run(partial(handle, application, event, deadline))


async def handle(
    application: Application,
    event: Mapping[str, Any],
    deadline: Deadline,
    *,
    visibility_s: int = VISIBILITY_S,
) -> dict[str, Any] | None:
    """Handle one event; see ``IngestFunction.__call__``.

    Args:
        application: Opened when necessary.
        event: Of SQS, S3 or EventBridge, or a batch of a bulk load (see ``ListedObjects``).
        deadline: Time at which the invocation is killed.
        visibility_s: See ``VISIBILITY_S``; whole seconds.
    """
    work = IngestWork(application, deadline)
    if event.get("source") == "aws.events":
        await application.open()
        await work.run_jobs(cleans_logs=True)
        if not work.time_is_over:  # else the next poll continues, and messages would multiply
            await work.hand_on()
        return None
    inbox = UploadInbox(application, partial(Bucket, application.aws.clients))
    if event.get("action") == ListedObjects.ACTION:
        return await BulkLoad(application, work, inbox).load(ListedObjects.of(event))
    records = event.get("Records") or []
    if any(record.get("eventSource") == "aws:sqs" for record in records):
        messages = [Message.of(record) for record in records]
        failed = await MessageBatch(application, work, inbox).handle(messages, visibility_s)
        return {"batchItemFailures": [{"itemIdentifier": message_id} for message_id in failed]}
    # An S3 event without a queue; unfinished jobs that cannot be announced fail it, so that it is retried.
    uploads = read_uploads(event)
    await application.open()
    jobs = [job for upload in uploads for job in await inbox.accept(upload)]
    if await work.not_ended(jobs):
        await work.run_jobs()
    for job in await work.not_ended(jobs):
        await work.announce_unfinished(job)
    return None


class MessageBatch:
    """A batch of messages of the ingestion queue: announced jobs, and notifications of uploads.

    Args:
        application: Opened when a message needs it.
    """

    def __init__(self, application: Application, work: IngestWork, inbox: UploadInbox) -> None:
        self._application = application
        self._work = work
        self._inbox = inbox
        self._any_job = False

    async def handle(self, messages: Sequence[Message], visibility_s: int) -> list[str]:
        """Run the jobs of the messages.

        Returns:
            Ids of the messages to redeliver; each of the others is done or replaced by a new one.
        """
        queue = self._work.queue()
        async with hide_messages(queue, [message.receipt_handle for message in messages], visibility_s):
            jobs, failed, malformed = await self._read(messages)
            try:
                await self._run([job for of_message in jobs.values() for job in of_message])
                for message_id, of_message in jobs.items():
                    if not await self._announced(of_message):
                        failed.add(message_id)
                await self._work.hand_on()
            except Exception as exc:  # noqa: BLE001 - the messages are redelivered after any failure
                _log("Ingestion failed", exc)
                failed.update(jobs)
        await postpone_messages(queue, [message for message in messages if message.id in malformed], 0)
        await delay_messages(queue, [message for message in messages if message.id in failed - malformed])
        return [message.id for message in messages if message.id in failed | malformed]

    async def _read(
        self, messages: Sequence[Message]
    ) -> tuple[dict[str, list[AnnouncedJob]], set[str], set[str]]:
        """Return the jobs of each message, the messages that failed, and those that no retry can help."""
        jobs: dict[str, list[AnnouncedJob]] = {}
        failed, malformed = set[str](), set[str]()
        for message in messages:
            try:
                content = message.content()
            except InvalidInputError as exc:
                logger.error("Message %s cannot be understood: %s", message.id, exc.message)
                malformed.add(message.id)
                continue
            try:
                jobs[message.id] = await self._jobs_of(content)
            except InvalidInputError as exc:
                logger.error("Message %s cannot be carried out: %s", message.id, exc.message)
                malformed.add(message.id)
            except Exception as exc:  # noqa: BLE001 - its siblings go on
                _log(f"Message {message.id} failed", exc)
                failed.add(message.id)
        return jobs, failed, malformed

    async def _jobs_of(self, content: AnnouncedJob | AnyJob | list[Upload]) -> list[AnnouncedJob]:
        await self._application.open()
        if isinstance(content, AnnouncedJob):
            return [content]
        if isinstance(content, AnyJob):
            self._any_job = True
            return []
        return [job for upload in content for job in await self._inbox.accept(upload)]

    async def _run(self, jobs: Sequence[AnnouncedJob]) -> None:
        """Run waiting jobs, including these, unless these have finished already.

        Other jobs may have been waiting for one of these. But a message redelivered because another job's
        document killed its invocation must not meet that document again.
        """
        if self._any_job or await self._work.not_ended(jobs):
            await self._work.run_jobs()

    async def _announced(self, jobs: Sequence[AnnouncedJob]) -> bool:
        """Return True if all unfinished jobs of a message that could run next have new messages."""
        try:
            for job in await self._work.not_ended(jobs):
                await self._work.announce_unfinished(job)
        except (QueueError, ConfigurationError):
            logger.warning("A job could not be announced again; its message stays")
            return False
        return True


def _log(what: str, exc: Exception) -> None:
    if isinstance(exc, VectorForgeError):
        logger.error("%s: %s", what, exc.message)
    else:
        log_unexpected(logger, what, exc)
