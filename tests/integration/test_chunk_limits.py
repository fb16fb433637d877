"""A short text cannot produce many chunks (security 27)."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.support.http.live_api import finished_job, live_api, new_collection, settings_for
from vectorforge.config import IngestionSettings
from vectorforge.local.postgres import EmbeddedPostgres

WORDS = " ".join(f"word{number:04}" for number in range(900))
"""Text of about 8,000 characters."""


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/profiles/1", {"profile_summary": WORDS}),
        ("/v1/profiles/1/documents", {"text": WORDS}),
    ],
)
async def test_overlap_above_half_the_size_is_rejected(
    app_url: str, make_tenant: Callable[[], str], path: str, body: dict[str, Any]
) -> None:
    tenant = make_tenant()
    async with live_api(settings_for(app_url, [tenant])) as api, api.client(tenant) as client:
        over = {**body, "chunking": {"chunk_size": 50, "chunk_overlap": 26}}
        refused = await client.post(path, json=over)
        assert refused.status_code == 422, refused.text
        (error,) = refused.json()["errors"]
        assert error["field"] == "chunk_overlap"
        assert "at most half of chunk_size, 25" in error["message"]
        half = {**body, "chunking": {"chunk_size": 50, "chunk_overlap": 25}}
        made = (await client.post(path, json=half)).json()["chunks_added"]
        assert made <= 8 * len(WORDS) / 50  # it was 1,343 with an overlap of 49
        smaller = {**body, "chunking": {"chunk_size": 60}}  # the default overlap shrinks with the size
        assert (await client.post(path, json=smaller)).status_code == 200


async def test_vector_store_with_chunking_strategy_is_rejected(
    app_url: str, make_tenant: Callable[[], str]
) -> None:
    tenant = make_tenant()
    static = {"max_chunk_size_tokens": 100, "chunk_overlap_tokens": 50}
    body = {"name": "cut", "chunking_strategy": {"type": "static", "static": static}}
    async with live_api(settings_for(app_url, [tenant])) as api, api.client(tenant) as client:
        refused = await client.post("/v1/vector_stores", json=body)
        assert refused.status_code == 400
        assert refused.json()["error"]["param"] == "chunking_strategy"


async def test_document_with_too_many_chunks_fails_alone(
    postgres_server: EmbeddedPostgres, make_tenant: Callable[[], str]
) -> None:
    tenant = make_tenant()
    ingestion = IngestionSettings(max_chunks_per_document=10)
    config = settings_for(postgres_server.app_url, [tenant], ingestion=ingestion)
    async with live_api(config) as api, api.client(tenant) as client:
        collection = await new_collection(client)
        documents = [{"source": "long", "text": WORDS}, {"source": "short", "text": "A short text."}]
        job = await client.post(f"/v1/collections/{collection}/documents", json={"documents": documents})
        items = (await finished_job(client, job.json()["id"]))["documents"]
        long, short = sorted(items, key=lambda item: str(item["source"]))
        assert (long["status"], short["status"]) == ("failed", "succeeded")
        assert long["error"]["code"] == "document_too_large"
        assert "at most 10 chunks" in long["error"]["message"]
        stored = (await client.get(f"/v1/collections/{collection}/documents")).json()["documents"]
        assert [document["source"] for document in stored] == ["short"]


async def test_profile_request_of_too_many_chunks_stores_and_embeds_nothing(
    postgres_server: EmbeddedPostgres, make_tenant: Callable[[], str]
) -> None:
    tenant = make_tenant()
    ingestion = IngestionSettings(max_chunks_per_request=15)
    config = settings_for(postgres_server.app_url, [tenant], ingestion=ingestion)
    async with live_api(config) as api, api.client(tenant) as client:
        texts = [{"source_id": str(number), "text": WORDS} for number in range(2)]
        body = {"profile_summary": "One.", "documents": texts}
        refused = await client.put("/v1/profiles/1", json=body)
        assert refused.status_code == 422, refused.text
        (error,) = refused.json()["errors"]
        assert error["field"] == "documents"
        assert "at most 15 chunks" in error["message"]
        found = await client.post("/v1/profiles/1/search", json={"query": "word0001"})
        assert found.json()["results"] == []
