"""The queue and the log writer behind it, both as unreliable as permitted."""

import asyncio
import json
import random
import re
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from infra.emulator.lambda_service.function_configuration import FunctionConfiguration
from infra.emulator.lambda_service.function_process import FunctionProcess
from infra.emulator.lambda_service.invocation import Invocation
from infra.emulator.lambda_service.lambda_function import LambdaFunction
from infra.emulator.lambda_service.queue_event_source import BatchResult
from tests.support.aws.fake_aws import REGION, aws_client, aws_environment
from tests.support.aws.faulty_queue import DeliveryFaults, FaultyQueueEventSource
from tests.support.aws.sqs_events import Queue

MAX_RECEIVE_COUNT = 5
_LAST_DISTURBED_RECEIVE = 2
"""Only the first two receives of a message are disturbed, so that none becomes a dead letter by chance."""


@asynccontextmanager
async def sqs_server() -> AsyncIterator[str]:
    """Run moto's SQS in a separate process; yield its address."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        "from moto.server import main; main()",
        "--host=127.0.0.1",
        "--port=0",
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stderr is not None
    try:
        async for line in process.stderr:
            if match := re.search(rb"http://127\.0\.0\.1:\d+", line):
                break
        else:
            raise RuntimeError("moto did not start.")
        reading = asyncio.create_task(_drop(process.stderr))
        yield match[0].decode()
        reading.cancel()
    finally:
        process.kill()
        await process.wait()


async def _drop(stream: asyncio.StreamReader) -> None:
    while await stream.read(65536):
        pass


class LogQueue:
    """A queue with its dead-letter queue.

    Args:
        endpoint: Endpoint of SQS.
        visibility_s: Seconds after which a message that was not deleted is visible again.
    """

    def __init__(self, endpoint: str, *, visibility_s: int) -> None:
        self.endpoint = endpoint
        self.poison: list[str] = []
        """Bodies of the messages that cannot be stored."""
        self._queue = Queue(
            aws_client("sqs", endpoint),
            "query-logs",
            max_receive_count=MAX_RECEIVE_COUNT,
            visibility_s=visibility_s,
        )
        self.url = self._queue.url

    async def add_poison(self, kind: int) -> None:
        """Send a message of one of the eight kinds that can never be stored."""
        number = len(self.poison)
        body = _POISON[kind % len(_POISON)].replace("NUMBER", f"{number:012}")
        self.poison.append(body)
        await asyncio.to_thread(self._queue.send, body)

    async def empty(self, timeout_s: float = 120.0) -> None:
        """Wait until no message is left: visible, in flight or delayed.

        Raises:
            TimeoutError: Messages are left after the timeout.
        """
        quiet = 0
        async with asyncio.timeout(timeout_s):
            while quiet < 2:
                await asyncio.sleep(0.3)
                counts = await asyncio.to_thread(self._queue.count)
                quiet = 0 if any(counts) else quiet + 1

    async def dead(self) -> list[str]:
        """Take all messages from the dead-letter queue."""
        return await asyncio.to_thread(self._queue.bodies, dead=True)


@dataclass(slots=True)
class Deliveries:
    """Counts of events between the queue and the table."""

    batches: int = 0
    messages: int = 0
    redelivered: int = 0
    """Messages that had been received before."""
    refused: int = 0
    """Messages that stayed in the queue."""
    throttled: int = 0
    """Batches without a free log writer, which were retried."""
    killed: dict[str, int] = field(default_factory=dict)
    """Log writers killed, by moment."""

    async def count(self, result: BatchResult) -> None:
        """Count a batch."""
        self.batches += 1
        self.messages += len(result.records)
        self.redelivered += sum(_receives(one) > 1 for one in result.records)
        self.refused += len(result.failed)


@asynccontextmanager
async def log_writer(
    queue: LogQueue,
    log_writer_url: str,
    *,
    rng: random.Random,
    killed: float = 0.08,
    concurrency: int = 2,
    batch_size: int = 10,
    holds: bool = False,
) -> AsyncIterator[Deliveries]:
    """Run the real log writer under an event source that duplicates and shuffles; some writers are killed.

    Args:
        queue: Queue that it reads.
        log_writer_url: Connection string of the log writer's role.
        rng: Random source of the faults.
        killed: Share of the batches whose writer is killed before it starts; the same share after it has
            stored.
        concurrency: Concurrent writers; the event source has up to two batches.
        batch_size: Maximum number of messages per batch.
        holds: Whether the writer delays messages that it could not store, as deployed. An outage then does
            not use up their deliveries, and the next one follows after half a minute.
    """
    deliveries = Deliveries()

    def killer(moment: str) -> Any:
        async def reached(function: FunctionProcess, invocation: Invocation, _data: bytes) -> None:
            records = json.loads(invocation.payload)["Records"]
            if max(map(_receives, records)) <= _LAST_DISTURBED_RECEIVE and rng.random() < killed:
                deliveries.killed[moment] = deliveries.killed.get(moment, 0) + 1
                await function.kill()

        return reached

    configuration = FunctionConfiguration(
        handler="functions.log_writer.handler.handler",
        name="log_writer",
        environment={
            "VECTORFORGE_LOG_WRITER_DATABASE_URL": log_writer_url,
            **({"VECTORFORGE_QUERY_LOG_QUEUE_URL": queue.url} if holds else {}),
            **aws_environment(queue.endpoint),
        },
        freeze_between_invocations=True,
    )
    hooks = {"after_next_reply": killer("before it began"), "response_opened": killer("after it stored")}
    faults = DeliveryFaults(redelivered=0.1, postponed=0.1, shuffled=True, random=rng)
    async with (
        LambdaFunction(configuration, concurrency=concurrency, hooks=hooks) as function,  # type: ignore[arg-type]  # literals
        FaultyQueueEventSource(
            function,
            queue.url,
            endpoint_url=queue.endpoint,
            region=REGION,
            batch_size=batch_size,
            faults=faults,
            on_batch=deliveries.count,
            batching_window_s=0.2,
        ),
    ):
        yield deliveries
        deliveries.throttled = function.throttles


def _receives(record: dict[str, Any]) -> int:
    return int(record["attributes"]["ApproximateReceiveCount"])


_RECORD = {
    "type": "vectorforge.query_log",
    "version": 1,
    "tenant_id": "poison",
    "id": "00000000-0000-0000-0000-NUMBER",
    "collection_id": "00000000-0000-0000-0000-000000000000",
    "query_text": "poison",
    "retrieved_chunk_ids": [],
    "used_chunk_ids": [],
    "generated_response": "",
    "outcome": "answered",
    "latency_ms": 1.0,
    "created_at": "2026-11-22T00:00:00+00:00",
}
_POISON = (
    "no JSON, NUMBER",
    '{"type":"vectorforge.query_log","half":NUMBER',
    '["a list","NUMBER"]',
    '{"type":"something.else","id":"NUMBER"}',
    json.dumps(_RECORD | {"version": 2}),
    json.dumps(_RECORD | {"tenant_id": ""}),
    json.dumps(_RECORD | {"outcome": "invented"}),
    json.dumps(_RECORD | {"latency_ms": "NaN"}),
)
