"""The examples, run as a reader runs them."""

import asyncio
import os
import sys
from collections.abc import Callable
from pathlib import Path

from vectorforge.local.postgres import EmbeddedPostgres
from vectorforge.testing.live_api import LiveApi, key_of, live_api, settings_for

EXAMPLES = Path(__file__).parents[2] / "examples"


async def run(api: LiveApi, tenant: str, name: str) -> str:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-W",
        "error",
        str(EXAMPLES / name),
        env={"PATH": os.environ["PATH"], "VECTORFORGE_URL": api.url, "VECTORFORGE_API_KEY": key_of(tenant)},
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
        assert "examples/overfitting.md" in ingested
        asked = await run(api, tenant, "rag_query_example.py")
        for title in ("Nothing but a question", "Every option", "A conversation", "Streamed", "refusal"):
            assert title in asked
        assert "pgvector adds a vector type" in asked
        assert "usage: {" in asked
        assert "422 invalid_input: [{'field': 'k'" in asked
