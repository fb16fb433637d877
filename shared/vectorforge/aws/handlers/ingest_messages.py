"""A batch of messages of the ingestion queue: jobs that were announced, and notifications of uploads."""

import logging
from collections.abc import Sequence

from vectorforge.aws.handlers.ingest_events import Message, Upload, UploadInbox
from vectorforge.aws.handlers.ingest_work import IngestWork
from vectorforge.aws.queues import (
    VISIBILITY_S,
    AnnouncedJob,
    AnyJob,
    delay_messages,
    hide_messages,
    show_messages,
)
from vectorforge.bootstrap import Application
from vectorforge.errors import (
    ConfigurationError,
    InvalidInputError,
    QueueError,
    VectorForgeError,
    log_unexpected,
)

logger = logging.getLogger(__name__)


class MessageBatch:
    """Handling of one batch.

    Args:
        application: Opened when a message needs it.
        work: Jobs of this invocation.
        inbox: Creates jobs for uploads.
        visibility_s: See ``VISIBILITY_S``; whole seconds.
    """

    def __init__(
        self,
        application: Application,
        work: IngestWork,
        inbox: UploadInbox,
        *,
        visibility_s: int = VISIBILITY_S,
    ) -> None:
        self._application = application
        self._work = work
        self._inbox = inbox
        self._visibility_s = visibility_s
        self._any_job = False

    async def handle(self, messages: Sequence[Message]) -> list[str]:
        """Carry out the jobs of the messages.

        Returns:
            Ids of the messages that have to be delivered again; each of the others is done with, or was
            replaced by a new one.
        """
        queue = self._work.queue()
        async with hide_messages(queue, [message.receipt_handle for message in messages], self._visibility_s):
            jobs, failed, malformed = await self._read(messages)
            try:
                await self._work_for([job for of_message in jobs.values() for job in of_message])
                for message_id, of_message in jobs.items():
                    if not await self._announced(of_message):
                        failed.add(message_id)
                await self._work.hand_on()
            except Exception as exc:  # noqa: BLE001 - the messages are redelivered after any failure
                _log("Ingestion failed", exc)
                failed.update(jobs)
        await show_messages(queue, [message for message in messages if message.id in malformed])
        await delay_messages(queue, [message for message in messages if message.id in failed - malformed])
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
        """Run waiting jobs, including these, unless these have finished already.

        Other jobs may have been waiting for one of these. But a message redelivered because another job's
        document killed its invocation must not meet that document again.
        """
        if self._any_job or await self._work.not_ended(jobs):
            await self._work.carry_out()

    async def _announced(self, jobs: Sequence[AnnouncedJob]) -> bool:
        """Return True if all unfinished jobs of a message that could run next have new messages."""
        try:
            for job in await self._work.not_ended(jobs):
                await self._work.announce_anew(job)
        except (QueueError, ConfigurationError):
            logger.warning("A job could not be announced anew; its message stays")
            return False
        return True


def _log(what: str, exc: Exception) -> None:
    if isinstance(exc, VectorForgeError):
        logger.error("%s: %s", what, exc.message)
    else:
        log_unexpected(logger, what, exc)
