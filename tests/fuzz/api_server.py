"""The whole API in a process of its own, to be sent anything.

Vectors count words and answers are quoted: it needs no model and no network.
"""

import asyncio
import logging
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import httpx2

from vectorforge.api.app import create_app
from vectorforge.config import AwsSettings, LimitSettings
from vectorforge.testing.fake_aws import aws_environment
from vectorforge.testing.live_api import (
    add_documents,
    ask_streaming,
    build_application,
    key_of,
    new_collection,
    settings_for,
)
from vectorforge.testing.live_server import serve

ROOT = Path(__file__).parents[2]
_QUESTION = {"query": "How long does a refund take?"}
_TEXT = "A refund takes five working days. Opened goods are exchanged."


@dataclass(frozen=True, slots=True)
class ApiServer:
    """A running server process, and whom it knows."""

    url: str
    tenant: str

    @property
    def headers(self) -> dict[str, str]:
        """What each request of the tenant needs."""
        return {"Authorization": f"Bearer {key_of(self.tenant)}"}


@asynccontextmanager
async def api_server(database_url: str, tenant: str, *, log: IO[bytes]) -> AsyncIterator[ApiServer]:
    """Start it on a migrated database (app's role) for a tenant; its log goes to the file ``log``."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.fuzz.api_server"),
        cwd=ROOT,
        env={
            **os.environ,
            **aws_environment("http://127.0.0.1:1"),  # uploads are only signed
            "PYTHONPATH": f"{ROOT / 'shared'}:{ROOT}",
            "FUZZ_DATABASE_URL": database_url,
            "FUZZ_TENANT": tenant,
        },
        stdout=asyncio.subprocess.PIPE,
        stderr=log,
    )
    try:
        assert process.stdout is not None
        if not (url := (await process.stdout.readline()).decode().strip()):
            raise RuntimeError("The server did not start; its log says why.")
        yield ApiServer(url, tenant)
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


async def furnish(server: ApiServer) -> dict[str, str]:
    """Give the tenant one of everything; returns the ids by the names that paths and bodies have for them."""
    async with httpx2.AsyncClient(base_url=server.url, headers=server.headers, timeout=30) as client:
        for left in (await client.get("/v1/collections")).json()["collections"]:
            if left["name"] in ("default", "store"):
                await client.delete(f"/v1/collections/{left['id']}")
        collection, store = [await new_collection(client, name) for name in ("default", "store")]
        jobs = [
            await add_documents(client, one, first=_TEXT, second="Another.") for one in (collection, store)
        ]
        conversation = (await client.post("/v1/conversations", json={"title": "Refunds"})).json()
        said = {**_QUESTION, "conversation_id": conversation["id"]}
        answer = (await client.post("/v1/rag/query", json=said)).json()
        resumable = await ask_streaming(client, "/v1/rag/query", {**_QUESTION, "resumable": True})
        await client.post("/v1/profiles/7", json={"profile_summary": _TEXT})
        key = (await client.post("/v1/keys", json={"name": "fuzz"})).json()
    passage = answer["context"][0]
    return {
        "collection_id": collection,
        "vector_store_id": store,
        "file_id": jobs[1]["documents"][0]["document_id"],
        "document_id": passage["document_id"],
        "chunk_id": passage["chunk_id"],
        "job_id": jobs[0]["id"],
        "query_id": resumable[0].data["request_id"],
        "conversation_id": conversation["id"],
        "profile_id": "7",
        "key_id": key.get("id", "none"),  # a tenant has 1,000 at most
        "name": "extractive",
        "model": f"vectorforge/{collection}",
        "collection": collection,
    }


async def _serve() -> None:
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s %(message)s")
    tenant = os.environ["FUZZ_TENANT"]
    config = settings_for(
        os.environ["FUZZ_DATABASE_URL"],
        [tenant],
        server={"local_tenant": tenant},  # it may read /metrics
        aws=AwsSettings(uploads_bucket="uploads"),
        limits=LimitSettings(limit_requests_per_minute=1_000_000, limit_tokens_per_day=10**12),  # counted
    )
    async with serve(create_app(build_application(config))) as url:
        sys.stdout.write(url + "\n")
        sys.stdout.flush()
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_serve())
