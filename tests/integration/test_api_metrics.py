"""Every request is counted once, by its route's template, regardless of the component that answered it."""

import asyncio
from collections.abc import AsyncIterator
from uuid import uuid4

import httpx2
import pytest
from fastapi import APIRouter
from fastapi.responses import StreamingResponse

from tests.support.http.live_api import build_application, new_collection, settings_for
from tests.support.http.live_server import serve
from vectorforge.api.app import create_app
from vectorforge.local.postgres import EmbeddedPostgres
from vectorforge.telemetry import InMemoryMetrics

Place = tuple[str, str, str]


async def counted(metrics: InMemoryMetrics, name: str, requests: int) -> dict[Place, int]:
    """Return (route, method, status) -> count once all are counted, which is after the last byte."""
    async with asyncio.timeout(10):
        while metrics.total("http.requests") < requests:  # noqa: ASYNC110 - metrics announce nothing
            await asyncio.sleep(0.01)
    return {
        (tags["route"], tags["method"], tags["status"]): int(series.total)
        for metric, tags, series in metrics.items()
        if metric == name
    }


@pytest.fixture
async def running(
    postgres_server: EmbeddedPostgres,
) -> AsyncIterator[tuple[httpx2.AsyncClient, InMemoryMetrics]]:
    tenant = f"tenant-{uuid4().hex[:12]}"
    application = build_application(
        settings_for(postgres_server.app_url, server={"auth": "local", "local_tenant": tenant})
    )
    app = create_app(application)
    router = APIRouter()

    @router.get("/v1/cache")
    async def broken() -> None:
        raise OSError

    @router.get("/v1/conversations")
    async def breaks_off() -> StreamingResponse:
        async def body() -> AsyncIterator[bytes]:
            yield b"half"
            raise OSError

        return StreamingResponse(body())

    app.include_router(router)
    async with serve(app) as url, httpx2.AsyncClient(base_url=url, timeout=30) as client:
        assert isinstance(application.metrics, InMemoryMetrics)
        yield client, application.metrics


async def test_failed_requests_are_counted_as_requests_and_errors(
    running: tuple[httpx2.AsyncClient, InMemoryMetrics],
) -> None:  # B-039, C26
    client, metrics = running
    collection_id = await new_collection(client, "metrics")
    for query in (
        {"query": "?", "collection": "metrics"},
        {"query": "?", "k": 99},
        {"query": "?", "collection": "none"},
    ):
        await client.post("/v1/rag/query", json=query)
    streamed = {"query": "?", "collection": "metrics", "stream": True}
    await client.post("/v1/rag/query", json=streamed)
    for _ in range(2):
        await client.get(f"/v1/collections/{collection_id}/documents")
    await client.get(f"/v1/jobs/{uuid4()}")
    await client.get("/v1/nothing/of/the/kind")
    await client.get("/", headers={"sec-fetch-site": "cross-site"})
    await client.request("PROPFIND", "/v1/search")
    await client.get("/v1/cache")
    with pytest.raises(httpx2.RemoteProtocolError):
        await client.get("/v1/conversations")

    errors = {
        ("/v1/rag/query", "POST", "422"): 1,
        ("/v1/rag/query", "POST", "404"): 1,
        ("/v1/jobs/{job_id}", "GET", "404"): 1,
        ("unmatched", "GET", "404"): 1,
        ("unmatched", "GET", "403"): 1,
        ("/v1/search", "other", "405"): 1,
        ("/v1/cache", "GET", "500"): 1,
        ("/v1/conversations", "GET", "200"): 1,
    }
    served = {
        ("/v1/collections", "POST", "201"): 1,
        ("/v1/rag/query", "POST", "200"): 2,
        ("/v1/collections/{collection_id}/documents", "GET", "200"): 2,
    }
    total = sum(errors.values()) + sum(served.values())
    assert await counted(metrics, "http.requests", total) == served | errors
    assert await counted(metrics, "http.errors", total) == errors
    durations = metrics.get("http.request.duration_ms", {"route": "/v1/rag/query", "method": "POST"})
    assert durations.count == 4
    assert sum(s.count for name, _, s in metrics.items() if name == "http.request.duration_ms") == total
