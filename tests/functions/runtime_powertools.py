"""A streaming handler inside Powertools' decorators, for test_runtime_process.py."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from aws_lambda_powertools import Logger, Metrics, Tracer
from aws_lambda_powertools.metrics import MetricUnit
from fastapi import FastAPI
from fastapi.responses import StreamingResponse

from vectorforge.runtime import StreamingHandler

logger = Logger(service="runtime")
metrics = Metrics(namespace="Runtime", service="runtime")
tracer = Tracer(service="runtime", auto_patch=False)
app = FastAPI()


@app.get("/fails")
@app.get("/stream")
async def stream(fails: bool = False) -> StreamingResponse:
    async def pieces() -> AsyncIterator[bytes]:
        for number in range(3):
            metrics.add_metric("Pieces", MetricUnit.Count, 1)
            logger.info("piece %d", number)
            yield b"%d" % number
            await asyncio.sleep(0.05)
        if fails:
            raise ValueError("late")

    return StreamingResponse(pieces())


streaming = StreamingHandler(app)


@logger.inject_lambda_context
@tracer.capture_lambda_handler(capture_response=False)
@metrics.log_metrics(capture_cold_start_metric=True)
def handler(event: Any, context: Any) -> Any:
    return streaming(event, context)


directly = logger.inject_lambda_context(tracer.capture_lambda_handler(streaming))


def swallows(event: Any, context: Any) -> Any:
    """Replace the response, as some decorators do."""
    response = dict(streaming(event, context))
    assert response == {"statusCode": 200, "streamed": True, "complete": True}
    return object()  # awslambdaric cannot serialize it as JSON


def streams_twice(event: Any, context: Any) -> Any:
    streaming(event, context)
    return streaming(event, context)
