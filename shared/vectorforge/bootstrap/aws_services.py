"""What a process reaches on AWS only: queues and buckets, each made when it is first asked for."""

from functools import cached_property
from typing import TYPE_CHECKING

from vectorforge.config import VectorForgeConfig

if TYPE_CHECKING:  # a function's start is a caller's wait
    from vectorforge.aws.clients import AwsClients
    from vectorforge.aws.query_log_queue import QueryLogQueue
    from vectorforge.aws.queues import IngestionQueue
    from vectorforge.aws.uploads import UploadedFilesEraser, UploadForms

_LOG_CALL_S = 0.5
"""Silence after which a call for the query log ends: with the connecting, one that hangs takes a second."""


class AwsServices:
    """The queues and buckets that the settings name; None for those they do not."""

    def __init__(self, config: VectorForgeConfig) -> None:
        self.config = config

    @cached_property
    def aws_clients(self) -> "AwsClients":
        """The clients of AWS services, for those parts that only AWS has."""
        from vectorforge.aws.clients import AwsClients

        return AwsClients()

    @cached_property
    def query_log_queue(self) -> "QueryLogQueue | None":
        """The queue that query logs go through; None: they go straight into the table."""
        settings = self.config.aws
        if settings.query_log_queue_url is None:
            return None
        from vectorforge.aws.clients import AwsClients
        from vectorforge.aws.query_log_queue import QueryLogQueue

        # Clients of its own: a call that hangs keeps one of few threads from the records after it.
        silence_s = max(settings.query_log_timeout_s, _LOG_CALL_S)
        return QueryLogQueue(
            AwsClients(connect_timeout_s=silence_s, read_timeout_s=silence_s, max_attempts=1),
            settings.query_log_queue_url,
            overflow_bucket=settings.query_log_overflow_bucket,
            timeout_s=settings.query_log_timeout_s,
        )

    @cached_property
    def ingestion_queue(self) -> "IngestionQueue | None":
        """Wakes the ingest function; None where documents are ingested in this process."""
        if self.config.aws.ingestion_queue_url is None:
            return None
        from vectorforge.aws.queues import IngestionQueue

        return IngestionQueue(self.aws_clients, self.config.aws.ingestion_queue_url)

    @cached_property
    def upload_forms(self) -> "UploadForms | None":
        """Signs uploads to S3; None where there is no bucket for them."""
        if self.config.aws.uploads_bucket is None:
            return None
        from vectorforge.aws.uploads import UploadForms

        return UploadForms(self.aws_clients, self.config.aws.uploads_bucket)

    @cached_property
    def uploaded_files(self) -> "UploadedFilesEraser | None":
        """Deletes uploaded files from S3; None where there is no bucket for them."""
        if self.config.aws.uploads_bucket is None:
            return None
        from vectorforge.aws.uploads import UploadedFilesEraser

        return UploadedFilesEraser(self.aws_clients, self.config.aws.uploads_bucket)

    def _disconnect_aws(self) -> None:
        if "aws_clients" in vars(self):  # made before
            self.aws_clients.disconnect()

    def _close_aws(self) -> None:
        if self.query_log_queue is not None:
            self.query_log_queue.close()
        if "aws_clients" in vars(self):  # made before
            self.aws_clients.close()
