"""The ingest function: carries out ingestion jobs, and takes in what is uploaded to S3.

An invocation works as a server's ingestion worker does: it claims waiting jobs, each tenant in its turn,
until none waits. Before it would be killed it stops between two documents and announces what is left of its
own jobs anew, so that a long job costs no delivery attempts. Messages only wake; the jobs are in the
database. A job that waits behind an older one of its collection needs no message: whoever carries out the
older one goes on with it, or hands on that jobs wait.
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

from vectorforge.aws.ingestion_queue import AnnouncedJob, AnyJob, IngestionQueue
from vectorforge.aws.object_store import ObjectStore
from vectorforge.bootstrap import Application
from vectorforge.config import VectorForgeConfig
from vectorforge.db.repositories.job_dispatcher import JobDispatcher
from vectorforge.deadline import Deadline
from vectorforge.errors import ConfigurationError, InvalidInputError, QueueError, VectorForgeError
from vectorforge.failure_log import log_unexpected
from vectorforge.ingestion.worker import IngestionWorker
from vectorforge.loop_thread import LoopThread
from vectorforge.serverless.ingest_events import Message, Upload, read_uploads
from vectorforge.serverless.message_visibility import HELD_S, held, put_off, show_again
from vectorforge.serverless.telemetry import FunctionTelemetry
from vectorforge.serverless.uploads import UploadInbox

logger = logging.getLogger(__name__)

LEASE_S = 30.0
"""A job of a killed invocation can be claimed again after this time."""


class IngestFunction:
    """Handles SQS messages (jobs and S3 notifications), S3 events and scheduled events."""

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
            For SQS, which messages are to be delivered again; nothing for other events.

        Raises:
            VectorForgeError: The event failed as a whole; Lambda delivers it again.
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
    application: Application, event: Mapping[str, Any], deadline: Deadline
) -> dict[str, Any] | None:
    """Handle one event; see ``IngestFunction.__call__``.

    Args:
        application: Is opened when it is not open.
        event: Of SQS, S3 or EventBridge.
        deadline: When the invocation is killed.
    """
    invocation = Invocation(application, deadline)
    if event.get("source") == "aws.events":
        await invocation.look_for_jobs()
        return None
    records = event.get("Records") or []
    if any(record.get("eventSource") == "aws:sqs" for record in records):
        failed = await invocation.handle_messages([Message.of(record) for record in records])
        return {"batchItemFailures": [{"itemIdentifier": message_id} for message_id in failed]}
    await invocation.handle_uploads(event)
    return None


class Invocation:
    """One event, until its jobs have ended or its time is over.

    Args:
        application: Opened when it is not open.
        deadline: When the invocation is killed.
        held_s: See ``HELD_S``; whole seconds.
    """

    def __init__(self, application: Application, deadline: Deadline, *, held_s: int = HELD_S) -> None:
        self._application = application
        self._held_s = held_s
        remaining_s = deadline.remaining_s()
        reserve_s = min(max(remaining_s / 10, 1.0), 10.0)
        work_s = max(remaining_s - reserve_s, 0.0)
        self._end_of_work = Deadline.after(work_s)
        self._last_document = Deadline.after(max(work_s - 2 * reserve_s, work_s / 2))
        self._document_time_s = work_s / 2
        self._any_job = False
        self._handed_on = False
        self._inbox = UploadInbox(application, ObjectStore(application.aws_clients))

    async def look_for_jobs(self) -> None:
        """Carry out every job that waits, announced or not, and delete what was kept long enough."""
        await self._application.open()
        await self._work(kept_log_days=self._application.config.database.log_retention_days)

    async def handle_uploads(self, event: Mapping[str, Any]) -> None:
        """Ingest the objects of an S3 event that came without a queue.

        Raises:
            VectorForgeError: It was not finished and could not be announced; the same event goes on with it.
        """
        uploads = read_uploads(event)
        await self._application.open()
        jobs = [job for upload in uploads for job in await self._inbox.accept(upload)]
        await self._work_for(jobs)
        for job in await self._not_ended(jobs):
            await self._announce_anew(job)

    async def handle_messages(self, messages: Sequence[Message]) -> list[str]:
        """Carry out the jobs of a batch of messages.

        Returns:
            Ids of the messages that have to be delivered again; each of the others is done with, or was
            replaced by a new one.
        """
        queue = self._queue()
        async with held(queue, [message.receipt_handle for message in messages], self._held_s):
            jobs, failed, malformed = await self._read(messages)
            try:
                await self._work_for([job for of_message in jobs.values() for job in of_message])
                for message_id, of_message in jobs.items():
                    if not await self._announced(of_message):
                        failed.add(message_id)
                await self._hand_on()
            except Exception as exc:  # noqa: BLE001 - whatever it is, these messages have to come again
                _log("Ingestion failed", exc)
                failed.update(jobs)
        await show_again(queue, [message for message in messages if message.id in malformed])
        await put_off(queue, [message for message in messages if message.id in failed - malformed])
        return [message.id for message in messages if message.id in failed | malformed]

    async def _read(
        self, messages: Sequence[Message]
    ) -> tuple[dict[str, list[AnnouncedJob]], set[str], set[str]]:
        """The jobs of each message, the messages that failed, and those that no retry can help."""
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

    async def _work_for(self, jobs: Sequence[AnnouncedJob]) -> None:
        """Carry out waiting jobs, these among them, unless these have ended already.

        Others too, since a job may have been waiting behind one of these. But a message that comes again
        because its invocation was killed by somebody else's document must not meet that document once more.
        """
        if self._any_job or await self._not_ended(jobs):
            await self._work()

    async def _work(self, *, kept_log_days: int = 0) -> None:
        """Carry out jobs until none waits, or the time is over; then what runs is given back."""
        application = self._application
        worker = IngestionWorker(
            application.database,
            lambda tenant_id: application.for_tenant(tenant_id).ingestion,
            lease_s=LEASE_S,
            kept_log_days=kept_log_days,
            document_time_s=self._document_time_s,
        )
        soon = asyncio.get_running_loop().call_later(
            max(self._last_document.remaining_s(), 0.0), worker.stop_soon
        )
        try:
            async with asyncio.timeout(self._end_of_work.remaining_s()):
                await worker.run_until_idle()
        except TimeoutError:
            logger.info("A document is given back: it cannot be finished in this invocation")
        finally:
            soon.cancel()

    async def _not_ended(self, jobs: Sequence[AnnouncedJob]) -> list[AnnouncedJob]:
        """Those that wait or run; a job that was deleted is none of them."""
        found = [
            (job, await self._application.for_tenant(job.tenant_id).jobs.find_by_id(job.job_id))
            for job in jobs
        ]
        return [job for job, stored in found if stored is not None and stored.finished_at is None]

    async def _announced(self, jobs: Sequence[AnnouncedJob]) -> bool:
        """Whether those of a message's jobs that have not ended and could be next have new messages now."""
        try:
            for job in await self._not_ended(jobs):
                await self._announce_anew(job)
        except (QueueError, ConfigurationError):
            logger.warning("A job could not be announced anew; its message stays")
            return False
        return True

    async def _announce_anew(self, job: AnnouncedJob) -> None:
        jobs = self._application.for_tenant(job.tenant_id).jobs
        if await jobs.waits_behind_another(job.job_id):
            return  # else each of a long row of jobs would be looked at every two minutes
        # When there is time left, another worker holds it; should that one be killed, this message is needed.
        await self._queue().announce(
            AnnouncedJob(job.tenant_id, job.job_id) if self._time_is_over else job.later()
        )
        self._handed_on = True

    async def _hand_on(self) -> None:
        """Have another invocation begin when this one had to stop; at most one, else they would multiply."""
        if not self._time_is_over or self._handed_on:
            return
        if await JobDispatcher(self._application.database).any_waits():
            try:
                await self._queue().announce(AnyJob())
            except QueueError:
                logger.warning("That jobs wait could not be announced, so a scheduled look has to find them")

    @property
    def _time_is_over(self) -> bool:
        return self._last_document.remaining_s() <= 0

    def _queue(self) -> IngestionQueue:
        if self._application.ingestion_queue is None:
            raise ConfigurationError(
                "Set VECTORFORGE_INGESTION_QUEUE_URL to the queue of the ingest function."
            )
        return self._application.ingestion_queue


def _log(what: str, exc: Exception) -> None:
    if isinstance(exc, VectorForgeError):
        logger.error("%s: %s", what, exc.message)
    else:
        log_unexpected(logger, what, exc)
