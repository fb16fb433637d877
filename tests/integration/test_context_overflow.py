"""Queries whose prompt is too long for the model, over HTTP: shortened once, else 422."""

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

import boto3
import httpx2
import pytest
from pydantic import SecretStr

from tests.support.http.live_api import add_documents, ask_streaming, live_api, new_collection, settings_for
from tests.support.vendors.fake_anthropic import FakeAnthropic
from tests.support.vendors.fake_bedrock import MODEL, FakeBedrock
from tests.support.vendors.fake_openai import FakeOpenAI
from tests.support.vendors.fake_vendor import FakeVendor, Reply
from tests.support.vendors.vendor_behaviour import SmallContext
from vectorforge.llm.base import BaseLLMProvider
from vectorforge.llm.providers.anthropic import AnthropicProvider
from vectorforge.llm.providers.bedrock import BedrockProvider
from vectorforge.llm.providers.openai import OpenAIProvider
from vectorforge.local.postgres import EmbeddedPostgres

RAG = "/v1/rag/query"
NAMES = ("bread", "rye", "oat", "corn", "rice", "malt")
QUESTION: dict[str, Any] = {"query": "How long must the dough rise?", "k": len(NAMES), "max_tokens": 100}
CITES_ALL = Reply(texts=tuple(f"Two hours [Context {n}]. " for n in range(1, len(NAMES) + 1)))
FITS_HALF = SmallContext(900, CITES_ALL)
FITS_NOTHING = SmallContext(150, CITES_ALL)


def guide(name: str) -> str:
    return f"Dough of {name}. " + f"The dough of {name} must rise for two hours before it is baked. " * 7


def openai(vendor: FakeVendor) -> BaseLLMProvider:
    return OpenAIProvider(SecretStr(vendor.api_key), base_url=vendor.base_url)


def anthropic(vendor: FakeVendor) -> BaseLLMProvider:
    return AnthropicProvider(SecretStr(vendor.api_key), base_url=vendor.base_url, default_model="claude")


def bedrock(vendor: FakeVendor) -> BaseLLMProvider:
    session = boto3.session.Session("AKIATEST", vendor.api_key, region_name="eu-central-1")
    return BedrockProvider(default_model=MODEL, base_url=vendor.base_url, session=session)


VENDORS: dict[str, tuple[type[FakeVendor], Callable[[FakeVendor], BaseLLMProvider]]] = {
    "openai": (FakeOpenAI, openai),
    "anthropic": (FakeAnthropic, anthropic),
    "bedrock": (FakeBedrock, bedrock),
}


@dataclass
class Here:
    """A server with six chunks, and its vendor."""

    vendor: FakeVendor
    client: httpx2.AsyncClient

    def sent(self, number: int) -> int:
        """Return the chunks in a request to the vendor, by its number."""
        return str(self.vendor.bodies[number]).count("must rise for two hours before it is baked. The") // 6

    async def row(self) -> dict[str, Any]:
        """Return the log row of the last query."""
        found = (await self.client.get("/v1/queries")).json()["queries"][0]["id"]
        row: dict[str, Any] = (await self.client.get(f"/v1/queries/{found}")).json()
        return row


Start = Callable[[str], Any]


@pytest.fixture
async def start(postgres_server: EmbeddedPostgres, make_tenant: Callable[[], str]) -> AsyncIterator[Start]:
    async with AsyncExitStack() as stack:

        async def make(name: str) -> Here:
            fake, provider = VENDORS[name]
            vendor = await stack.enter_async_context(fake())
            tenant = make_tenant()
            config = settings_for(postgres_server.app_url, [tenant])
            api = await stack.enter_async_context(live_api(config, provider(vendor)))
            client = await stack.enter_async_context(api.client(tenant))
            await add_documents(client, await new_collection(client), **{n: guide(n) for n in NAMES})
            return Here(vendor, client)

        yield make


@pytest.mark.parametrize("name", VENDORS)
async def test_context_overflow_retries_with_fewer_chunks(start: Start, name: str) -> None:
    here = await start(name)
    here.vendor.unscripted = FITS_HALF
    response = await here.client.post(RAG, json=QUESTION)
    assert response.status_code == 200, response.text
    answer = response.json()
    first, second = here.sent(0), here.sent(1)
    assert len(here.vendor.requests) == 2
    assert 0 < second < first == len(NAMES)
    assert sum(entry["label"] is not None for entry in answer["context"]) == second
    assert {one["source_number"] for one in answer["citations"]} == set(range(1, second + 1))
    funnel = answer["funnel"]
    assert (funnel["candidates"], funnel["used"], funnel["dropped_by_budget"]) == (
        len(NAMES),
        second,
        len(NAMES) - second,
    )
    assert (answer["degraded"], answer["usage"]["prompt_tokens"]) == ([], 11)
    row = await here.row()
    assert (row["outcome"], row["prompt_tokens"], row["completion_tokens"]) == ("answered", 11, 7)
    assert len(row["used_chunk_ids"]) == second
    again = (await here.client.post(RAG, json=QUESTION)).json()
    assert again["cached"] is False  # its chunks would result in another prompt


@pytest.mark.parametrize("name", VENDORS)
async def test_context_overflow_in_stream_retains_announced_sources(start: Start, name: str) -> None:
    here = await start(name)
    here.vendor.unscripted = FITS_HALF
    events = await ask_streaming(here.client, RAG, QUESTION)
    assert events[1].name == "sources"
    assert len(events[1].data["sources"]) == len(NAMES)  # the intended request
    done = events[-1].data
    assert (events[-1].name, done["funnel"]["used"]) == ("done", here.sent(1))
    cited = [event.data for event in events if event.name == "citation"]
    named = events[1].data["sources"][: here.sent(1)]
    assert [one["chunk_id"] for one in cited] == [one["chunk_id"] for one in named]
    assert done["invalid_citations"] == len(NAMES) - here.sent(1)


@pytest.mark.parametrize("name", VENDORS)
async def test_context_overflow_without_chunks_to_drop_returns_422(start: Start, name: str) -> None:
    here = await start(name)
    here.vendor.unscripted = FITS_NOTHING
    response = await here.client.post(RAG, json=QUESTION)
    problem = response.json()
    assert (response.status_code, problem["code"]) == (422, "context_length_exceeded")
    [field] = problem["errors"]
    assert field["field"] == "messages"
    assert field.get("limit") == (None if name == "bedrock" else 150)
    assert "max_tokens" in problem["detail"]
    assert len(here.vendor.requests) <= 2
    events = await ask_streaming(here.client, RAG, QUESTION)
    assert [event.name for event in events] == ["meta", "sources", "error"]
    assert (events[-1].data["status"], events[-1].data["code"]) == (422, "context_length_exceeded")
    row = await here.row()
    assert (row["outcome"], row["error_code"], row["degraded"]) == ("error", "context_length_exceeded", [])


async def test_context_overflow_on_openai_surface_returns_openai_error(start: Start) -> None:
    here = await start("openai")
    here.vendor.unscripted = FITS_NOTHING
    body = {
        "model": "vectorforge/default",
        "messages": [{"role": "user", "content": QUESTION["query"]}],
        "max_tokens": 100,
    }
    response = await here.client.post("/v1/chat/completions", json=body)
    error = response.json()["error"]
    assert (response.status_code, error["code"], error["param"]) == (
        400,
        "context_length_exceeded",
        "messages",
    )


async def test_context_overflow_drops_old_turns_before_chunks(start: Start) -> None:
    here = await start("openai")
    here.vendor.unscripted = SmallContext(1900, CITES_ALL)
    errors = [
        {"role": role, "content": f"{role} number {number} " + "says a lot " * 40}
        for number in range(6)
        for role in ("user", "assistant")
    ]
    response = await here.client.post(RAG, json={**QUESTION, "messages": errors})
    assert response.status_code == 200, response.text
    first, second = (str(body) for body in here.vendor.bodies)
    assert "user number 0" in first
    assert "user number 0" not in second
    assert "user number 5" in second
    assert here.sent(1) == len(NAMES)
