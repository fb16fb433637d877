"""Objects of the bucket of uploads, made into ingestion jobs."""

import logging
from datetime import datetime
from uuid import UUID, uuid5

from vectorforge.aws.handlers.ingest_events import Upload
from vectorforge.aws.object_store import ObjectStore, StoredObject
from vectorforge.aws.queues import AnnouncedJob
from vectorforge.bootstrap import Application, TenantServices
from vectorforge.db.repositories.job_repo import JobError, NewJobItem
from vectorforge.errors import ConflictError, ObjectStoreError
from vectorforge.types import Collection

logger = logging.getLogger(__name__)

_REVISIONS_AN_EVENT = 5


class UploadInbox:
    """Takes in what was uploaded.

    Args:
        application: Opened before the first call.
        store: Where the objects are.
    """

    def __init__(self, application: Application, store: ObjectStore) -> None:
        self._application = application
        self._store = store

    async def accept(self, upload: Upload, *, again_after: datetime | None = None) -> list[AnnouncedJob]:
        """Make a job of the object as it is now; the same event delivered twice makes no second one.

        S3 does not keep the order of events. Whatever the event says, the object is read as it is now, and
        looked at once more when its job is stored: so of two writes, the later one is always the last job.

        Args:
            upload: The object.
            again_after: A revision whose job failed before this moment gets another one.

        Returns:
            The jobs, one unless the object changed meanwhile; none when it is gone.

        Raises:
            InvalidInputError: The collection's name or the key is none that can be stored; trying again is no
                use.
            ObjectStoreError: S3 did not answer, or the object changes all the time.
            DatabaseError: The database failed.
            EmbeddingError: The collection is new, and the model's dimension could not be tried out.
        """
        tenant = self._application.for_tenant(upload.tenant_id)
        jobs: list[AnnouncedJob] = []
        read: str | None = None
        for _ in range(_REVISIONS_AN_EVENT):
            found = await self._store.find(upload.bucket, upload.key)
            if found is None:
                logger.info("An upload was deleted before it was read")
                return jobs
            if found.revision == read:
                return jobs
            job_id = await _next_job_id(tenant, upload.job_id(found), again_after)
            if await self._make_job(tenant, upload, found, job_id):
                jobs.append(AnnouncedJob(upload.tenant_id, job_id))
                read = found.revision
        raise ObjectStoreError("The object is written again and again.")

    async def _make_job(
        self, tenant: TenantServices, upload: Upload, found: StoredObject, job_id: UUID
    ) -> bool:
        """False when the object is another one by now."""
        if await tenant.jobs.find_by_id(job_id) is not None:
            return True
        limit = self._application.config.ingestion.max_document_bytes
        content: bytes | None = b""
        if found.size <= limit:
            content = await self._store.read(upload.bucket, upload.key, found)
        if content is None:
            return False
        collection = await _find_or_create(tenant, upload.collection_name)
        item, refusal = NewJobItem(upload.source, found.media_type, content), None
        if found.size > limit:
            message = f"The file has {found.size:,} bytes; at most {limit:,} are read."
            refusal = JobError("document_too_large", message)
        await tenant.jobs.create(collection.id, [item], job_id=job_id, refusal=refusal, side_by_side=True)
        return True


async def _next_job_id(tenant: TenantServices, first: UUID, again_after: datetime | None) -> UUID:
    """The first id, unless its job failed, wholly or in part, before the moment."""
    if again_after is None:
        return first
    job = await tenant.jobs.find_by_id(first)
    failed = job is not None and job.status in ("failed", "partial")
    if job is None or not failed or job.finished_at is None or job.finished_at >= again_after:
        return first
    return uuid5(first, again_after.isoformat())


async def _find_or_create(tenant: TenantServices, name: str) -> Collection:
    found = await tenant.collections.find_by_name(name)
    if found is not None:
        return found
    try:
        return await tenant.create_collection(name)
    except ConflictError:  # somebody else's upload was faster
        found = await tenant.collections.find_by_name(name)
        if found is None:
            raise
        return found
