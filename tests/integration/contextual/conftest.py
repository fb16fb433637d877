"""A server whose model writes contexts, over Anthropic's protocol, and a contextual collection."""

import json
import re
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import httpx2
import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from pydantic import SecretStr

from tests.support.http.live_api import LiveApi, finished_job, live_api, settings_for
from tests.support.vendors.fake_anthropic import FakeAnthropic
from tests.support.vendors.vendor_behaviour import Reply
from vectorforge.config import IngestionSettings, LLMSettings, ModelPrice
from vectorforge.limits.settings import TenantLimits
from vectorforge.llm.providers.anthropic import AnthropicProvider

CHUNKS = IngestionSettings(chunk_size_chars=100, chunk_overlap_chars=0)
PRICES = LLMSettings(model_prices={"claude-haiku-5-5": ModelPrice(input=1.0, output=5.0)})


def paragraph(number: int, word: str = "old") -> str:
    return f"Paragraph {number:03} says {word} things, and says them in so many words that they fill a chunk."


def text_of(count: int, word: str = "old") -> str:
    return "\n\n".join(paragraph(number, word) for number in range(1, count + 1))


def asked_for(body: Mapping[str, Any]) -> list[int]:
    """Return the numbers of the chunks in a request for contexts; empty for other requests."""
    content = body["messages"][-1]["content"]
    if not (isinstance(content, str) and content.startswith("Passages: ")):
        return []
    return [int(number) for number in re.findall(r"\d+", content)]


def contexts(body: Mapping[str, Any]) -> Reply:
    """Answer as a model does: a context with the word zanzibar and the number in words, or a text."""
    if not (numbers := asked_for(body)):
        return Reply(("It says things [Source 1].",))
    entries = [{"passage": n, "context": f"Zanzibar chronicle, item{n:03}."} for n in numbers]
    return Reply((json.dumps({"contexts": entries}),), usage=(1000, 500))


@dataclass(frozen=True)
class Setup:
    """A tenant's contextual collection, and the model."""

    api: LiveApi
    client: httpx2.AsyncClient
    tenant: str
    vendor: FakeAnthropic
    database_url: str
    collection: str

    async def ingest(self, text: str, source: str = "a.txt", **fields: Any) -> dict[str, Any]:
        """Ingest one document; return its result."""
        return (await self.ingest_all({source: text}, **fields))[source]

    async def ingest_all(self, texts: Mapping[str, str], **fields: Any) -> dict[str, dict[str, Any]]:
        """Ingest documents; return their results by source."""
        documents = [
            {"source": source, "text": text, "media_type": "text/plain", **fields}
            for source, text in texts.items()
        ]
        path = f"/v1/collections/{self.collection}/documents"
        response = await self.client.post(path, json={"documents": documents})
        job = await finished_job(self.client, response.json()["id"])
        return {document["source"]: document for document in job["documents"]}

    async def switch(self, *, contextual: bool) -> None:
        path = f"/v1/collections/{self.collection}"
        changed = await self.client.patch(path, json={"contextual": contextual})
        assert changed.json()["contextual"] is contextual

    async def search(self, text: str, mode: str) -> list[dict[str, Any]]:
        body = {"query": text, "collection": self.collection, "search_mode": mode, "top_k": 5}
        response = await self.client.post("/v1/search", json=body)
        response.raise_for_status()
        results: list[dict[str, Any]] = response.json()["results"]
        return results

    def rows(self, columns: str = "ordinal, text, index_context, id") -> Sequence[Sequence[Any]]:
        """Return the current chunks in their order, as the superuser."""
        with psycopg.connect(make_conninfo(self.database_url, user="postgres")) as connection:
            return connection.execute(
                f"SELECT {columns} FROM vectorforge.chunks WHERE tenant_id = %s AND to_version IS NULL "
                "ORDER BY document_id, ordinal",
                (self.tenant,),
            ).fetchall()

    @property
    def asked(self) -> list[list[int]]:
        """Numbers of the chunks in each request for contexts."""
        return [numbers for body in self.vendor.bodies if (numbers := asked_for(body))]


@pytest.fixture
async def vendor() -> AsyncIterator[FakeAnthropic]:
    async with FakeAnthropic() as server:
        server.unscripted = contexts
        yield server


@pytest.fixture
async def setup(
    request: pytest.FixtureRequest, app_url: str, make_tenant: Callable[[], str], vendor: FakeAnthropic
) -> AsyncIterator[Setup]:
    """Set up a tenant, with the limits of an indirect parameter."""
    tenant = make_tenant()
    model = AnthropicProvider(
        SecretStr(vendor.api_key), base_url=vendor.base_url, default_model="claude-haiku-5-5", retries=0
    )
    settings = settings_for(app_url, [tenant], ingestion=CHUNKS, llm=PRICES)
    async with live_api(settings, model) as api, api.client(tenant) as client:
        if (limits := getattr(request, "param", None)) is not None:
            await TenantLimits(api.application.database.for_tenant(tenant)).change(limits)
        made = await client.post("/v1/collections", json={"name": "chronicle", "contextual": True})
        assert made.json()["contextual"] is True
        yield Setup(api, client, tenant, vendor, app_url, made.json()["id"])
