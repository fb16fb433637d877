"""Files of each family of formats, uploaded over HTTP: found and cited with their places."""

import io
import zipfile
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx2
import pytest

from tests.support.formats import office, others, outlook, pdfs
from tests.support.formats.truth import Fact, Made
from tests.support.http.live_api import finished_job, live_api, new_collection, settings_for


@pytest.fixture
async def client(app_url: str, make_tenant: Callable[[], str]) -> AsyncIterator[httpx2.AsyncClient]:
    tenant = make_tenant()
    async with live_api(settings_for(app_url, [tenant])) as api, api.client(tenant) as opened:
        yield opened


async def upload(client: httpx2.AsyncClient, source: str, content: bytes) -> tuple[str, dict[str, Any]]:
    """Return the new collection and the finished job; the media type is left to the server."""
    collection_id = await new_collection(client, source)
    files = [("files", (source, content, "application/octet-stream"))]
    response = await client.post(f"/v1/collections/{collection_id}/documents", files=files)
    assert response.status_code == 202, response.text
    return collection_id, await finished_job(client, response.json()["id"])


async def search(client: httpx2.AsyncClient, collection_id: str, query: str) -> list[dict[str, Any]]:
    body = {"query": query, "collection": collection_id, "search_mode": "lexical"}
    response = await client.post("/v1/search", json=body)
    assert response.status_code == 200, response.text
    results: list[dict[str, Any]] = response.json()["results"]
    return results


@pytest.mark.parametrize(
    "made",
    [
        pdfs.long_table(6),
        office.slides(),
        office.workbook(),
        office.word(),
        office.odt(),
        others.book(),
        others.page(),
    ],
    ids=lambda made: made.source,
)
async def test_uploaded_file_is_found_with_its_places(client: httpx2.AsyncClient, made: Made) -> None:
    collection_id, job = await upload(client, made.source, made.content)
    assert (job["status"], job["documents"][0]["error"]) == ("succeeded", None)
    for fact in (made.facts[0], made.facts[-1]):
        [found, *_] = await search(client, collection_id, fact.question)
        assert fact.answer in found["text"]
        assert any(is_at(fact, location) for location in found["locations"])


def is_at(fact: Fact, location: dict[str, Any]) -> bool:
    return all(location.get(name) == value for name, value in fact.place.items())


async def test_mail_with_attachments_is_found(client: httpx2.AsyncClient) -> None:
    made = others.mail()
    collection_id, job = await upload(client, made.source, made.content)
    assert job["status"] == "succeeded"
    for fact in made.facts:
        assert fact.answer in (await search(client, collection_id, fact.question))[0]["text"]
    content = outlook.message("Key", "Ann", "The key lies under the flower pot.", {})
    collection_id, job = await upload(client, "key.msg", content)
    assert "flower pot" in (await search(client, collection_id, "key"))[0]["text"]


async def test_archive_becomes_a_document_per_file(client: httpx2.AsyncClient) -> None:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("guide/oil.md", "# Oil\n\nOil the chain every spring.")
        archive.writestr("prices.csv", "name,price\nApple,5\n")
        archive.writestr("broken.pdf", "%PDF-1.7 nonsense")
        archive.writestr("old.doc", "not read")
    collection_id, job = await upload(client, "all.zip", out.getvalue())
    assert {d["source"]: d["status"] for d in job["documents"]} == {
        "all.zip#guide/oil.md": "succeeded",
        "all.zip#prices.csv": "succeeded",
        "all.zip#broken.pdf": "failed",
    }
    warnings = [d["warnings"] for d in job["documents"]]
    assert warnings == [["Files of the archive are not read: old.doc."], [], []]
    [found] = await search(client, collection_id, "apple")
    assert (found["text"], found["locations"]) == ("name: Apple; price: 5", [{"range": "A2:B2"}])


async def test_answer_sources_have_pages_and_rectangles(client: httpx2.AsyncClient) -> None:
    made = pdfs.hyphenated(8)
    collection_id, _ = await upload(client, made.source, made.content)
    question = made.facts[0].question
    path = f"/v1/collections/{collection_id}/query"
    answer = (await client.post(path, json={"query": question})).json()
    [location] = answer["sources"][0]["locations"]
    assert location["page"] == 1
    assert all(0 <= share <= 1 for rect in location["rects"] for share in rect)
    body = {"query": question, "collection": collection_id}
    answer = (await client.post("/v1/rag/query", json=body)).json()
    assert answer["context"][0]["locations"] == [location]
