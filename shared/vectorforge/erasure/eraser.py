"""Carries erasures out step by step until they are certified; whoever comes next goes on from there."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Protocol
from uuid import UUID, uuid4

from vectorforge.deadline import Deadline
from vectorforge.erasure.certificate import make_certificate
from vectorforge.erasure.repo import Erasure, ErasureRepository, LogPolicy, Subject
from vectorforge.errors import NotFoundError

logger = logging.getLogger(__name__)

ROWS_A_STEP = 1000
"""Of a table: a transaction of a second or two, also on a small machine."""
_PAUSE_S = 0.1
"""Between looks whether what an erasure waits for has ended."""
MAX_REQUESTER_CHARS = 200


class UploadedFiles(Protocol):
    """The bucket that files are uploaded to; ``aws.uploaded_files.UploadedFilesEraser``."""

    async def erase(self, tenant_id: str, key: str) -> int:
        """Delete a tenant's object, or all below a prefix that ends with a slash; how many there were."""
        ...


class Eraser:
    """Erases what belongs to one tenant.

    Args:
        erasures: Of the tenant.
        files: Where uploaded files are; None: there is no such place, or another process deletes them.
        leaves_files: Files are another process's: an erasure that comes to them is left to it.
        not_reached: Places that may hold copies, for certificates.
        rows_a_step: Rows of a table that are deleted in one transaction, 1 to 10,000.
        on_begun: Is called when an erasure has begun, to forget what this process keeps in memory.
    """

    def __init__(
        self,
        erasures: ErasureRepository,
        *,
        files: UploadedFiles | None = None,
        leaves_files: bool = False,
        not_reached: Sequence[str] = (),
        rows_a_step: int = ROWS_A_STEP,
        on_begun: Callable[[], object] = lambda: None,
    ) -> None:
        self.erasures = erasures
        self._files = files
        self._leaves_files = leaves_files
        self._not_reached = not_reached
        self._rows_a_step = rows_a_step
        self._on_begun = on_begun

    async def begin(self, subject: Subject, *, logs: LogPolicy, requested_by: str) -> UUID:
        """Begin an erasure, or join the one that runs for the same; from now on a tenant is closed.

        Raises:
            NotFoundError: There is no such document, profile or collection.
            DatabaseError: The database failed.
        """
        requester = requested_by[:MAX_REQUESTER_CHARS]
        begun = await self.erasures.begin(uuid4(), subject, logs=logs, requested_by=requester)
        if begun is None:
            named = subject.profile_id if subject.kind == "profile" else subject.document_id
            raise NotFoundError(f"{subject.kind.capitalize()} {named or subject.collection_id} not found")
        self._on_begun()
        return begun

    async def run(
        self,
        erasure_id: UUID,
        deadline: Deadline | None = None,
        *,
        on_progress: Callable[[str, int], object] = lambda stage, rows: None,
    ) -> Erasure:
        """Go on with an erasure until it is done, or the time is over.

        Args:
            erasure_id: As ``begin`` has given it.
            deadline: After which no further step is begun; at least one is. None: never.
            on_progress: Gets the stage, and how many rows the step has deleted or looked at.

        Returns:
            The erasure, done or not.

        Raises:
            NotFoundError: There is none with this id.
            DatabaseError: The database failed; another call goes on.
            ObjectStoreError: Files could not be deleted; another call goes on.
        """
        limit = deadline or Deadline.never()
        found = await self.find(erasure_id)
        while not found.is_done:
            step = await self.erasures.step(erasure_id, self._rows_a_step)
            on_progress(step.stage, step.rows)
            if step.stage in ("objects", "done"):
                return await self._end(await self.find(erasure_id))
            if limit.remaining_s() <= 0:
                return await self.find(erasure_id)
            if step.waits:
                await asyncio.sleep(_PAUSE_S)
        return found

    async def _end(self, erasure: Erasure) -> Erasure:
        if erasure.is_done or (self._leaves_files and erasure.objects):
            return erasure
        if self._files is not None:
            for key in erasure.objects:
                deleted = await self._files.erase(self.erasures.tenant_id, key)
                await self.erasures.note_files(erasure.id, [key], deleted)
            erasure = await self.find(erasure.id)
        now, schema_version = await self.erasures.now()
        certificate = make_certificate(
            erasure,
            self.erasures.tenant_id,
            finished_at=now,
            schema_version=schema_version,
            not_reached=self._not_reached,
        )
        await self.erasures.finish(erasure.id, certificate)
        logger.info("An erasure is done", extra={"erasure_id": str(erasure.id), "erasure_kind": erasure.kind})
        return await self.find(erasure.id)

    async def find(self, erasure_id: UUID) -> Erasure:
        """An erasure, as far as it is.

        Raises:
            NotFoundError: There is none with this id.
        """
        found = await self.erasures.find_by_id(erasure_id)
        if found is None:
            raise NotFoundError(f"Erasure {erasure_id} not found")
        return found
