"""Documents over HTTP: uploads, jobs, texts, passages, deletion."""

from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx2
import pytest

from vectorforge.api.uploads import source_of
from vectorforge.testing.live_api import add_documents, finished_job, live_api, new_collection, settings_for

MARKDOWN = "# Refunds\n\nA refund takes five days.\n\n# Shipping\n\nParcels leave on Mondays.\n"


@pytest.fixture
async def client(app_url: str, make_tenant: Callable[[], str]) -> AsyncIterator[httpx2.AsyncClient]:
    tenant = make_tenant()
    async with live_api(settings_for(app_url, [tenant])) as api, api.client(tenant) as opened:
        yield opened


@pytest.fixture
async def collection_id(client: httpx2.AsyncClient) -> str:
    return await new_collection(client, "handbook")


async def get(client: httpx2.AsyncClient, path: str, **params: Any) -> Any:
    response = await client.get(path, params=params)
    assert response.status_code == 200, response.text
    return response.json()


async def test_files_become_documents(client: httpx2.AsyncClient, collection_id: str) -> None:
    response = await client.post(
        f"/v1/collections/{collection_id}/documents",
        files=[
            ("files", ("refunds.md", MARKDOWN.encode(), "text/markdown")),
            ("files", ("C:\\docs\\note.txt", b"The office is closed on Fridays.", "text/plain")),
            ("files", ("broken.pdf", b"%PDF-1.7 nonsense", "application/pdf")),
        ],
        data={"metadata": '{"year": "2024"}'},
    )
    assert response.status_code == 202, response.text
    accepted = response.json()
    assert response.headers["location"] == f"/v1/jobs/{accepted['id']}"
    assert (accepted["collection_id"], accepted["documents_total"]) == (collection_id, 3)

    job = await finished_job(client, accepted["id"])
    assert (job["status"], job["documents_done"], job["documents_failed"]) == ("partial", 2, 1)
    assert [d["source"] for d in job["documents"]] == ["refunds.md", "note.txt", "broken.pdf"]
    assert [d["status"] for d in job["documents"]] == ["succeeded", "succeeded", "failed"]
    assert job["documents"][2]["error"]["code"] == "document_unreadable"
    assert (await get(client, "/v1/jobs", collection_id=collection_id))["jobs"][0]["id"] == job["id"]

    page = await get(client, f"/v1/collections/{collection_id}/documents", limit=1, offset=1)
    assert (page["total"], page["limit"], page["offset"], len(page["documents"])) == (2, 1, 1, 1)
    document = await get(client, f"/v1/documents/{job['documents'][0]['document_id']}")
    assert (document["source"], document["version"]) == ("refunds.md", 1)
    assert document["metadata"]["year"] == "2024"

    text = (await get(client, f"/v1/documents/{document['id']}/text"))["text"]
    assert text == MARKDOWN
    chunks = (await get(client, f"/v1/documents/{document['id']}/chunks"))["chunks"]
    assert document["chunk_count"] == len(chunks)
    for index, chunk in enumerate(chunks):
        assert chunk["index"] == index
        assert text[chunk["start_offset"] : chunk["end_offset"]] == chunk["text"]
    chunk = await get(client, f"/v1/chunks/{chunks[0]['id']}")
    assert chunk["document"] == {"id": document["id"], "source": "refunds.md", "title": document["title"]}

    assert (await client.delete(f"/v1/documents/{document['id']}")).status_code == 204
    assert (await client.get(f"/v1/documents/{document['id']}")).status_code == 404
    (collection,) = (await get(client, "/v1/collections"))["collections"]
    assert (collection["name"], collection["document_count"]) == ("handbook", 1)


async def test_the_same_source_again_is_unchanged_or_a_new_version(
    client: httpx2.AsyncClient, collection_id: str
) -> None:  # C19
    statuses = []
    for text in ("One.", "One.", "Two."):
        job = await add_documents(client, collection_id, page=text)
        statuses.append(job["documents"][0]["status"])
    assert statuses == ["succeeded", "unchanged", "succeeded"]
    (document,) = (await get(client, f"/v1/collections/{collection_id}/documents"))["documents"]
    assert document["version"] == 2


async def test_a_collection_goes_with_its_documents(client: httpx2.AsyncClient, collection_id: str) -> None:
    job = await add_documents(client, collection_id, page="One.")
    assert (await client.delete(f"/v1/collections/{collection_id}")).status_code == 204
    assert (await client.delete(f"/v1/collections/{collection_id}")).status_code == 404
    document_id = job["documents"][0]["document_id"]
    assert (await client.get(f"/v1/documents/{document_id}")).status_code == 404


@pytest.mark.parametrize(
    ("file_name", "source"),
    [
        ("a.md", "a.md"),
        ("../../etc/passwd", "passwd"),
        ("C:\\Users\\me\\b.pdf", "b.pdf"),
        ("dir/", ""),
        ("..", ""),
        (" \t\r\n", ""),
        ("a\x00b\x1b[31m\u202ec.txt", "a\ufffdb[31mc.txt"),
        ("x" * 3000, "x" * 2000),
        ("Übersicht 2024.md", "Übersicht 2024.md"),
    ],
)
def test_a_file_name_is_cut_to_what_can_be_shown(file_name: str, source: str) -> None:
    assert source_of(file_name) == source
