"""A server with low limits, and the check of a problem document."""

from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest

from tests.support.http.live_api import (
    LiveApi,
    live_api,
    settings_for,
)
from vectorforge.config import IngestionSettings, QuerySettings
from vectorforge.local.postgres import EmbeddedPostgres

RAG = "/v1/rag/query"


@pytest.fixture
async def api(postgres_server: EmbeddedPostgres, tenant: str) -> AsyncIterator[LiveApi]:
    config = settings_for(
        postgres_server.app_url,
        [tenant],
        server={"max_body_bytes": 200_000},
        ingestion=IngestionSettings(max_document_bytes=1000, max_documents_per_request=3),
        query=QuerySettings(max_top_k=30, max_answer_tokens=4000),
    )
    async with live_api(config) as running:
        yield running


@pytest.fixture
async def client(api: LiveApi, tenant: str) -> AsyncIterator[httpx2.AsyncClient]:
    async with api.client(tenant) as opened:
        yield opened


def check_problem(response: httpx2.Response, status: int, code: str) -> dict[str, Any]:
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    problem: dict[str, Any] = response.json()
    assert {"type", "title", "status", "detail", "code", "request_id"} <= set(problem)
    assert (problem["status"], problem["code"]) == (status, code)
    assert problem["type"] == f"urn:vectorforge:problem:{code}"
    assert problem["request_id"] == response.headers["x-request-id"]
    return problem
