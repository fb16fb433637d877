"""Functions that the tests of the Lambda service run in processes of their own."""

import asyncio
import json
import os
import sys
import threading
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.responses import StreamingResponse
from mangum import Mangum

if "FAIL_INIT" in os.environ:
    raise RuntimeError("the init phase failed")
if "EXIT_IN_INIT" in os.environ:
    os._exit(7)

app = FastAPI()


@app.api_route("/echo/{rest:path}", methods=["GET", "POST"])
async def echo(request: Request) -> dict[str, Any]:
    """Return the request."""
    event = request.scope["aws.event"]
    return {
        "path": request.url.path,
        "query": request.query_params.multi_items(),
        "headers": dict(request.headers),
        "cookies": request.cookies,
        "body": (await request.body()).decode("latin-1"),
        "event": event,
    }


@app.get("/bytes")
async def raw_bytes() -> Response:
    """Return bytes that are not text, with cookies."""
    response = Response(bytes(range(256)), media_type="application/octet-stream", status_code=201)
    response.set_cookie("a", "1")
    response.set_cookie("b", "2")
    return response


@app.get("/pieces")
async def pieces() -> StreamingResponse:
    """Return a body in pieces, which Mangum joins."""

    async def produce() -> AsyncIterator[bytes]:
        for number in range(3):
            yield b"%d;" % number
            await asyncio.sleep(0)

    return StreamingResponse(produce(), media_type="text/plain")


http = Mangum(app, lifespan="off", text_mime_types=["text/", "application/json"])


def plain(event: Any, context: Any) -> Any:
    """Act as set in the event."""
    match event:
        case {"exit": code}:
            os._exit(code)
        case {"raise": message}:
            raise ValueError(message)
        case {"sleep": seconds}:
            time.sleep(seconds)
        case {"until": file}:
            while not Path(file).exists():
                time.sleep(0.01)
        case {"answer": answer}:
            return answer
        case {"size": size}:
            return "x" * size
        case {"print": line}:
            sys.stdout.write(f"{line}\n")
            sys.stderr.write(f"{line}\n")
    return {
        "pid": os.getpid(),
        "event": event,
        "request_id": context.aws_request_id,
        "remaining_ms": context.get_remaining_time_in_millis(),
        "arn": context.invoked_function_arn,
        "environment": dict(os.environ),
    }


def background(event: Any, context: Any) -> Any:
    """Leave a running thread that writes the time to a file."""

    def work() -> None:
        with Path(event["file"]).open("a") as file:
            while True:
                print(time.monotonic(), file=file, flush=True)
                time.sleep(0.01)

    if "file" in event:
        threading.Thread(target=work, daemon=True).start()
    return {"pid": os.getpid()}


def relay(event: Any, context: Any) -> None:
    """Send each message, with the number in it counted down, to the queue it came from, until it is 0."""
    import boto3

    sqs = boto3.client("sqs")
    for record in event["Records"]:
        left = int(record["body"])
        if left:
            sqs.send_message(QueueUrl=os.environ["QUEUE_URL"], MessageBody=str(left - 1))


def consume(event: Any, context: Any) -> Any:
    """Report the messages that are marked as failed, or return the answer in the first body."""
    bodies = [record["body"] for record in event["Records"]]
    if bodies[0].startswith("answer "):
        return json.loads(bodies[0].removeprefix("answer "))
    failed = [record["messageId"] for record in event["Records"] if record["body"].startswith("poison")]
    return {"batchItemFailures": [{"itemIdentifier": one} for one in failed]}
