"""Documents over HTTP: uploads, jobs, texts, chunks, deletion."""

import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx2
import pytest

from tests.support.http.live_api import add_documents, finished_job, live_api, new_collection, settings_for
from vectorforge.api.native.document_uploads import source_of

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


async def test_uploaded_files_become_documents(client: httpx2.AsyncClient, collection_id: str) -> None:
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

    assert (await client.delete(f"/v1/documents/{document['id']}")).status_code == 200
    assert (await client.get(f"/v1/documents/{document['id']}")).status_code == 404
    (collection,) = (await get(client, "/v1/collections"))["collections"]
    assert (collection["name"], collection["document_count"]) == ("handbook", 1)


def part(name: str, text: str) -> str:
    head = f'Content-Disposition: form-data; name="files"; filename="{name}"'
    return f"--b\r\n{head}\r\n\r\n{text}\r\n"


@pytest.mark.parametrize(
    "end", [part("b.md", "Two.") + "--b", part("b.md", "Two."), part("b.md", "Two.")[:-2], part("b.md", "")]
)
async def test_truncated_multipart_body_is_rejected(
    client: httpx2.AsyncClient, collection_id: str, end: str
) -> None:  # the last one would be dropped silently
    path = f"/v1/collections/{collection_id}/documents"
    headers = {"Content-Type": "multipart/form-data; boundary=b"}
    whole = part("a.md", "One.") + part("b.md", "Two.") + "--b--\r\n"
    assert (await client.post(path, content=whole, headers=headers)).status_code == 202
    refused = await client.post(path, content=part("a.md", "One.") + end, headers=headers)
    assert (refused.status_code, refused.json()["detail"]) == (
        400,
        "The body ends before its last boundary.",
    )


async def test_repeated_source_is_unchanged_or_a_new_version(
    client: httpx2.AsyncClient, collection_id: str
) -> None:  # C19
    statuses = []
    for text in ("One.", "One.", "Two."):
        job = await add_documents(client, collection_id, page=text)
        statuses.append(job["documents"][0]["status"])
    assert statuses == ["succeeded", "unchanged", "succeeded"]
    (document,) = (await get(client, f"/v1/collections/{collection_id}/documents"))["documents"]
    assert document["version"] == 2


async def test_duplicate_sources_in_one_request_are_rejected(
    client: httpx2.AsyncClient, collection_id: str
) -> None:
    path = f"/v1/collections/{collection_id}/documents"
    files = [("files", (f"{folder}/a.txt", folder.encode(), "text/plain")) for folder in ("one", "two")]
    documents = [{"source": source, "text": source} for source in ("a.txt", "b.txt", " a.txt ")]
    for response, field in (
        (await client.post(path, files=files), "files"),
        (await client.post(path, json={"documents": documents}), "documents"),
    ):
        assert response.status_code == 422, response.text
        assert response.json()["errors"][0]["field"] == field
        assert "'a.txt'" in response.json()["detail"]
        assert "b.txt" not in response.json()["detail"]
    assert (await get(client, path))["total"] == 0


async def test_replaced_characters_are_reported_as_warning(
    client: httpx2.AsyncClient, collection_id: str
) -> None:
    response = await client.post(
        f"/v1/collections/{collection_id}/documents",
        files=[
            ("files", (name, text, "text/plain")) for name, text in (("a.txt", b"a\x00b"), ("b.txt", b"ab"))
        ],
    )
    first, second = (await finished_job(client, response.json()["id"]))["documents"]
    assert len(first["warnings"]) == 1
    assert "Replaced 1 character" in first["warnings"][0]
    assert second["warnings"] == []


async def test_job_documents_and_document_chunks_are_paginated(
    client: httpx2.AsyncClient, collection_id: str
) -> None:
    names = [f"d{number}" for number in range(5)]
    long = "\n\n".join(f"# Part {number}\n\n{'Some words. ' * 60}" for number in range(5))
    job = await add_documents(client, collection_id, **dict.fromkeys(names, long))
    assert len(job["documents"]) == 5
    page = await get(client, f"/v1/jobs/{job['id']}", documents_limit=2, documents_offset=3)
    assert page["documents"] == job["documents"][3:5]
    assert (page["documents_total"], page["documents_limit"], page["documents_offset"]) == (5, 2, 3)

    path = f"/v1/documents/{job['documents'][0]['document_id']}/chunks"
    whole = await get(client, path)
    assert whole["total"] == len(whole["chunks"]) >= 5
    page = await get(client, path, limit=2, offset=1)
    assert page == {"chunks": whole["chunks"][1:3], "total": whole["total"], "limit": 2, "offset": 1}
    for wrong in ({"limit": 0}, {"limit": 1001}, {"offset": -1}):
        assert (await client.get(path, params=wrong)).status_code == 422


async def test_chunk_reports_whether_it_is_retired(client: httpx2.AsyncClient, collection_id: str) -> None:
    job = await add_documents(client, collection_id, page="One.")
    path = f"/v1/documents/{job['documents'][0]['document_id']}/chunks"
    (old,) = (await get(client, path))["chunks"]
    found = await get(client, f"/v1/chunks/{old['id']}")
    assert (found["retired"], found["document_version"]) == (False, 1)
    await add_documents(client, collection_id, page="Two.")
    found = await get(client, f"/v1/chunks/{old['id']}")
    assert (found["retired"], found["document_version"], found["text"]) == (True, 1, "One.")
    (new,) = (await get(client, path))["chunks"]
    found = await get(client, f"/v1/chunks/{new['id']}")
    assert (found["retired"], found["document_version"]) == (False, 2)


@pytest.mark.parametrize("path", ["/", "/health", "/openapi.json"])
async def test_public_routes_support_head(client: httpx2.AsyncClient, path: str) -> None:
    whole, head = await client.get(path), await client.head(path)
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["content-type"] == whole.headers["content-type"]


async def test_collection_deletion_deletes_its_documents(
    client: httpx2.AsyncClient, collection_id: str
) -> None:
    job = await add_documents(client, collection_id, page="One.")
    assert (await client.delete(f"/v1/collections/{collection_id}")).status_code == 200
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
def test_file_name_is_reduced_to_a_displayable_source(file_name: str, source: str) -> None:
    assert source_of(file_name) == source


# C18 B-024 B-025: the filter language of queries, and its errors
class TestFilteredDocuments:
    @pytest.fixture
    async def path(self, client: httpx2.AsyncClient, collection_id: str) -> str:
        """Return the documents path of a collection with the kinds a, b and c."""
        texts = {"a": "A refund takes five days.", "b": "Parcels leave on Mondays.", "c": "Tea is free."}
        await add_documents(client, collection_id, **texts)
        return f"/v1/collections/{collection_id}/documents"

    async def listed(self, client: httpx2.AsyncClient, path: str, filters: Any) -> set[str]:
        page = await get(client, path, filters=json.dumps(filters))
        assert page["total"] == len(page["documents"])
        return {document["metadata"]["kind"] for document in page["documents"]}

    async def test_list_with_filter_returns_matching_documents(
        self, client: httpx2.AsyncClient, path: str
    ) -> None:
        assert await self.listed(client, path, {"kind": "a"}) == {"a"}
        assert await self.listed(client, path, {"kind": {"$in": ["a", "c", "z"]}}) == {"a", "c"}
        assert await self.listed(client, path, {"$not": {"kind": "a"}}) == {"b", "c"}
        assert await self.listed(client, path, {"kind": "z"}) == set()
        assert await self.listed(client, path, {}) == {"a", "b", "c"}
        page = await get(client, path, filters='{"kind": {"$gt": "a"}}', limit=1, offset=1)
        assert (page["total"], len(page["documents"])) == (2, 1)

    async def test_delete_with_filter_counts_and_deletes_matching_documents(
        self, client: httpx2.AsyncClient, path: str
    ) -> None:
        body = {"filters": {"kind": {"$gte": "b"}}}
        for dry_run, expected in (
            (True, {"matched": 2, "deleted": 0, "remaining": 2, "version": None}),
            (False, {"matched": 2, "deleted": 2, "remaining": 0, "version": 5}),
            (False, {"matched": 0, "deleted": 0, "remaining": 0, "version": 5}),
        ):
            response = await client.post(f"{path}/delete", json={**body, "dry_run": dry_run})
            assert (response.status_code, response.json()) == (200, expected)
        assert await self.listed(client, path, {}) == {"a"}
        (collection,) = (await get(client, "/v1/collections"))["collections"]
        assert (collection["document_count"], collection["chunk_count"]) == (1, 1)

    async def test_deleted_documents_are_absent_from_answers(
        self, client: httpx2.AsyncClient, path: str
    ) -> None:
        question = {"query": "When do parcels leave?", "collection": "handbook"}
        assert "Mondays" in (await client.post("/v1/rag/query", json=question)).text
        await client.post(f"{path}/delete", json={"filters": {"kind": "b"}})
        assert "Mondays" not in (await client.post("/v1/rag/query", json=question)).text

    async def test_invalid_filter_returns_422_naming_the_field(
        self, client: httpx2.AsyncClient, path: str
    ) -> None:
        for filters, names in (
            ({"kind": {"$near": 1}}, "filters.kind.$near"),
            ({"$or": [{}]}, "filters.$or[0]"),
            ({"kind": {}}, "filters.kind"),
            ([], "filters"),
            ("a", "filters"),
            ({"kind": "x" * 17_000}, "filters"),
        ):
            for response in (
                await client.get(path, params={"filters": json.dumps(filters)}),
                await client.post(f"{path}/delete", json={"filters": filters}),
            ):
                assert response.status_code == 422, (filters, response.text)
                assert response.json()["errors"][0]["field"] == names, filters
        for text in ("", "kind=a", "{", "[" * 5_000, '{"kind": NaN}'):
            response = await client.get(path, params={"filters": text})
            assert response.status_code == 422, text
            assert response.json()["errors"][0]["field"].startswith("filters")
        unusable: list[Any] = [{}, {"filters": {}}, {"filters": None}, {"filters": {"kind": "a"}, "limit": 1}]
        for body in unusable:
            assert (await client.post(f"{path}/delete", json=body)).status_code == 422
        assert await self.listed(client, path, {}) == {"a", "b", "c"}
