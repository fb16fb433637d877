"""The buffered query function on real event shapes, in a process of its own, as Lambda runs it."""

import asyncio
import base64
import hashlib
import json
import os
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from vectorforge.config import VectorForgeConfig
from vectorforge.local.postgres import EmbeddedPostgres
from vectorforge.testing.fake_embeddings import FakeEmbeddingsServer
from vectorforge.testing.live_api import build_application, settings_for
from vectorforge.types import ChunkDraft, DistanceMetric, DocumentDraft

ROOT = Path(__file__).parents[2]
EMBEDDING_KEY = "embedding-key"
KEY = "example-key-of-the-tenant-acme"  # the one in the event
DRIVER = """
import json, sys
from types import SimpleNamespace
from functions.query.handler import handler
for line in sys.stdin:
    event, remaining_ms = json.loads(line)
    context = SimpleNamespace(
        get_remaining_time_in_millis=lambda: remaining_ms, aws_request_id="r", function_name="query"
    )
    print("=> " + json.dumps(handler(event, context)), flush=True)
"""


def event(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((ROOT / "events" / f"{name}.json").read_text())
    return loaded


HEALTH, QUERY = "query_apigateway_rest_health", "query_function_url_query"


@pytest.fixture
async def embeddings() -> AsyncIterator[FakeEmbeddingsServer]:
    async with FakeEmbeddingsServer(dimension=64, api_key=EMBEDDING_KEY) as server:
        yield server


async def invoke(environment: dict[str, str], *events: tuple[dict[str, Any], int]) -> list[dict[str, Any]]:
    """The responses of one warm process to these (event, remaining milliseconds)."""
    path = os.pathsep.join([str(ROOT), str(ROOT / "shared")])
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-W",
        "error",
        "-c",
        DRIVER,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": path, "HOME": os.environ["HOME"], **environment},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    lines = "".join(json.dumps(pair) + "\n" for pair in events)
    out, err = await process.communicate(lines.encode())
    assert process.returncode == 0, err.decode()
    # Between the responses stand log lines and metrics.
    return [json.loads(line[3:]) for line in out.splitlines() if line.startswith(b"=> ")]


async def test_both_payload_formats_are_answered_by_one_warm_process(
    postgres_server: EmbeddedPostgres, embeddings: FakeEmbeddingsServer, make_tenant: Callable[[], str]
) -> None:  # B-044, C02
    tenant = make_tenant()
    environment = {
        "VECTORFORGE_DATABASE_URL": postgres_server.app_url,
        "VECTORFORGE_API_KEYS": json.dumps({hashlib.sha256(KEY.encode()).hexdigest(): tenant}),
        "VECTORFORGE_DEFAULT_EMBEDDING_PROVIDER": "http",
        "VECTORFORGE_EMBEDDING_BASE_URL": embeddings.base_url,
        "VECTORFORGE_EMBEDDING_MODEL": "fake-embeddings",
        "VECTORFORGE_EMBEDDING_DIMENSION": "64",
        "VECTORFORGE_EMBEDDING_API_KEY": EMBEDDING_KEY,
    }
    await fill(postgres_server.app_url, tenant)
    streamed = event(QUERY)
    streamed["body"] = json.dumps({"query": "How long does a refund take?", "stream": True})
    health, answer, stream, late, nobody = await invoke(
        environment,
        (event(HEALTH), 30_000),
        (event(QUERY), 30_000),
        (streamed, 30_000),
        (event(QUERY), 2_000),
        ({**event(QUERY), "headers": {"content-type": "application/json"}}, 30_000),
    )
    assert (health["statusCode"], json.loads(health["body"])["status"]) == (200, "ok")
    assert (answer["statusCode"], answer["isBase64Encoded"]) == (200, False)
    body = json.loads(answer["body"])
    assert "five days" in body["response"]
    assert body["citations"]
    assert stream["headers"]["content-type"].startswith("text/event-stream")
    assert stream["body"].rstrip().rsplit("event: ", 1)[1].startswith("done")
    assert late["statusCode"] == 504  # what is left is kept for the error and the log
    assert json.loads(late["body"])["detail"].startswith("RAG query error: ")
    assert (nobody["statusCode"], nobody["isBase64Encoded"]) == (401, False)
    assert nobody["headers"]["content-type"] == "application/problem+json"


async def test_without_its_database_the_function_still_answers(make_tenant: Callable[[], str]) -> None:
    environment = {
        "VECTORFORGE_DATABASE_URL": "postgresql://vectorforge_app@127.0.0.1:1/x?connect_timeout=1",
        "VECTORFORGE_API_KEYS": json.dumps({hashlib.sha256(KEY.encode()).hexdigest(): make_tenant()}),
        "VECTORFORGE_OPENAI_API_KEY": "sk-canary",
        "VECTORFORGE_DEFAULT_EMBEDDING_PROVIDER": "openai",
    }
    encoded = event(QUERY)
    encoded.update(body=base64.b64encode(encoded["body"].encode()).decode(), isBase64Encoded=True)
    health, answer = await invoke(environment, (event(HEALTH), 30_000), (encoded, 30_000))
    assert (health["statusCode"], json.loads(health["body"])["status"]) == (503, "degraded")
    problem = json.loads(answer["body"])
    assert (answer["statusCode"], problem["code"]) == (503, "database_unavailable")
    assert "canary" not in str(health) + str(answer)


async def fill(app_url: str, tenant: str) -> None:
    """Put a document where the event's question finds it, embedded as the fake server embeds."""
    application = build_application(settings_for(app_url))
    async with application:
        services = application.for_tenant(tenant)
        collection = await services.collections.create(
            VectorForgeConfig().query.default_collection,
            embedding_provider="http",
            embedding_model="fake-embeddings",
            dimension=64,
            distance_metric=DistanceMetric.COSINE,
        )
        embedder = application.embedding_registry.get_default()
        text = "How long does a refund take? A refund does take five days."
        draft = ChunkDraft(
            index=0,
            text=text,
            start_offset=0,
            end_offset=len(text),
            token_count=6,
            content_hash=hashlib.sha256(text.encode()).digest(),
            vector=await embedder.embed_query(text),
        )
        document = DocumentDraft("refunds.txt", text, "text/plain", hashlib.sha256(text.encode()).digest())
        await services.vector_store.replace_document(collection.id, document, [draft])
