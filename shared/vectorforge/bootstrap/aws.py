"""AWS services of a process: queues and buckets, each created on first use."""

from functools import cached_property
from typing import TYPE_CHECKING

from vectorforge.config import AwsSettings

if TYPE_CHECKING:  # imported on first use, to keep a function's cold start short
    from vectorforge.aws.clients import AwsClients
    from vectorforge.aws.query_log_queue import QueryLogQueue
    from vectorforge.aws.queues import IngestionQueue
    from vectorforge.aws.uploads import UploadedFilesEraser, UploadForms

_LOG_CALL_S = 0.5
"""Read timeout of a call for the query log; with connecting, a call that hangs takes a second."""


class AwsServices:
    """Queues and buckets named by the settings; None for each that is not."""

    def __init__(self, settings: AwsSettings) -> None:
        self._settings = settings

    @cached_property
    def clients(self) -> "AwsClients":
        """Clients of AWS services."""
        from vectorforge.aws.clients import AwsClients

        return AwsClients()

    @cached_property
    def query_log_queue(self) -> "QueryLogQueue | None":
        """Queue of query log records; None writes them straight to the table."""
        settings = self._settings
        if settings.query_log_queue_url is None:
            return None
        from vectorforge.aws.clients import AwsClients
        from vectorforge.aws.query_log_queue import QueryLogQueue

        # Separate clients: a call that hangs blocks one of few threads for the records after it.
        read_timeout_s = max(settings.query_log_timeout_s, _LOG_CALL_S)
        return QueryLogQueue(
            AwsClients(connect_timeout_s=read_timeout_s, read_timeout_s=read_timeout_s, max_attempts=1),
            settings.query_log_queue_url,
            overflow_bucket=settings.query_log_overflow_bucket,
            timeout_s=settings.query_log_timeout_s,
        )

    @cached_property
    def ingestion_queue(self) -> "IngestionQueue | None":
        """Queue of the ingest function; None if documents are ingested in this process."""
        if self._settings.ingestion_queue_url is None:
            return None
        from vectorforge.aws.queues import IngestionQueue

        return IngestionQueue(self.clients, self._settings.ingestion_queue_url)

    @cached_property
    def upload_forms(self) -> "UploadForms | None":
        """Signer of uploads to S3; None without a bucket."""
        if self._settings.uploads_bucket is None:
            return None
        from vectorforge.aws.uploads import UploadForms

        return UploadForms(self.clients, self._settings.uploads_bucket)

    @cached_property
    def uploaded_files(self) -> "UploadedFilesEraser | None":
        """Eraser of uploaded files in S3; None without a bucket."""
        if self._settings.uploads_bucket is None:
            return None
        from vectorforge.aws.uploads import UploadedFilesEraser

        return UploadedFilesEraser(self.clients, self._settings.uploads_bucket)

    def disconnect(self) -> None:
        """Close connections that would not survive a snapshot of the process."""
        if "clients" in vars(self):  # created before
            self.clients.disconnect()

    def close(self) -> None:
        """Close queues and clients; safe to call twice."""
        if self.query_log_queue is not None:
            self.query_log_queue.close()
        if "clients" in vars(self):  # created before
            self.clients.close()
