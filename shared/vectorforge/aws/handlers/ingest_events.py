"""Events of the ingest function, and the ingestion jobs made of uploaded objects."""

import json
import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar, Self
from urllib.parse import unquote_plus
from uuid import NAMESPACE_URL, UUID, uuid5

from vectorforge.aws.buckets import Bucket, StoredObject
from vectorforge.aws.queues import AnnouncedJob, AnyJob, ReceivedMessage
from vectorforge.aws.uploads import UploadKey, source_of
from vectorforge.bootstrap import Application, TenantServices
from vectorforge.db.repositories.job_types import JobError, NewJobItem
from vectorforge.db.tenant_database import checked_tenant
from vectorforge.errors import InvalidInputError, ObjectStoreError

_BUCKET_NAME = re.compile(r"[A-Za-z0-9._-]{1,255}")
"""Those made before 2018 in us-east-1 may be that long and have capitals and underscores.
https://docs.aws.amazon.com/AmazonS3/latest/userguide/bucketnamingrules.html"""


@dataclass(frozen=True, slots=True)
class Upload:
    """Object in the bucket of uploads, under ``<tenant>/<collection>/<path>``."""

    bucket: str
    key: str
    tenant_id: str
    collection_name: str
    event_id: str | None
    """Same for a redelivered event, different for another write; None for an object without an event."""

    @property
    def source(self) -> str:
        """Name of the document in its collection."""
        return source_of(self.bucket, self.key)

    def job_id(self, existing: StoredObject) -> UUID:
        """Return the id of the job that reads this revision because of this event, or because it exists."""
        why = self.event_id
        if why is None:  # without versions, the same content may be there again: then it was written later
            why = f"as of {existing.last_modified.isoformat()}"
        return uuid5(NAMESPACE_URL, "\n".join((self.source, why, existing.revision)))

    @classmethod
    def listed(cls, bucket: str, key: str) -> Self:
        """Return the upload of an existing object.

        Raises:
            InvalidInputError: Its key does not name a tenant and a collection.
        """
        parsed = UploadKey.parse(key)
        return cls(bucket, key, parsed.tenant_id, parsed.collection_name, None)

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> Self | None:
        """Return the upload of a record of an S3 event; None for a deletion or a folder marker.

        Raises:
            InvalidInputError: It is not such a record, or its key does not name a tenant and a collection.
        """
        try:
            stored = record["s3"]["object"]
            bucket, key, name = record["s3"]["bucket"]["name"], stored["key"], record["eventName"]
            # S3 gives each write of a key a higher sequencer; an emulator may omit it.
            event = (stored.get("versionId"), stored.get("eTag"), stored.get("sequencer"))
        except (KeyError, TypeError, AttributeError):
            raise InvalidInputError("This is not a record of an S3 event.", field="Records") from None
        if not all(isinstance(text, str) for text in (bucket, key, name, *filter(None, event))):
            raise InvalidInputError("This is not a record of an S3 event.", field="Records")
        if not _BUCKET_NAME.fullmatch(bucket):
            raise InvalidInputError("The record does not name a bucket.", field="Records")
        key = unquote_plus(key)
        if not name.startswith("ObjectCreated:") or key.endswith("/"):
            return None
        parsed = UploadKey.parse(key)
        event_id = "\n".join(part or "" for part in event)
        return cls(bucket, key, parsed.tenant_id, parsed.collection_name, event_id)


def read_uploads(event: Mapping[str, Any]) -> list[Upload]:
    """Return the written objects of an S3 notification; none for the test event of S3.

    Raises:
        InvalidInputError: A record cannot be understood.
    """
    if event.get("Event") == "s3:TestEvent":
        return []
    records = event.get("Records")
    if not isinstance(records, list):
        raise InvalidInputError("The event has no Records.", field="Records")
    return [upload for record in records if (upload := Upload.of(record)) is not None]


@dataclass(frozen=True, slots=True)
class Message(ReceivedMessage):
    """A message of the ingestion queue."""

    def content(self) -> "AnnouncedJob | AnyJob | list[Upload]":
        """Return the announced job, "any job", or the uploads of the notification.

        Raises:
            InvalidInputError: It is none of these.
        """
        try:
            body = json.loads(self.body)
        except (ValueError, RecursionError):
            raise InvalidInputError("The message is not JSON.", field="body") from None
        if not isinstance(body, dict):
            raise InvalidInputError("The message is not a JSON object.", field="body")
        if "job_id" in body:
            job = AnnouncedJob.parse(body)
            checked_tenant(job.tenant_id)
            return job
        if body == AnyJob.BODY:
            return AnyJob()
        return read_uploads(body)


@dataclass(frozen=True, slots=True)
class ListedObjects:
    """Objects of a bucket in a batch of a Distributed Map of Step Functions.

    Its items are those of ListObjectsV2, of which only the key is used: each object is read as it is now.
    https://docs.aws.amazon.com/step-functions/latest/dg/input-output-itemreader.html
    """

    ACTION: ClassVar[str] = "ingest_objects"

    bucket: str
    keys: tuple[str, ...]
    started_at: datetime | None = None
    """Start of the load; a revision whose job failed before is retried. None: never."""

    @classmethod
    def of(cls, event: Mapping[str, Any]) -> Self:
        """Parse ``{"action": "ingest_objects", "bucket": ..., "Items": [{"Key": ...}, ...]}``.

        ``started_at`` (ISO 8601, with an offset) may be left out; other fields are ignored.

        Raises:
            InvalidInputError: A field is missing or something else.
        """
        bucket, items, started_at = event.get("bucket"), event.get("Items"), event.get("started_at")
        if not (isinstance(bucket, str) and _BUCKET_NAME.fullmatch(bucket)):
            raise InvalidInputError("bucket must be the name of a bucket.", field="bucket")
        if not isinstance(items, list):
            raise InvalidInputError("Items must be a list of objects.", field="Items")
        keys = [item.get("Key") if isinstance(item, Mapping) else None for item in items]
        if not all(isinstance(key, str) and key for key in keys):
            raise InvalidInputError("Items must be objects with a Key each.", field="Items")
        return cls(bucket, tuple(str(key) for key in keys), _moment(started_at))


def _moment(text: object) -> datetime | None:
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text if isinstance(text, str) else "")
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise InvalidInputError("started_at must be a time with an offset, in ISO 8601.", field="started_at")
    return moment


logger = logging.getLogger(__name__)

_REVISIONS_AN_EVENT = 5


class UploadInbox:
    """Create jobs for uploaded objects.

    Args:
        application: Opened before the first call.
        open_bucket: Returns the bucket with a name.
    """

    def __init__(self, application: Application, open_bucket: Callable[[str], Bucket]) -> None:
        self._application = application
        self._open_bucket = open_bucket

    async def accept(self, upload: Upload, *, again_after: datetime | None = None) -> list[AnnouncedJob]:
        """Create a job for the object's current revision; a redelivered event creates no second one.

        S3 does not preserve the order of events. The current object is read, not the one of the event, and
        checked again when its job is stored, so that the later of two writes is always the last job.

        Args:
            upload: The object.
            again_after: A revision whose job failed before this time gets a new one.

        Returns:
            The jobs: one unless the object changed meanwhile; none if it was deleted.

        Raises:
            InvalidInputError: The collection's name or the key cannot be stored; a retry does not
                help.
            NotFoundError: The collection was deleted meanwhile; a retry makes it again.
            ObjectStoreError: S3 did not respond, or the object keeps changing.
            DatabaseError: The database failed.
            EmbeddingError: The collection is new, and the model's dimension could not be determined.
        """
        tenant = self._application.for_tenant(upload.tenant_id)
        jobs: list[AnnouncedJob] = []
        read: str | None = None
        bucket = self._open_bucket(upload.bucket)
        for _ in range(_REVISIONS_AN_EVENT):
            existing = await bucket.find(upload.key)
            if existing is None:
                logger.info("An upload was deleted before it was read")
                return jobs
            if existing.revision == read:
                return jobs
            job_id = await _next_job_id(tenant, upload.job_id(existing), again_after)
            if await self._make_job(tenant, upload, existing, job_id):
                jobs.append(AnnouncedJob(upload.tenant_id, job_id))
                read = existing.revision
        raise ObjectStoreError("The object is written again and again.")

    async def _make_job(
        self, tenant: TenantServices, upload: Upload, existing: StoredObject, job_id: UUID
    ) -> bool:
        """Return False if the object was replaced meanwhile."""
        if await tenant.jobs.find_by_id(job_id) is not None:
            return True
        limit = self._application.config.ingestion.max_document_bytes
        content: bytes | None = b""
        if existing.size <= limit:
            content = await self._open_bucket(upload.bucket).read_as(upload.key, existing)
        if content is None:
            return False
        collection = await tenant.find_or_create_collection(upload.collection_name)
        item, refusal = NewJobItem(upload.source, existing.media_type, content), None
        if existing.size > limit:
            message = f"The file has {existing.size:,} bytes; at most {limit:,} are read."
            refusal = JobError("document_too_large", message)
        await tenant.jobs.create(collection.id, [item], job_id=job_id, refusal=refusal, side_by_side=True)
        return True


async def _next_job_id(tenant: TenantServices, first: UUID, again_after: datetime | None) -> UUID:
    """Return the first id, unless its job failed, wholly or in part, before the time."""
    if again_after is None:
        return first
    job = await tenant.jobs.find_by_id(first)
    failed = job is not None and job.status in ("failed", "partial")
    if job is None or not failed or job.finished_at is None or job.finished_at >= again_after:
        return first
    return uuid5(first, again_after.isoformat())
