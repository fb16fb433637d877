"""An SQS event source mapping: polls a queue, invokes a function with batches, deletes what succeeded."""

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, Self, TypeVar

from infra.emulator.lambda_service.function_configuration import Function, TooManyRequestsError
from infra.emulator.lambda_service.invocation import FunctionError, Invocation, InvocationOptions
from infra.emulator.lambda_service.queue_events import Message, cut, failed_ids, record
from infra.emulator.lambda_service.recursion import RecursionStoppedError, total_hops

T = TypeVar("T")
_RECEIVE_LIMIT = 10
"""Messages of one ReceiveMessage, and of one DeleteMessageBatch."""
_LONG_POLL_S = 1
"""Lambda waits 20 s; a stop need not wait that long here."""
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.05, 1.0


@dataclass(frozen=True, slots=True)
class BatchResult:
    """Result of one event."""

    records: Sequence[dict[str, Any]]
    failed: frozenset[str]
    """Message ids that stay in the queue."""
    error: FunctionError | None
    throttled: bool = False
    """The function was throttled until the visibility timeout."""
    recursion_stopped: bool = False
    """The messages were dropped, or moved to the dead-letter queue."""


class QueueEventSource:
    """Event source with ``ReportBatchItemFailures`` that polls inside its context manager.

    Args:
        function: Receives the events.
        queue_url: URL of the queue.
        endpoint_url: URL of an emulator; None: AWS.
        region: Region of the queue.
        batch_size: Most messages of an event.
        batching_window_s: Longest wait for a full batch; 0 takes what one receive gives (at most 10).
        maximum_concurrency: Concurrent events.
        on_batch: Called after each event, once processed messages are deleted.
    """

    def __init__(
        self,
        function: Function,
        queue_url: str,
        *,
        endpoint_url: str | None = None,
        region: str = "us-east-1",
        batch_size: int = 10,
        batching_window_s: float = 0.0,
        maximum_concurrency: int = 2,
        on_batch: Callable[[BatchResult], Awaitable[None]] | None = None,
    ) -> None:
        self._function = function
        self._queue_url = queue_url
        self._endpoint_url = endpoint_url
        self._region = region
        self._batch_size = batch_size
        self._batching_window_s = batching_window_s
        self._maximum_concurrency = maximum_concurrency
        self._on_batch = on_batch
        self._stopping = False
        self._pollers: list[asyncio.Task[None]] = []
        self._threads = ThreadPoolExecutor(maximum_concurrency, thread_name_prefix="queue-event-source")
        self._sqs: Any = None
        self._arn = ""
        self._visibility_s = 0
        self._dead_letters = ""

    async def __aenter__(self) -> Self:
        self._sqs = await self._call(self._connect)
        names = ["QueueArn", "VisibilityTimeout", "RedrivePolicy"]
        answer = await self._call(
            lambda: self._sqs.get_queue_attributes(QueueUrl=self._queue_url, AttributeNames=names)
        )
        self._arn = answer["Attributes"]["QueueArn"]
        self._visibility_s = int(answer["Attributes"]["VisibilityTimeout"])
        redrive = json.loads(answer["Attributes"].get("RedrivePolicy", "{}"))
        self._dead_letters = str(redrive.get("deadLetterTargetArn", "")).rpartition(":")[2]
        self._pollers = [asyncio.create_task(self._poll()) for _ in range(self._maximum_concurrency)]
        return self

    async def __aexit__(self, *_: object) -> None:
        """Finish running events, then stop.

        Raises:
            Exception: ``on_batch`` raised it.
        """
        self._stopping = True
        ends = await asyncio.gather(*self._pollers, return_exceptions=True)
        self._threads.shutdown()
        self._sqs.close()
        for end in ends:
            if isinstance(end, BaseException):
                raise end

    def _connect(self) -> Any:
        import boto3
        from botocore.config import Config

        keys = {}
        if self._endpoint_url is not None:  # an emulator takes any; the real ones stay out of it
            keys = {"aws_access_key_id": "test", "aws_secret_access_key": "test"}
        config = Config(connect_timeout=2, read_timeout=10, max_pool_connections=self._maximum_concurrency)
        session = boto3.session.Session(region_name=self._region, **keys)
        return session.client("sqs", endpoint_url=self._endpoint_url, config=config)

    async def _call(self, call: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, call)

    async def _poll(self) -> None:
        from botocore.exceptions import BotoCoreError, ClientError

        pause_s = _FIRST_PAUSE_S
        while not self._stopping:
            try:
                messages = await self._gather()
                for batch in cut(record(message, self._arn) for message in messages):
                    await self._deliver(batch)
                pause_s = _FIRST_PAUSE_S
            except (BotoCoreError, ClientError):  # the queue is not reachable: as on AWS, try again
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    async def _gather(self) -> list[Message]:
        """Receive a batch until it is full, or until the window since its first message has passed."""
        loop = asyncio.get_running_loop()
        messages = await self._receive(self._batch_size)
        give_up_at = loop.time() + self._batching_window_s
        while messages and len(messages) < self._batch_size and loop.time() < give_up_at:
            messages += await self._receive(self._batch_size - len(messages))
        return messages

    async def _receive(self, most: int) -> list[Message]:
        answer = await self._call(
            lambda: self._sqs.receive_message(
                QueueUrl=self._queue_url,
                MaxNumberOfMessages=min(most, _RECEIVE_LIMIT),
                WaitTimeSeconds=_LONG_POLL_S,
                MessageSystemAttributeNames=["All"],
                MessageAttributeNames=["All"],
            )
        )
        messages: list[Message] = answer.get("Messages", [])
        return messages

    async def _deliver(self, records: list[dict[str, Any]]) -> None:
        try:
            invocation = await self._invoke({"Records": records})
        except RecursionStoppedError:
            await self._drop(records)
            result = BatchResult(records, frozenset(), None, recursion_stopped=True)
        else:
            result = await self._result(invocation, records)
        await self._settle(result)
        if self._on_batch is not None:
            await self._on_batch(result)

    async def _result(self, invocation: Invocation | None, records: list[dict[str, Any]]) -> BatchResult:
        ids = [one["messageId"] for one in records]
        if invocation is None:
            return BatchResult(records, frozenset(ids), None, throttled=True)
        await invocation.ended.wait()
        failed = failed_ids(invocation, ids)
        return BatchResult(records, frozenset(failed), invocation.error)

    async def _invoke(self, event: dict[str, Any]) -> Invocation | None:
        """Send an event, with retries while throttled; return None after the visibility timeout.

        The trace is that of the message with the most hops.
        """
        traces = [one["attributes"].get("AWSTraceHeader", "") for one in event["Records"]]
        trace = max(traces, key=total_hops)
        options: InvocationOptions = {"trace_id": trace} if trace else {}
        loop = asyncio.get_running_loop()
        give_up_at = loop.time() + self._visibility_s
        pause_s = _FIRST_PAUSE_S
        while loop.time() < give_up_at and not self._stopping:
            with contextlib.suppress(TooManyRequestsError):
                return await self._function.invoke(event, **options)
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
        return None

    async def _settle(self, result: BatchResult) -> None:
        done = [one for one in result.records if one["messageId"] not in result.failed]
        handles = [one["receiptHandle"] for one in done]
        for start in range(0, len(handles), _RECEIVE_LIMIT):
            entries = [
                {"Id": str(index), "ReceiptHandle": handle}
                for index, handle in enumerate(handles[start : start + _RECEIVE_LIMIT])
            ]
            delete = partial(self._sqs.delete_message_batch, QueueUrl=self._queue_url, Entries=entries)
            await self._call(delete)

    async def _drop(self, records: list[dict[str, Any]]) -> None:
        """Move messages of a loop to the dead-letter queue, if any, as Lambda does."""
        if not self._dead_letters:
            return
        found = await self._call(lambda: self._sqs.get_queue_url(QueueName=self._dead_letters))
        for one in records:
            send = partial(self._sqs.send_message, QueueUrl=found["QueueUrl"], MessageBody=one["body"])
            await self._call(send)
