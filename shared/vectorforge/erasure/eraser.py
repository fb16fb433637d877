"""Erasure of a tenant's data, step by step until it is certified; any process can resume it."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Protocol
from uuid import UUID, uuid4

from vectorforge.db.connection import Database
from vectorforge.deadline import Deadline
from vectorforge.erasure.repo import (
    Erasure,
    ErasureDatabase,
    ErasureRepository,
    LogPolicy,
    Subject,
    claim_erasure,
    make_certificate,
)
from vectorforge.errors import DatabaseError, NotFoundError, ObjectStoreError

if TYPE_CHECKING:  # only a database with read replicas needs it
    from vectorforge.db.reader import Reader

logger = logging.getLogger(__name__)

ROWS_A_STEP = 1000
"""Rows of a table deleted in one transaction, which takes a second or two on a small machine."""
MAX_REQUESTER_CHARS = 200
_PAUSE_S = 0.1
"""Interval between checks for the end of work that blocks an erasure."""
_REPLAY_S = 10.0
"""Longest wait for the replay of deletions by read replicas; a later call resumes."""
_TURN_S = 5.0
"""Time that a worker spends on one erasure before its jobs continue."""
_NEVER_REACHED = (
    "backups, snapshots and write-ahead logs of the database, until they expire",
    "lines that were logged already: standard output, CloudWatch Logs",
)
_NOT_REACHED_ON_REPLICAS = (
    "read replicas other than the one asked, until they replay the deletion; until then no search uses them",
)
_NOT_REACHED_ON_AWS = (
    "messages in queues and large records that they name: what they would bring back is refused on arrival",
    "dead letters, until they are redriven or expire",
)


class UploadedFiles(Protocol):
    """Bucket of uploaded files; ``aws.uploads.UploadedFilesEraser``."""

    async def erase(self, tenant_id: str, key: str) -> int:
        """Delete a tenant's object, or all below a prefix that ends with a slash; return their number."""


class RemovedOriginals(Protocol):
    """A tenant's objects in the bucket of originals; ``ingestion.originals.RemovedOriginals``."""

    async def wait(self) -> bool:
        """Return True if there are objects to remove."""

    async def remove(self) -> int:
        """Remove the objects of deleted documents; return their number."""

    async def remove_all(self) -> int:
        """Remove all objects of the tenant; return their number."""


class ReplayedErasures:
    """A tenant's erasures as read replicas show them."""

    def __init__(self, reader: "Reader", tenant_id: str) -> None:
        self._reader = reader
        self._erasures = ErasureRepository(ErasureDatabase(reader.database, tenant_id))

    async def has_replayed(self, erasure_id: UUID) -> bool:
        """Return True if a replica has replayed the deletions of an erasure in stage ``objects``.

        False if none has, or none can be reached, within the time limit.
        """
        limit = Deadline.after(_REPLAY_S)
        # by then every search needs the versions that the deletions made, see ``CollectionVersions``
        await asyncio.sleep(min(self._reader.lag_s, _REPLAY_S))
        while True:
            try:
                await self._reader.open()
                erasure = await self._erasures.find_by_id(erasure_id)
            except DatabaseError as exc:
                logger.warning("No read replica confirms erasure %s: %s", erasure_id, exc.message)
                return False
            if erasure is not None and erasure.stage in ("objects", "done"):
                return True
            if limit.remaining_s() <= 0:
                logger.warning("A read replica has not replayed erasure %s yet", erasure_id)
                return False
            await asyncio.sleep(_PAUSE_S)


@dataclass(eq=False, slots=True)
class Eraser:
    """Erases data of one tenant.

    Args:
        files: Bucket of uploaded files; None if there is none, or another process deletes them.
        originals: Bucket of originals; None: they are in the database.
        replicas: Read replicas that must have replayed the deletions before a certificate; None: there are
            none.
        leaves_files: Leave files in buckets, and the rest of an erasure that has some, to another process.
        not_reached: Places that may hold copies, for certificates.
        rows_a_step: Rows of a table deleted in one transaction, 1 to 10,000.
        on_begun: Called when an erasure has begun, to clear what this process caches.
    """

    erasures: ErasureRepository
    _: KW_ONLY
    files: UploadedFiles | None = None
    originals: RemovedOriginals | None = None
    replicas: ReplayedErasures | None = None
    leaves_files: bool = False
    not_reached: Sequence[str] = ()
    rows_a_step: int = ROWS_A_STEP
    on_begun: Callable[[], object] = lambda: None

    async def begin(self, subject: Subject, *, logs: LogPolicy, requested_by: str) -> UUID:
        """Begin an erasure, or join the one that runs for the same subject; it closes an erased tenant.

        Raises:
            NotFoundError: No such document, profile or collection.
            DatabaseError: The database failed.
        """
        requester = requested_by[:MAX_REQUESTER_CHARS]
        begun = await self.erasures.begin(uuid4(), subject, logs=logs, requested_by=requester)
        if begun is None:
            named = subject.profile_id if subject.kind == "profile" else subject.document_id
            raise NotFoundError(f"{subject.kind.capitalize()} {named or subject.collection_id} not found")
        self.on_begun()
        return begun

    async def run(
        self,
        erasure_id: UUID,
        deadline: Deadline | None = None,
        *,
        on_progress: Callable[[str, int], object] = lambda stage, rows: None,
    ) -> Erasure:
        """Continue an erasure until it is done, or the deadline passes.

        Args:
            erasure_id: Id returned by ``begin``.
            deadline: Time after which no further step begins, though at least one does; None for no limit.
            on_progress: Called with the stage and the number of rows that the step deleted or checked.

        Returns:
            The erasure, done or not.

        Raises:
            NotFoundError: No erasure has this id.
            DatabaseError: The database failed; another call resumes.
            ObjectStoreError: Files could not be deleted; another call resumes.
        """
        limit = deadline or Deadline.never()
        erasure = await self.find(erasure_id)
        while not erasure.is_done:
            step = await self.erasures.step(erasure_id, self.rows_a_step)
            on_progress(step.stage, step.rows)
            if step.stage in ("objects", "done"):
                return await self._end(await self.find(erasure_id))
            if limit.remaining_s() <= 0:
                return await self.find(erasure_id)
            if step.waits:
                await asyncio.sleep(_PAUSE_S)
        return erasure

    async def _end(self, erasure: Erasure) -> Erasure:
        if erasure.is_done or (self.leaves_files and await self._has_files(erasure)):
            return erasure
        if self.originals is not None:
            of_all = erasure.kind == "tenant"
            removed = await (self.originals.remove_all() if of_all else self.originals.remove())
            await self.erasures.note_files(erasure.id, [], removed)
            erasure = await self.find(erasure.id)
        if self.files is not None:
            for key in erasure.objects:
                deleted = await self.files.erase(self.erasures.tenant_id, key)
                await self.erasures.note_files(erasure.id, [key], deleted)
            erasure = await self.find(erasure.id)
        if self.replicas is not None and not await self.replicas.has_replayed(erasure.id):
            return erasure
        now, schema_version = await self.erasures.now()
        certificate = make_certificate(
            erasure,
            self.erasures.tenant_id,
            finished_at=now,
            schema_version=schema_version,
            not_reached=self.not_reached,
        )
        await self.erasures.finish(erasure.id, certificate)
        logger.info("An erasure is done", extra={"erasure_id": str(erasure.id), "erasure_kind": erasure.kind})
        return await self.find(erasure.id)

    async def _has_files(self, erasure: Erasure) -> bool:
        if erasure.objects or self.originals is None:
            return bool(erasure.objects)
        return erasure.kind == "tenant" or await self.originals.wait()

    async def find(self, erasure_id: UUID) -> Erasure:
        """Return an erasure and its progress.

        Raises:
            NotFoundError: No erasure has this id.
        """
        erasure = await self.erasures.find_by_id(erasure_id)
        if erasure is None:
            raise NotFoundError(f"Erasure {erasure_id} not found")
        return erasure


def unreached_places(*, on_replicas: bool, on_aws: bool) -> Sequence[str]:
    """Return the places that may hold copies, for certificates."""
    return (
        *_NEVER_REACHED,
        *(_NOT_REACHED_ON_REPLICAS if on_replicas else ()),
        *(_NOT_REACHED_ON_AWS if on_aws else ()),
    )


async def resume_erasure(database: Database, eraser_of: Callable[[str], Eraser]) -> bool:
    """Continue an erasure of any tenant that no process is working on; return False if there is none.

    Raises:
        DatabaseError: The database failed; a later call resumes.
    """
    claimed = await claim_erasure(database)
    if claimed is None:
        return False
    tenant_id, erasure_id = claimed
    try:
        await eraser_of(tenant_id).run(erasure_id, Deadline.after(_TURN_S))
    except NotFoundError:  # its row was deleted by hand
        return False
    except ObjectStoreError as exc:  # jobs continue; it is retried when the lease has run out
        logger.warning("Uploaded files are still to be erased: %s", exc.message)
        return False
    return True
