"""Traces of a server without a queue, from an HTTP request to an OpenTelemetry backend."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from tests.support.http.live_api import LiveApi, live_api, settings_for
from tests.support.http.otlp_receiver import OtlpReceiver
from tests.support.rag.ingested import ingest_bytes
from tests.support.vendors.scripted_llm import ScriptedLLM
from vectorforge.config import TracingSettings
from vectorforge.local.postgres import EmbeddedPostgres
from vectorforge.telemetry import SPAN_NAMES

TRACE_ID, PARENT_ID = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
QUESTION = "When does water boil?"


@pytest.fixture
def backend() -> Iterator[OtlpReceiver]:
    with OtlpReceiver() as receiver:
        yield receiver


@pytest.fixture(params=[False, True], ids=["no texts", "texts"])
def with_texts(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture
async def api(
    postgres_server: EmbeddedPostgres, tenant: str, backend: OtlpReceiver, with_texts: bool
) -> AsyncIterator[LiveApi]:
    tracing = TracingSettings(tracing="otel", otlp_endpoint=backend.url, otlp_texts=with_texts)
    settings = settings_for(postgres_server.app_url, [tenant], tracing=tracing)
    async with live_api(settings, ScriptedLLM(["At 100 degrees. [Source 1]"])) as api:
        services = api.application.for_tenant(tenant)
        collection = await services.create_collection("guides")
        text = b"Water boils at 100 degrees."
        await ingest_bytes(services.ingestion, collection, text, source="w.txt", media_type="text/plain")
        yield api


async def ask(api: LiveApi, tenant: str, **headers: str) -> dict[str, Any]:
    async with api.client(tenant) as client:
        response = await client.post(
            "/v1/rag/query", json={"query": QUESTION, "collection": "guides"}, headers=headers
        )
    assert response.status_code == 200, response.text
    answer: dict[str, Any] = response.json()
    return answer


async def wait_until(is_true: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not is_true():  # noqa: ASYNC110 - the backend is a thread without an event
            await asyncio.sleep(0.01)


async def test_query_joins_traceparent_and_has_every_span(
    api: LiveApi, tenant: str, backend: OtlpReceiver, with_texts: bool
) -> None:
    await ask(api, tenant, traceparent=f"00-{TRACE_ID}-{PARENT_ID}-01")
    await wait_until(lambda: bool(backend.spans))
    assert [span.name for span in backend.spans] == list(SPAN_NAMES)
    assert {span.proto.trace_id.hex() for span in backend.spans} == {TRACE_ID}
    assert backend.spans[0].proto.parent_span_id.hex() == PARENT_ID
    assert backend.spans[4].attributes["gen_ai.operation.name"] == "chat"
    assert any(QUESTION.encode() in body for _, _, body in backend.requests) is with_texts


async def test_silent_backend_delays_no_query(api: LiveApi, tenant: str, backend: OtlpReceiver) -> None:
    backend.is_released.clear()
    for _ in range(3):  # answered while the backend answers none of their traces
        await ask(api, tenant)
    await wait_until(lambda: bool(backend.requests))
    assert backend.spans == []
    backend.is_released.set()
    await wait_until(lambda: len(backend.spans) >= 3 * len(SPAN_NAMES))


async def test_last_trace_is_exported_when_the_server_ends(
    api: LiveApi, tenant: str, backend: OtlpReceiver
) -> None:
    await ask(api, tenant)
    await api.application.close()
    assert len(backend.spans) == len(SPAN_NAMES)
