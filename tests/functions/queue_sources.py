"""Functions behind a queue, and the reports of their event sources."""

import asyncio
from pathlib import Path
from typing import Any, Unpack

from infra.emulator.lambda_service.function_configuration import (
    AWSLAMBDARIC_COMMAND,
    FunctionConfiguration,
    TooManyRequestsError,
)
from infra.emulator.lambda_service.invocation import Invocation, InvocationOptions
from infra.emulator.lambda_service.queue_event_source import (
    BatchResult,
)

HERE = Path(__file__).parent


LONG = "1000"  # a visibility timeout longer than any test


def consumer(**settings: Any) -> FunctionConfiguration:
    return FunctionConfiguration(
        handler="sample_function.consume",
        command=AWSLAMBDARIC_COMMAND,
        task_root=HERE,
        timeout_s=120,
        init_timeout_s=120,
        **settings,
    )


class Batches:
    """Reports of an event source about its batches."""

    def __init__(self) -> None:
        self.results: asyncio.Queue[BatchResult] = asyncio.Queue()

    async def __call__(self, result: BatchResult) -> None:
        await self.results.put(result)

    async def until(self, count: int) -> list[BatchResult]:
        """Wait for this number of records, and return the batches."""
        batches: list[BatchResult] = []
        while sum(len(batch.records) for batch in batches) < count:
            batches.append(await self.results.get())
        return batches


def left_in(sqs: Any, url: str) -> tuple[int, int]:
    """Return the numbers of waiting messages and of received, undeleted ones."""
    names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
    attributes = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=names)["Attributes"]
    return int(attributes[names[0]]), int(attributes[names[1]])


class RecordingFunction:
    """Accepts every event immediately with success; can be throttled or held."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self.throttled = 0
        self.refusals = 0

    async def invoke(self, event: object, **options: Unpack[InvocationOptions]) -> Invocation:
        if self.refusals < self.throttled:
            self.refusals += 1
            raise TooManyRequestsError
        assert isinstance(event, dict)
        self.events.append(event)
        invocation = Invocation(b"", 1)
        invocation.finish()
        return invocation
