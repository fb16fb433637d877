"""What the events of the ingest function say."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar, Self
from urllib.parse import unquote_plus
from uuid import NAMESPACE_URL, UUID, uuid5

from vectorforge.aws.handlers.message_visibility import ReceivedMessage
from vectorforge.aws.object_store import StoredObject
from vectorforge.aws.queues import AnnouncedJob, AnyJob
from vectorforge.aws.uploads import UploadKey, source_of
from vectorforge.db.types import checked_tenant
from vectorforge.errors import InvalidInputError

_BUCKET_NAME = re.compile(r"[A-Za-z0-9._-]{1,255}")
"""Those made before 2018 in us-east-1 may be that long and have capitals and underscores.
https://docs.aws.amazon.com/AmazonS3/latest/userguide/bucketnamingrules.html"""


@dataclass(frozen=True, slots=True)
class Upload:
    """An object that was written into the bucket of uploads, under ``<tenant>/<collection>/<path>``."""

    bucket: str
    key: str
    tenant_id: str
    collection_name: str
    event_id: str | None
    """The same when the event is delivered again, another one when the object is written again; None for an
    object that no event tells of."""

    @property
    def source(self) -> str:
        """The document's name in its collection."""
        return source_of(self.bucket, self.key)

    def job_id(self, found: StoredObject) -> UUID:
        """The id of the job that reads this revision because of this event, or because it is there."""
        why = self.event_id
        if why is None:  # without versions, the same content may be there again: then it was written later
            why = f"as of {found.last_modified.isoformat()}"
        return uuid5(NAMESPACE_URL, "\n".join((self.source, why, found.revision)))

    @classmethod
    def listed(cls, bucket: str, key: str) -> Self:
        """An object that lies in the bucket.

        Raises:
            InvalidInputError: Its key does not say whose document it is.
        """
        parsed = UploadKey.parse(key)
        return cls(bucket, key, parsed.tenant_id, parsed.collection_name, None)

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> Self | None:
        """From a record of an S3 event; None when nothing was written, or only the mark of a folder.

        Raises:
            InvalidInputError: It is no such record, or its key does not say whose document it is.
        """
        try:
            stored = record["s3"]["object"]
            bucket, key, name = record["s3"]["bucket"]["name"], stored["key"], record["eventName"]
            # S3 gives each write of a key a higher sequencer; a stand-in for S3 may leave it out.
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
    """The objects written, of an S3 notification; none for the one S3 sends to try the connection.

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
        """The job it announces, or that any job waits, or the uploads of the notification in it.

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
    """Objects that lie in a bucket, as a Distributed Map of Step Functions hands them over in batches.

    Its items are those of ListObjectsV2, of which only the key counts: each object is read as it is now.
    https://docs.aws.amazon.com/step-functions/latest/dg/input-output-itemreader.html
    """

    ACTION: ClassVar[str] = "ingest_objects"

    bucket: str
    keys: tuple[str, ...]
    started_at: datetime | None = None
    """When the load began; a revision whose job failed before is tried again. None: it is not."""

    @classmethod
    def of(cls, event: Mapping[str, Any]) -> Self:
        """From ``{"action": "ingest_objects", "bucket": ..., "Items": [{"Key": ...}, ...]}``.

        ``started_at`` (ISO 8601, with an offset) may be left out; other fields are ignored.

        Raises:
            InvalidInputError: A field is missing or something else.
        """
        bucket, items, started_at = event.get("bucket"), event.get("Items"), event.get("started_at")
        if not (isinstance(bucket, str) and _BUCKET_NAME.fullmatch(bucket)):
            raise InvalidInputError("bucket must be the name of a bucket.", field="bucket")
        keys = [item.get("Key") if isinstance(item, Mapping) else None for item in _listed(items)]
        if not all(isinstance(key, str) and key for key in keys):
            raise InvalidInputError("Items must be objects with a Key each.", field="Items")
        return cls(bucket, tuple(str(key) for key in keys), _moment(started_at))


def _listed(items: object) -> list[Any]:
    if not isinstance(items, list):
        raise InvalidInputError("Items must be a list of objects.", field="Items")
    return items


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
