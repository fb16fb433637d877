"""The query log's way into SQS. What the queue does not take in time goes to stdout, so that it is not lost.

``vectorforge logs replay`` stores such lines later. A call that is given up may still succeed in its thread:
a record that arrives twice is stored once.
"""

import asyncio
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from vectorforge.aws.clients import AwsClients
from vectorforge.aws.query_log_overflow import QueryLogOverflow
from vectorforge.aws.query_log_record import Fields, cut_to, record_fields, to_json
from vectorforge.db.repositories.query_log_repo import QueryLog

MAX_MESSAGE_BYTES = 1_048_576
"""Largest message of SQS since August 2025.
https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/quotas-messages.html"""
MAX_LINE_BYTES = 250_000
"""Longest line on stdout: what forwards CloudWatch's events often keeps to its former limit of 256 KiB."""

_THREADS = 4


class QueryLogQueue:
    """Sends the records of all tenants of a process.

    Args:
        clients: Where the SQS and S3 clients come from; closed with the queue. Their timeouts say how long a
            call that hangs occupies one of four threads.
        queue_url: Of the queue that the log writer reads.
        overflow_bucket: For records larger than a message; None: the longest texts of such a record are cut.
        timeout_s: Longest time for one record, the overflow included.
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
        # Threads of its own: calls that hang must hold up nothing but the log.
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
        """Send a record; when that fails for whatever reason, print it.

        Raises:
            Exception: What went wrong: ``TimeoutError``, an error of botocore, or one of ours.
        """
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self._timeout_s):
                await loop.run_in_executor(self._executor, self._send, record)
        except BaseException:  # a cancelled query has a record, too
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
