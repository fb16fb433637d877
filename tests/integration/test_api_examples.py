"""The examples, run as a reader runs them."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.http.live_api import (
    LiveApi,
    add_documents,
    key_of,
    live_api,
    new_collection,
    settings_for,
)
from vectorforge.local.postgres import EmbeddedPostgres

EXAMPLES = Path(__file__).parents[2] / "examples"


async def run(api: LiveApi, tenant: str, name: str, *arguments: str, **environment: str) -> str:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-W",
        "error",
        str(EXAMPLES / name),
        *arguments,
        env={
            "PATH": os.environ["PATH"],
            "VECTORFORGE_URL": api.url,
            "VECTORFORGE_API_KEY": key_of(tenant),
            **environment,
        },
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    return out.decode()


async def test_ingest_and_query_examples_run(
    postgres_server: EmbeddedPostgres, make_tenant: Callable[[], str]
) -> None:  # B-042, B-043, B-044
    tenant = make_tenant()
    async with live_api(settings_for(postgres_server.app_url, [tenant])) as api:
        ingested = await run(api, tenant, "rag_ingest_example.py")
        assert "Ingestion succeeded: 3 of 3 documents" in ingested
        assert "eight hours" in ingested
        assert "[Context 1] examples/overfitting.md" in ingested
        async with api.client(tenant) as client:
            [collection] = (await client.get("/v1/collections")).json()["collections"]
        assert collection["document_count"] == 0  # it deletes its collection
        await run(api, tenant, "rag_ingest_example.py", "--keep")
        output = await run(api, tenant, "rag_query_example.py")
        shown = await run(api, tenant, "python_client.py")
        assert "succeeded: 2" in shown
        assert "approves every refund above 500 euros. [Context 1]" in shown
        assert "refunds.md: supported" in shown
        assert "thirty days of paid holidays a year. [Context 1] (stop)" in shown
        assert "['refunds.md', 'holidays.md']" in shown
        for title in ("Nothing but a question", "Every option", "A conversation", "Streamed", "refusal"):
            assert title in output
        assert "pgvector adds a vector type" in output
        assert "usage: {" in output
        assert "422 invalid_input: [{'field': 'k'" in output


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("mcp_agent.py", "Set OPENAI_API_KEY or ANTHROPIC_API_KEY"),
        ("langchain_retriever.py", "No server at"),
        ("openai_client_example.py", "No server at"),
        ("python_client.py", "No server at"),
        ("rag_ingest_example.py", "No server at"),
        ("rag_query_example.py", "No server at"),
    ],
)
def test_example_without_requirements_exits_with_one_line_error(name: str, message: str) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", str(EXAMPLES / name)],
        env={"PATH": os.environ["PATH"], "VECTORFORGE_URL": "http://127.0.0.1:9"},
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr.startswith(message)
    assert len(done.stderr.splitlines()) == 1


async def test_openai_example_runs(postgres_server: EmbeddedPostgres, make_tenant: Callable[[], str]) -> None:
    tenant = make_tenant()
    async with live_api(settings_for(postgres_server.app_url, [tenant])) as api:
        async with api.client(tenant) as client:
            text = "# Tenants\n\nTenants are isolated by row-level security.\n"
            await add_documents(client, await new_collection(client), tenants=text)
        shown = await run(api, tenant, "openai_client_example.py", VECTORFORGE_EMBEDDINGS="hashing")
    assert "models: vectorforge/default" in shown
    assert "Tenants are isolated by row-level security. [1]" in shown
    assert f"  [1] Tenants: {api.url}/source?chunk=" in shown
    assert "**Sources**\n\n- [1] Tenants (tenants.md)\nfinish reason: stop" in shown
    assert "2 of 64 dimensions" in shown
    assert "model_not_found, model: 404" in shown
