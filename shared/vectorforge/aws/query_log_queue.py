"""Query log sink: SQS, a bucket for records larger than a message, and stdout if both fail.

``vectorforge logs replay`` stores such lines later. A call that timed out may still succeed: a record that
arrives twice is stored once.
"""

import asyncio
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from vectorforge.aws.clients import AwsClients, is_temporary
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
from vectorforge.deadline import off_event_loop
from vectorforge.errors import InvalidInputError, NotFoundError, ObjectStoreError

_OBJECT_S = 5.0
"""Time limit of reading an object; S3 returns 8 MiB in a fraction of a second."""

_T = TypeVar("_T")


class QueryLogOverflow:
    """Overflow bucket of records. A lifecycle rule deletes the objects.

    Texts are removed from the objects once the table has them, where erasure and retention apply.

    Args:
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
        self._put(pointer["key"], cut_to(record, MAX_RECORD_BYTES))
        return to_json(pointer)

    async def get(self, pointer: QueryLogPointer) -> QueryLogRecord:
        """Return the record that a message points to.

        Raises:
            NotFoundError: The bucket does not return this object.
            ObjectStoreError: The bucket does not respond, or reports a failure.
            ConfigurationError: As ``AwsClients.get``.
            InvalidInputError: The object is not the announced record.
        """
        body = await _in_thread(lambda: self._read(pointer.key))
        if len(body) > MAX_RECORD_BYTES:
            raise InvalidInputError(f"The overflow object is larger than {MAX_RECORD_BYTES:,} bytes.")
        record = parse_message(body)
        if isinstance(record, QueryLogRecord) and (record.tenant_id, record.id) == (
            pointer.tenant_id,
            pointer.id,
        ):
            return record
        raise InvalidInputError("The overflow object is not the record that the message points to.")

    async def empty(self, pointer: QueryLogPointer, record: QueryLogRecord) -> None:
        """Replace a stored record by one without query and answer, which a redelivered message can read.

        Raises:
            ObjectStoreError: The bucket does not respond, or denies access; the texts may still exist.
            ConfigurationError: As ``AwsClients.get``.
        """
        from botocore.exceptions import BotoCoreError, ClientError

        emptied = record.model_copy(update={"query_text": "", "generated_response": ""})
        try:
            await _in_thread(lambda: self._put(pointer.key, to_json(emptied.model_dump(mode="json"))))
        except (ClientError, BotoCoreError) as exc:
            raise ObjectStoreError(f"The overflow object cannot be emptied ({type(exc).__name__}).") from exc

    def _put(self, key: str, line: str) -> None:
        self._clients.get("s3").put_object(
            Bucket=self._bucket, Key=key, Body=line.encode("ascii"), ContentType="application/json"
        )

    def _read(self, key: str) -> bytes:
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            response = self._clients.get("s3").get_object(Bucket=self._bucket, Key=key)
            with response["Body"] as stream:
                body: bytes = stream.read(MAX_RECORD_BYTES + 1)
            return body
        except ClientError as exc:
            text = f"The overflow object cannot be read ({exc.response['Error'].get('Code')})."
            raise (ObjectStoreError if is_temporary(exc) else NotFoundError)(text) from exc
        except BotoCoreError as exc:
            raise ObjectStoreError(f"The overflow bucket does not answer ({type(exc).__name__}).") from exc


async def _in_thread(call: Callable[[], _T]) -> _T:
    try:
        async with asyncio.timeout(_OBJECT_S):
            return await asyncio.to_thread(call)
    except TimeoutError as exc:
        raise ObjectStoreError("The overflow bucket did not answer in time.") from exc


MAX_MESSAGE_BYTES = 1_048_576
"""Largest message of SQS since August 2025.
https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/quotas-messages.html"""
MAX_LINE_BYTES = 250_000
"""Longest line on stdout: forwarders of CloudWatch events often apply the former limit of 256 KiB."""


class QueryLogQueue:
    """Sink for the records of all tenants of a process.

    Args:
        clients: Source of the S3 client, and of the SQS client where credentials are not in the environment;
            closed with the queue. Their timeouts limit how long a hanging call occupies one of four threads.
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
        from vectorforge.aws.sqs import AwsKeys, SqsSender  # the log writer's bundle has no HTTP client

        keys = AwsKeys.from_environment()
        self._sender = SqsSender(keys, queue_url) if keys is not None else None
        self._is_closed = False
        # Separate threads: hanging calls must block only the log.
        self._executor = ThreadPoolExecutor(4, thread_name_prefix="query-log")

    def for_tenant(self, tenant_id: str) -> "TenantQueryLogQueue":
        """The queue as the sink of one tenant's records."""
        return TenantQueryLogQueue(self, tenant_id)

    def warm(self) -> None:
        """Build the clients ahead.

        Raises:
            ConfigurationError: As ``AwsClients.get``.
        """
        if self._sender is not None:
            self._sender.warm()
        self._clients.warm(*([] if self._sender else ["sqs"]), *(["s3"] if self._overflow else []))

    async def aclose(self) -> None:
        """Give up what has not been sent yet, and close the connections; safe to call twice."""
        self._is_closed = True
        if self._sender is not None:
            await self._sender.aclose()
        self._executor.shutdown(wait=False, cancel_futures=True)
        self._clients.close()

    async def send(self, record: Fields) -> None:
        """Send a record, and print it if that fails.

        Raises:
            Exception: The failure: ``TimeoutError``, an error of botocore, or one of ours.
        """
        try:
            if self._is_closed:
                raise RuntimeError("The queue is closed.")
            async with asyncio.timeout(self._timeout_s):
                await self._send(record)
        except BaseException:  # a canceled query has a record, too
            # In one call, so that lines of other threads do not come between.
            sys.stdout.write(cut_to(record, MAX_LINE_BYTES) + "\n")
            sys.stdout.flush()
            raise

    async def _send(self, record: Fields) -> None:
        loop = asyncio.get_running_loop()
        body = await off_event_loop(len(record["generated_response"]), lambda: to_json(record))
        if len(body) > MAX_MESSAGE_BYTES:
            body = await loop.run_in_executor(self._executor, self._fitting, record)
        if self._sender is not None:
            await self._sender.send(body)
        else:
            await loop.run_in_executor(self._executor, self._send_by_boto3, body)

    def _fitting(self, record: Fields) -> str:
        return self._overflow.put(record) if self._overflow else cut_to(record, MAX_MESSAGE_BYTES)

    def _send_by_boto3(self, body: str) -> None:
        self._clients.get("sqs").send_message(QueueUrl=self._queue_url, MessageBody=body)


class TenantQueryLogQueue:
    """The sink of one tenant's records: see ``pipeline.rag.QueryLogSink``."""

    def __init__(self, queue: QueryLogQueue, tenant_id: str) -> None:
        self._queue = queue
        self._tenant_id = tenant_id

    async def start(self, query_log: QueryLog) -> None:
        """Send the record of a query that has begun; errors as ``QueryLogQueue.send``."""
        await self._queue.send(record_fields(self._tenant_id, query_log))

    create = start
    """Send the record of a query's end."""
