"""The examples, run as a reader runs them."""

import asyncio
import os
import sys
from collections.abc import Callable
from pathlib import Path

from vectorforge.local.postgres import EmbeddedPostgres
from vectorforge.testing.live_api import (
    LiveApi,
    add_documents,
    key_of,
    live_api,
    new_collection,
    settings_for,
)

EXAMPLES = Path(__file__).parents[2] / "examples"


async def run(api: LiveApi, tenant: str, name: str, **environment: str) -> str:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-W",
        "error",
        str(EXAMPLES / name),
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


async def test_the_examples_work(
    postgres_server: EmbeddedPostgres, make_tenant: Callable[[], str]
) -> None:  # B-042, B-043, B-044
    tenant = make_tenant()
    async with live_api(settings_for(postgres_server.app_url, [tenant])) as api:
        ingested = await run(api, tenant, "rag_ingest_example.py")
        assert "Ingestion succeeded: 3 of 3 documents" in ingested
        assert "eight hours" in ingested
        assert "[Context 1] examples/overfitting.md" in ingested
        asked = await run(api, tenant, "rag_query_example.py")
        for title in ("Nothing but a question", "Every option", "A conversation", "Streamed", "refusal"):
            assert title in asked
        assert "pgvector adds a vector type" in asked
        assert "usage: {" in asked
        assert "422 invalid_input: [{'field': 'k'" in asked


async def test_the_openai_example_works(
    postgres_server: EmbeddedPostgres, make_tenant: Callable[[], str]
) -> None:
    tenant = make_tenant()
    async with live_api(settings_for(postgres_server.app_url, [tenant])) as api:
        async with api.client(tenant) as client:
            text = "# Tenants\n\nTenants are kept apart by row-level security.\n"
            await add_documents(client, await new_collection(client), tenants=text)
        shown = await run(api, tenant, "openai_client_example.py", VECTORFORGE_EMBEDDINGS="hashing")
    assert "models: vectorforge, vectorforge/default" in shown
    assert "Tenants are kept apart by row-level security. [1]" in shown
    assert f"  [1] Tenants: {api.url}/v1/documents/" in shown
    assert "**Sources**\n\n- [1] Tenants (tenants.md)\nfinish reason: stop" in shown
    assert "2 of 64 dimensions" in shown
    assert "model_not_found, model: 404" in shown
