"""Helpers of test_runtime_*.py: events, running functions, a provider released line by line."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from infra.emulator.lambda_service.function_configuration import FunctionConfiguration
from infra.emulator.lambda_service.function_process import FunctionProcess
from infra.emulator.lambda_service.invocation import Invocation

ROOT = Path(__file__).parents[2]
DELIMITER = b"\0" * 8


def http_event(path: str, *, method: str = "GET") -> dict[str, Any]:
    """Return a Function URL's event (payload 2.0), from the one in ``events/``."""
    event: dict[str, Any] = json.loads((ROOT / "events" / "query_function_url_query.json").read_text())
    event["rawPath"] = event["requestContext"]["http"]["path"] = path
    event["requestContext"]["http"]["method"] = method
    event["body"] = None
    return event


def function(handler: str, module: str = "runtime_app", **settings: Any) -> FunctionProcess:
    """Run a handler of an app in this folder, under the streaming runtime unless ``command`` is given."""
    configuration = FunctionConfiguration(
        handler=f"tests.functions.{module}.{handler}", task_root=ROOT, **settings
    )
    return FunctionProcess(configuration)


async def answer(process: FunctionProcess, event: Any, **options: Any) -> Invocation:
    """Invoke, and wait until the environment is free again or its process has died."""
    invocation = await process.invoke(event, **options)
    async with asyncio.timeout(60):
        await invocation.ended.wait()
        await invocation.completed.wait()
    return invocation


def prelude_and_body(invocation: Invocation) -> tuple[dict[str, Any], bytes]:
    """Return the prelude and the body of a streamed response."""
    head, delimiter, body = invocation.body.partition(DELIMITER)
    assert delimiter, invocation.body[:200]
    prelude: dict[str, Any] = json.loads(head)
    return prelude, body


def reported_error(invocation: Invocation) -> tuple[str, str]:
    """Return type and message of the reported error; awslambdaric has the type in the body only."""
    assert invocation.error is not None
    error = json.loads(invocation.error.payload)
    return error["errorType"], error["errorMessage"]


async def json_body(process: FunctionProcess, path: str) -> dict[str, Any]:
    """Return the JSON response of a path of the app."""
    _, body = prelude_and_body(await answer(process, http_event(path)))
    decoded: dict[str, Any] = json.loads(body)
    return decoded


class Gate:
    """A TCP server as a provider: each connection gets lines when the test releases them."""

    def __init__(self) -> None:
        self.connected = asyncio.Semaphore(0)
        self.lost = asyncio.Event()
        self._lines: list[asyncio.Queue[bytes | None]] = []

    @asynccontextmanager
    async def open(self) -> AsyncIterator[dict[str, str]]:
        """Listen, and return the environment variable with the address."""
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        host, port = server.sockets[0].getsockname()[:2]
        try:
            yield {"GATE": f"{host}:{port}"}
        finally:
            server.close()
            for lines in self._lines:
                lines.put_nowait(None)
            await server.wait_closed()

    def release(self, line: str, connection: int = -1) -> None:
        """Release a token."""
        self._lines[connection].put_nowait(line.encode() + b"\n")

    def end(self, connection: int = -1) -> None:
        """End a stream."""
        self._lines[connection].put_nowait(None)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        lines: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._lines.append(lines)
        self.connected.release()
        gone = asyncio.ensure_future(reader.read(1))
        gone.add_done_callback(lambda _: self._lose(lines))
        while (line := await lines.get()) is not None:
            writer.write(line)
        writer.close()
        await asyncio.wait({gone}, timeout=1)
        gone.cancel()

    def _lose(self, lines: asyncio.Queue[bytes | None]) -> None:
        self.lost.set()
        lines.put_nowait(None)
