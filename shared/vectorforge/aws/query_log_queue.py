"""Query log sink: SQS, a bucket for records larger than a message, and stdout if both fail.

``vectorforge logs replay`` stores such lines later. A call that timed out may still succeed in its thread: a
record that arrives twice is stored once.
"""

import asyncio
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from vectorforge.aws.clients import AwsClients
from vectorforge.aws.query_log_record import (
    MAX_RECORD_BYTES,
    Fields,
    QueryLogPointer,
    QueryLogRecord,
    cut_to,
    parse_message,
    pointer_fields,
    record_fields,
    to_json,
)
from vectorforge.db.repositories.query_log_repo import QueryLog
from vectorforge.errors import InvalidInputError, NotFoundError, ObjectStoreError

_TOO_MANY_REQUESTS = 429
_SERVER_ERROR = 500


class QueryLogOverflow:
    """Overflow bucket of records. A lifecycle rule deletes the objects.

    Texts are removed from the objects once the table has them, where erasure and retention apply.

    Args:
        clients: Source of the S3 client.
        bucket: Name of the bucket; never read from a message, whose sender must not choose it.
    """

    def __init__(self, clients: AwsClients, bucket: str) -> None:
        self._clients = clients
        self._bucket = bucket

    def put(self, record: Fields) -> str:
        """Store a record, cut to 8 MiB; the message that points to it.

        Raises:
            Exception: An error of botocore.
        """
        pointer = pointer_fields(record)
        self._clients.get("s3").put_object(
            Bucket=self._bucket,
            Key=pointer["key"],
            Body=cut_to(record, MAX_RECORD_BYTES).encode("ascii"),
            ContentType="application/json",
        )
        return to_json(pointer)

    def get(self, pointer: QueryLogPointer) -> tuple[QueryLogRecord, int]:
        """Return the record that a message points to, and its size in bytes.

        Raises:
            NotFoundError: The bucket does not return this object.
            ObjectStoreError: The bucket does not respond, or reports a failure.
            ConfigurationError: As ``AwsClients.get``.
            InvalidInputError: The object is not the announced record.
        """
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            answer = self._clients.get("s3").get_object(Bucket=self._bucket, Key=pointer.key)
            body = answer["Body"].read(MAX_RECORD_BYTES + 1)
            answer["Body"].close()
        except ClientError as exc:
            text = f"The overflow object cannot be read ({exc.response['Error'].get('Code')})."
            status = exc.response["ResponseMetadata"]["HTTPStatusCode"]
            if status == _TOO_MANY_REQUESTS or status >= _SERVER_ERROR:
                raise ObjectStoreError(text) from exc
            raise NotFoundError(text) from exc
        except BotoCoreError as exc:
            raise ObjectStoreError(f"The overflow bucket does not answer ({type(exc).__name__}).") from exc
        if len(body) > MAX_RECORD_BYTES:
            raise InvalidInputError(f"The overflow object is larger than {MAX_RECORD_BYTES:,} bytes.")
        record = parse_message(body)
        if not isinstance(record, QueryLogRecord) or (record.tenant_id, record.id) != (
            pointer.tenant_id,
            pointer.id,
        ):
            raise InvalidInputError("The overflow object is not the record that the message points to.")
        return record, len(body)

    def empty(self, pointer: QueryLogPointer, record: QueryLogRecord) -> None:
        """Replace a stored record by one without query and answer.

        It stays readable for a redelivered message.

        Raises:
            ObjectStoreError: The bucket does not respond, or denies access; the texts may still exist.
            ConfigurationError: As ``AwsClients.get``.
        """
        from botocore.exceptions import BotoCoreError, ClientError

        emptied = record.model_copy(update={"query_text": "", "generated_response": ""})
        try:
            self._clients.get("s3").put_object(
                Bucket=self._bucket,
                Key=pointer.key,
                Body=to_json(emptied.model_dump(mode="json")).encode("ascii"),
                ContentType="application/json",
            )
        except (ClientError, BotoCoreError) as exc:
            raise ObjectStoreError(f"The overflow object cannot be emptied ({type(exc).__name__}).") from exc


MAX_MESSAGE_BYTES = 1_048_576
"""Largest message of SQS since August 2025.
https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/quotas-messages.html"""
MAX_LINE_BYTES = 250_000
"""Longest line on stdout: forwarders of CloudWatch events often apply the former limit of 256 KiB."""

_THREADS = 4


class QueryLogQueue:
    """Sink for the records of all tenants of a process.

    Args:
        clients: Source of the SQS and S3 clients; closed with the queue. Their timeouts limit how long a
            hanging call occupies one of four threads.
        queue_url: Queue that the log writer reads.
        overflow_bucket: Bucket for records larger than a message; None: their longest texts are cut.
        timeout_s: Time limit of one record, overflow included.
    """

    def __init__(
        self,
        clients: AwsClients,
        queue_url: str,
        *,
        overflow_bucket: str | None = None,
        timeout_s: float = 0.25,
    ) -> None:
        self._clients = clients
        self._queue_url = queue_url
        self._overflow = QueryLogOverflow(clients, overflow_bucket) if overflow_bucket else None
        self._timeout_s = timeout_s
        # Separate threads: hanging calls must block only the log.
        self._executor = ThreadPoolExecutor(_THREADS, thread_name_prefix="query-log")

    def for_tenant(self, tenant_id: str) -> "TenantQueryLogQueue":
        """The queue as the sink of one tenant's records."""
        return TenantQueryLogQueue(self, tenant_id)

    def warm(self) -> None:
        """Build the clients ahead.

        Raises:
            ConfigurationError: As ``AwsClients.get``.
        """
        self._clients.warm("sqs", *(["s3"] if self._overflow else []))

    def close(self) -> None:
        """Give up what has not been sent yet, and close the clients; safe to call twice."""
        self._executor.shutdown(wait=False, cancel_futures=True)
        self._clients.close()

    async def send(self, record: Fields) -> None:
        """Send a record, and print it if that fails.

        Raises:
            Exception: The failure: ``TimeoutError``, an error of botocore, or one of ours.
        """
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self._timeout_s):
                await loop.run_in_executor(self._executor, self._send, record)
        except BaseException:  # a canceled query has a record, too
            _print(record)
            raise

    def _send(self, record: Fields) -> None:
        body = to_json(record)
        if len(body) > MAX_MESSAGE_BYTES:
            body = self._overflow.put(record) if self._overflow else cut_to(record, MAX_MESSAGE_BYTES)
        self._clients.get("sqs").send_message(QueueUrl=self._queue_url, MessageBody=body)


class TenantQueryLogQueue:
    """The sink of one tenant's records: see ``pipeline.rag.QueryLogSink``."""

    def __init__(self, queue: QueryLogQueue, tenant_id: str) -> None:
        self._queue = queue
        self._tenant_id = tenant_id

    async def start(self, query_log: QueryLog) -> None:
        """Send the record of a query that has begun; errors as ``QueryLogQueue.send``."""
        await self._queue.send(record_fields(self._tenant_id, query_log))

    async def create(self, query_log: QueryLog) -> None:
        """Send the record of a query's end; errors as ``QueryLogQueue.send``."""
        await self._queue.send(record_fields(self._tenant_id, query_log))


def _print(record: Mapping[str, Any]) -> None:
    # In one call, so that lines of other threads do not come between.
    sys.stdout.write(cut_to(record, MAX_LINE_BYTES) + "\n")
    sys.stdout.flush()
