"""What the events of the ingest function say."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self
from urllib.parse import unquote_plus
from uuid import NAMESPACE_URL, UUID, uuid5

from vectorforge.aws.ingestion_queue import AnnouncedJob, AnyJob
from vectorforge.aws.upload_keys import UploadKey, source_of
from vectorforge.db.tenant_id import checked_tenant
from vectorforge.errors import InvalidInputError
from vectorforge.serverless.message_visibility import ReceivedMessage


@dataclass(frozen=True, slots=True)
class Upload:
    """An object that was written into the bucket of uploads, under ``<tenant>/<collection>/<path>``."""

    bucket: str
    key: str
    tenant_id: str
    collection_name: str
    event_id: str
    """The same when the event is delivered again, another one when the object is written again."""

    @property
    def source(self) -> str:
        """The document's name in its collection."""
        return source_of(self.bucket, self.key)

    def job_id(self, revision: str) -> UUID:
        """The id of the job that reads this revision because of this event."""
        return uuid5(NAMESPACE_URL, "\n".join((self.source, self.event_id, revision)))

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
