"""Pages, slides and cells of cited sentences on every API surface, with real files uploaded over HTTP."""

import json
import uuid
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest
import pytest_asyncio

from tests.support.formats.located import Located, price_list, three_slides, two_pages
from tests.support.http.event_stream import read_events
from tests.support.http.live_api import LiveApi, finished_job, live_api, new_collection, settings_for
from tests.support.http.mcp_client import mcp_client
from tests.support.rag.ingested import ingest_bytes
from vectorforge.local.postgres import EmbeddedPostgres

pytestmark = pytest.mark.asyncio(loop_scope="module")

FILES = [two_pages(), three_slides(), price_list()]
each_file = pytest.mark.parametrize("file", FILES, ids=lambda file: file.made.source)


TENANTS = {file.made.source: f"tenant-{uuid.uuid4().hex[:12]}" for file in FILES}
"""The tenant of each file."""
WITHOUT_FILE = f"tenant-{uuid.uuid4().hex[:12]}"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(postgres_server: EmbeddedPostgres) -> AsyncIterator[tuple[LiveApi, dict[str, str]]]:
    """Start a server with the files; yields the collection of each as well."""
    tenants = [*TENANTS.values(), WITHOUT_FILE]
    async with live_api(settings_for(postgres_server.app_url, tenants)) as api:
        collections = {}
        for file in FILES:
            async with api.client(TENANTS[file.made.source]) as client:
                collections[file.made.source] = await upload(client, file)
        yield api, collections


@pytest.fixture
def api(server: tuple[LiveApi, dict[str, str]]) -> LiveApi:
    return server[0]


@pytest.fixture
def tenant(file: Located) -> str:
    return TENANTS[file.made.source]


@pytest.fixture
def collection_id(server: tuple[LiveApi, dict[str, str]], file: Located) -> str:
    return server[1][file.made.source]


@pytest_asyncio.fixture(loop_scope="module")
async def client(api: LiveApi, tenant: str) -> AsyncIterator[httpx2.AsyncClient]:
    await api.outdate_answers(tenant)
    async with api.client(tenant) as opened:
        yield opened


async def upload(client: httpx2.AsyncClient, file: Located) -> str:
    collection_id = await new_collection(client)
    files = [("files", (file.made.source, file.made.content, "application/octet-stream"))]
    response = await client.post(f"/v1/collections/{collection_id}/documents", files=files)
    job = await finished_job(client, response.json()["id"])
    assert (job["status"], job["documents"][0]["error"]) == ("succeeded", None)
    return collection_id


async def post(client: httpx2.AsyncClient, path: str, **body: Any) -> Any:
    response = await client.post(path, json=body)
    assert response.status_code == 200, response.text
    return response.json()


async def events(client: httpx2.AsyncClient, path: str, **body: Any) -> list[tuple[str, Any]]:
    lines = (await client.post(path, json=body)).text.replace("data: [DONE]\n", "").splitlines()

    async def stream() -> AsyncIterator[str]:
        for line in [*lines, ""]:
            yield line

    return [(event.name, event.data) async for event in read_events(stream())]


def of_sentence(file: Located, citations: list[dict[str, Any]], text: str) -> dict[str, Any]:
    """Return the citation of the file's sentence, found by the offsets of the cited text."""
    cited = {text[citation["start_offset"] : citation["end_offset"]]: citation for citation in citations}
    return cited[file.sentence]


@each_file
async def test_native_citation_names_the_place_of_its_sentence(
    client: httpx2.AsyncClient, collection_id: str, file: Located
) -> None:
    path = f"/v1/collections/{collection_id}/query"
    answer = await post(client, path, query=file.question)
    [source] = answer["sources"]
    text = (await client.get(f"/v1/documents/{source['document_id']}/text")).json()["text"]
    citation = of_sentence(file, answer["citations"], text)
    assert (citation["location_text"], source["location_text"]) == (file.text, file.chunk_text)
    assert len(citation["locations"]) == 1
    assert "offsets" not in citation["locations"][0]
    assert len(citation["locations"][0].get("rects", [0])) == 1
    for other in ("/v1/rag/query", "/v1/docrag/query"):
        cited = (await post(client, other, query=file.question))["citations"]
        assert file.text in [citation["location_text"] for citation in cited]
    streamed = await events(client, path, query=file.question, stream=True)
    assert [data for name, data in streamed if name == "citation"] == answer["citations"]
    assert next(data for name, data in streamed if name == "sources")["sources"] == answer["sources"]


@each_file
async def test_openai_citations_have_the_place_in_title_and_address(
    client: httpx2.AsyncClient, file: Located
) -> None:
    message = {"role": "user", "content": file.question}
    chat = await post(
        client, "/v1/chat/completions", model="vectorforge", messages=[message], append_sources=True
    )
    content = chat["choices"][0]["message"]
    cited, *_ = [  # the next sentence of the paragraph may be quoted, too
        annotation["url_citation"]
        for annotation in content["annotations"]
        if annotation["url_citation"]["title"].endswith(f", {file.text}")
    ]
    assert cited["url"].endswith(f"/source?chunk={cited['chunk_id']}")
    assert len(cited["locations"]) == 1
    assert file.text in content["content"].split("**Sources**")[1]
    response = await post(
        client,
        "/v1/responses",
        model="vectorforge",
        input=file.question,
        include=["file_search_call.results"],
    )
    search, written = response["output"]
    annotations = written["content"][0]["annotations"]
    assert file.text in {annotation["location_text"] for annotation in annotations}
    assert cited["locations"] in [annotation["locations"] for annotation in annotations]
    assert search["results"][0]["locations"][0].keys() >= {"offsets"}
    streamed = await events(client, "/v1/responses", model="vectorforge", input=file.question, stream=True)
    added = [data["annotation"] for name, data in streamed if name == "response.output_text.annotation.added"]
    assert added == annotations


@each_file
async def test_ui_message_stream_has_the_place_in_titles_and_metadata(
    client: httpx2.AsyncClient, file: Located
) -> None:
    messages = [{"role": "user", "parts": [{"type": "text", "text": file.question}]}]
    parts = [data for _, data in await events(client, "/api/chat", messages=messages)]
    [source] = [part for part in parts if part["type"] == "source-document"]
    assert source["title"].endswith(f", {file.chunk_text}")
    assert source["providerMetadata"]["vectorforge"]["locations"]
    ended = next(part for part in parts if part["type"] == "text-end")
    cited = {citation["source"]["title"]: citation["source"] for citation in ended["citations"]}
    [found] = [source for title, source in cited.items() if title.endswith(f", {file.text}")]
    ours = found["providerMetadata"]["vectorforge"]
    assert (ours["locationText"], len(ours["locations"])) == (file.text, 1)
    judged = [part["data"] for part in parts if part["type"] == "data-citation"]
    assert file.text in [data["locationText"] for data in judged]


@each_file
async def test_mcp_tools_return_places_and_write_them_in_their_texts(
    api: LiveApi, client: httpx2.AsyncClient, tenant: str, file: Located
) -> None:
    async with mcp_client(api.url, tenant) as mcp:
        found = await mcp.call_tool("semantic_search", {"query": file.question})
        asked = await mcp.call_tool("ask", {"query": file.question})
        context = await mcp.call_tool("semantic_search_with_context", {"query": file.question})
    passage = json.loads(json.dumps(found.structured_content))["passages"][0]
    assert passage["location_text"] == file.chunk_text
    assert passage["locations"][0].keys() >= {"offsets"}
    for result in (found, context):
        assert f", {file.chunk_text}" in str(result.content)
    citations = asked.structured_content["citations"]
    assert file.text in [citation["location_text"] for citation in citations]
    places = {citation["location_text"] for citation in citations}
    assert len(places) > 1 or f", {file.text}" in str(asked.content)


@pytest.mark.parametrize("tenant", [WITHOUT_FILE], ids=["tenant"])
async def test_web_addresses_of_cited_pdfs_open_their_page(
    api: LiveApi, client: httpx2.AsyncClient, tenant: str
) -> None:
    file = two_pages("https://docs.example/pump.pdf")
    services = api.application.for_tenant(tenant)
    collection = await services.find_collection(await new_collection(client))
    await ingest_bytes(services.ingestion, collection, file.made.content, file.made.source, "application/pdf")
    message = {"role": "user", "content": file.question}
    chat = await post(client, "/v1/chat/completions", model="vectorforge", messages=[message])
    cited = [annotation["url_citation"] for annotation in chat["choices"][0]["message"]["annotations"]]
    assert "https://docs.example/pump.pdf#page=2" in {citation["url"] for citation in cited}
    messages = [{"role": "user", "parts": [{"type": "text", "text": file.question}]}]
    parts = [data for _, data in await events(client, "/api/chat", messages=messages)]
    [source] = [part for part in parts if part["type"] == "source-url"]
    assert source["url"] == "https://docs.example/pump.pdf#page=1"
    async with mcp_client(api.url, tenant) as mcp:
        found = await mcp.call_tool("semantic_search", {"query": file.question})
    assert found.structured_content["passages"][0]["url"] == "https://docs.example/pump.pdf#page=1"
