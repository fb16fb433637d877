"""``make local-aws`` as a process: the functions, queues and front doors of a deployment, over HTTP."""

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import aiohttp
import boto3
import psutil
import pytest

from tests.support.http.event_stream import ReceivedEvent, check_order, read_events
from tests.support.vendors.fake_openai import FakeOpenAI
from tests.support.vendors.fake_vendor import Reply
from vectorforge.local.postgres import EmbeddedPostgres

T = TypeVar("T")
FACT = "The teapot of Quibblestone sings every Tuesday at noon."
QUESTION = "When does the teapot of Quibblestone sing?"
PATIENCE_S = 120


@pytest.fixture(scope="module")
def folder(private_dir: Callable[[str], Path]) -> Iterator[Path]:
    """Create the data folder of both runs; its embedded database is stopped at the end."""
    made = private_dir("local-aws")
    yield made
    EmbeddedPostgres(made / "aws" / "postgres").stop(force=True)


@asynccontextmanager
async def local_aws(
    folder: Path, *, end: signal.Signals, **variables: str
) -> AsyncIterator[tuple[dict[str, str], psutil.Process]]:
    """Run it, and yield its output and process; check that this signal ends all processes."""
    inherited = {name: v for name, v in os.environ.items() if not name.startswith(("VECTORFORGE_", "AWS_"))}
    command = ["-m", "infra.emulator.aws", "--json", "--port", "0", "--aws-port", "0"]
    command += ["--no-sample", "--data-dir", str(folder)]
    process = await asyncio.create_subprocess_exec(
        sys.executable, *command, env={**inherited, **variables},
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout is not None
    try:
        async with asyncio.timeout(PATIENCE_S):
            line = await process.stdout.readline()
        if not line:
            raise AssertionError((await process.communicate())[1].decode())
        parent = psutil.Process(process.pid)
        yield json.loads(line), parent
        children = [child for child in parent.children(recursive=True) if "postgres" not in child.name()]
        assert len(children) >= 3
        process.send_signal(end)
        async with asyncio.timeout(60):
            _, errors = await process.communicate()
        assert (process.returncode, errors.decode().splitlines()[-1]) == (0, "Stopped.")
        assert psutil.wait_procs(children, timeout=5)[1] == []
    finally:
        if process.returncode is None:
            process.kill()
            await process.communicate()


async def eventually(look: Callable[[], Awaitable[T | None]]) -> T:
    """Return the first result of ``look`` that is not empty."""
    async with asyncio.timeout(PATIENCE_S):
        while not (found := await look()):  # noqa: ASYNC110 - the other side is a server
            await asyncio.sleep(0.1)
    return found


async def streamed_events(http: aiohttp.ClientSession, question: str) -> AsyncIterator[ReceivedEvent]:
    """Yield the events of a streamed answer as they arrive."""
    body = {"query": question, "stream": True}
    async with http.post("/v1/rag/query", json=body) as response:
        assert (response.status, response.headers["transfer-encoding"]) == (200, "chunked")
        async for event in read_events(_lines(response)):
            yield event


async def _lines(response: aiohttp.ClientResponse) -> AsyncIterator[str]:
    async for line in response.content:
        yield line.decode().rstrip("\n")


async def logged(http: aiohttp.ClientSession, question: str) -> list[dict[str, Any]]:
    """Return the final rows of this query in the log."""
    async with http.get("/v1/queries", params={"limit": 100}) as response:
        rows: list[dict[str, Any]] = (await response.json())["queries"]
    return [row for row in rows if row["query_text"] == question and row["outcome"] != "started"]


def client(told: dict[str, str]) -> aiohttp.ClientSession:
    return aiohttp.ClientSession(told["url"], timeout=aiohttp.ClientTimeout(total=PATIENCE_S))


async def test_uploaded_document_is_queried_and_logged(folder: Path) -> None:
    async with local_aws(folder, end=signal.SIGINT) as (told, _), client(told) as http:
        bucket = f"{told['endpoint_url']}/{told['uploads_bucket']}"
        async with http.put(f"{bucket}/local/default/teapot.md", data=FACT.encode()) as response:
            assert response.status == 200

        async def collection() -> str | None:
            async with http.get("/v1/collections") as response:
                found = (await response.json())["collections"]
            return found[0]["id"] if found and found[0]["document_count"] else None

        collection_id = await eventually(collection)  # S3, its notification, SQS, the ingest function
        documents = {"documents": [{"source": "moon.md", "text": "The moon of Quibblestone is green."}]}
        path = f"/v1/collections/{collection_id}/documents"
        async with http.post(path, json=documents) as response:
            assert response.status == 202
            job = response.headers["Location"]

        async def status() -> str | None:
            async with http.get(job) as response:
                found: str = (await response.json())["status"]
            return found if found not in ("queued", "running") else None

        assert await eventually(status) == "succeeded"

        form_path = f"/v1/collections/{collection_id}/uploads"
        async with http.post(form_path, json={"path": "sun.md"}) as response:
            form = await response.json()
        fields = aiohttp.FormData(form["fields"])
        fields.add_field("file", b"The sun of Quibblestone is late.", filename="sun.md")
        async with http.post(form["url"], data=fields) as response:
            assert response.status == 204

        async def uploaded() -> str | None:
            async with http.get("/v1/jobs", params={"source": form["source"]}) as response:
                jobs = (await response.json())["jobs"]
            return jobs[0]["status"] if jobs and jobs[0]["finished_at"] else None

        assert await eventually(uploaded) == "succeeded"

        events = [event async for event in streamed_events(http, QUESTION)]
        check_order(events)
        done = events[-1].data
        assert (done["outcome"], FACT in done["answer"]) == ("answered", True)
        assert events[0].data["extractive"] is True
        (row,) = await eventually(lambda: logged(http, QUESTION))  # SQS, the log-writer function
        assert (row["outcome"], row["generated_response"]) == ("answered", done["answer"])


async def test_provider_key_is_read_from_secret_and_tokens_are_streamed(folder: Path) -> None:
    held: asyncio.Queue[int] = asyncio.Queue()

    async def gate(number: int) -> None:
        if number:  # token n is released when the client has token n - 1
            assert await held.get() == number

    async with FakeOpenAI(api_key="sk-canary-of-local-aws") as vendor:
        vendor.script(Reply(texts=("It", " sings", " at", " noon [Context 1]."), gate=gate))
        variables = {
            "VECTORFORGE_OPENAI_API_KEY": vendor.api_key,
            "VECTORFORGE_OPENAI_BASE_URL": vendor.base_url,
        }
        running = local_aws(folder, end=signal.SIGTERM, **variables)
        async with running as (told, process), client(told) as http:
            question, tokens = "At what time, exactly?", 0
            async for event in streamed_events(http, question):
                if event.name == "token":
                    tokens += 1
                    held.put_nowait(tokens)
            assert (tokens, event.name, event.data["outcome"]) == (4, "done", "answered")
            (row,) = await eventually(lambda: logged(http, question))
            assert row["provider"] == "openai"
            assert vendor.api_key in await asyncio.to_thread(secret, told)
            functions = [child for child in process.children() if "vectorforge.runtime" in child.cmdline()]
            assert functions
            assert vendor.api_key not in str([child.environ() for child in functions])
            logs = [file.read_text() for file in (folder / "aws" / "logs").iterdir()]
            assert vendor.api_key not in "".join(logs)


def secret(told: dict[str, str]) -> str:
    """Return the secret's value."""
    client = boto3.client(
        "secretsmanager", endpoint_url=told["endpoint_url"], region_name="us-east-1",
        aws_access_key_id="test", aws_secret_access_key="test",
    )  # fmt: skip
    with contextlib.closing(client):
        value: str = client.get_secret_value(SecretId=told["provider_secret_id"])["SecretString"]
    return value


async def test_occupied_port_exits_with_one_line_error(folder: Path) -> None:
    server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    async with server:
        port = str(server.sockets[0].getsockname()[1])
        command = ["-m", "infra.emulator.aws", "--aws-port", port, "--data-dir", str(folder)]
        environment = {
            name: v for name, v in os.environ.items() if not name.startswith(("VECTORFORGE_", "AWS_"))
        }
        process = await asyncio.create_subprocess_exec(
            sys.executable, *command, env=environment, stderr=asyncio.subprocess.PIPE
        )
        async with asyncio.timeout(PATIENCE_S):
            _, errors = await process.communicate()
    assert process.returncode == 1
    assert (
        errors.decode().splitlines()[-1].startswith(f"Port {port} cannot be opened: address already in use.")
    )
