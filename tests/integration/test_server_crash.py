"""kill -9 of the whole server in the middle of its work: no loss, no duplicates."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.support.http.event_stream import read_events
from tests.support.vendors.fake_openai import FakeOpenAI
from tests.support.vendors.vendor_behaviour import Reply
from vectorforge.local.postgres import EmbeddedPostgres

VECTORFORGE = Path(sys.executable).with_name("vectorforge")
DOCUMENTS = 16
REPETITIONS = 24
"""Documents larger than ``group.SMALL_BYTES`` are stored one after the other."""


def start_server(folder: Path, **environment: str) -> "tuple[subprocess.Popen[str], str]":
    """Start ``vectorforge up`` in its own process group; return it and its URL once it answers."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("VECTORFORGE_")}
    process = subprocess.Popen(
        [VECTORFORGE, "up", "--port", "0", "--no-sample", "--json"],
        cwd=folder,
        env={**inherited, "VECTORFORGE_DATA_DIR": str(folder / "data"), **environment},
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert process.stdout is not None
    return process, json.loads(process.stdout.readline())["url"]


def call(url: str, body: Any = None) -> Any:
    data = json.dumps(body).encode() if body is not None else None
    request = urllib.request.Request(url, data, {"content-type": "application/json"})  # noqa: S310 - our own server
    with urllib.request.urlopen(request, timeout=60) as response:  # noqa: S310 - as above
        return json.load(response)


def wait_for(url: str, until: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    give_up_at = time.monotonic() + 180
    while not until(job := call(url)):
        assert time.monotonic() < give_up_at, job
        time.sleep(0.02)
    return dict(job)


def paragraph(document: int, number: int) -> str:
    return f"Document {document} says in paragraph {number} that its number is {document * 1000 + number}. "


@pytest.mark.slow
def test_killed_server_loses_and_duplicates_no_document(private_dir: Callable[[str], Path]) -> None:
    folder = private_dir("crash")
    process, url = start_server(folder)
    try:
        collection = call(f"{url}/v1/collections", {"name": "crash"})
        texts = {
            f"d{d}.txt": "\n\n".join(paragraph(d, n) * REPETITIONS for n in range(6))
            for d in range(DOCUMENTS)
        }
        documents = [{"source": name, "text": text} for name, text in texts.items()]
        path = f"/v1/collections/{collection['id']}"
        job = call(f"{url}{path}/documents", {"documents": documents})
        before = wait_for(f"{url}/v1/jobs/{job['id']}", lambda job: job["documents_done"] >= 5)
        os.kill(process.pid, signal.SIGKILL)
        process.communicate(timeout=10)
        assert before["status"] == "running", "the ingestion ended before the server was killed"

        process, url = start_server(folder)
        done = wait_for(f"{url}/v1/jobs/{job['id']}", lambda job: job["status"] not in ("queued", "running"))
        assert (done["status"], done["documents_done"], done["documents_failed"]) == (
            "succeeded",
            DOCUMENTS,
            0,
        )
        listed = call(f"{url}{path}/documents?limit=100")
        assert sorted(d["source"] for d in listed["documents"]) == sorted(texts)
        for document in listed["documents"]:
            assert document["version"] == 1
            assert call(f"{url}/v1/documents/{document['id']}/text")["text"] == texts[document["source"]]
            chunks = call(f"{url}/v1/documents/{document['id']}/chunks")["chunks"]
            assert len(chunks) == len({c["start_offset"] for c in chunks}) == document["chunk_count"] > 1
        found = call(f"{url}/v1/search", {"query": "lucky number", "collection": "crash", "top_k": 50})[
            "results"
        ]
        assert len(found) == len({result["chunk_id"] for result in found}) == 50
    finally:
        process.kill()
        process.communicate()
        EmbeddedPostgres(folder / "data" / "postgres").stop(force=True)


# N7
async def test_server_killed_during_stream_leaves_one_log_row(
    private_dir: Callable[[str], Path],
) -> None:
    folder = private_dir("killed")
    async with FakeOpenAI() as vendor:
        vendor.script(Reply(texts=("Widgets ", "are "), ending="stall"))
        keys = {
            "VECTORFORGE_OPENAI_API_KEY": vendor.api_key,
            "VECTORFORGE_OPENAI_BASE_URL": vendor.base_url,
            "VECTORFORGE_DEFAULT_EMBEDDING_PROVIDER": "local",
        }
        process, url = await asyncio.to_thread(start_server, folder, **keys)
        try:
            async with httpx2.AsyncClient(base_url=url, timeout=60) as client:
                collection = (await client.post("/v1/collections", json={"name": "killed"})).json()["id"]
                sent = {"documents": [{"source": "a.txt", "text": "Widgets are blue."}]}
                job = (await client.post(f"/v1/collections/{collection}/documents", json=sent)).json()["id"]
                await asyncio.to_thread(
                    wait_for, f"{url}/v1/jobs/{job}", lambda job: job["status"] == "succeeded"
                )
                query = {"query": "What color are widgets?", "stream": True}
                async with client.stream("POST", f"/v1/collections/{collection}/query", json=query) as answer:
                    async for event in read_events(answer.aiter_lines()):
                        if event.name == "token":
                            os.kill(process.pid, signal.SIGKILL)
                            break
            process.communicate(timeout=10)
            process, url = await asyncio.to_thread(start_server, folder, **keys)
            async with httpx2.AsyncClient(base_url=url, timeout=60) as client:
                listed = (await client.get("/v1/queries")).json()["queries"]
            assert [(row["outcome"], row["query_text"]) for row in listed] == [
                ("started", "What color are widgets?")
            ]
        finally:
            process.kill()
            process.communicate()
            await asyncio.to_thread(EmbeddedPostgres(folder / "data" / "postgres").stop, force=True)
