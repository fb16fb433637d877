"""Originals over HTTP, in the database: download, headers, versions, the setting of collections, deletion."""

import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from uuid import UUID

import httpx2
import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from starlette.responses import StreamingResponse

from tests.support.http.live_api import LiveApi, finished_job, live_api, new_collection, settings_for
from vectorforge.api.native.documents import show_text
from vectorforge.db.repositories.document_repo import Document, DocumentRepository

PAGE = b"<!doctype html><title>Refunds</title><script>alert(1)</script><p>A refund takes five days."


@dataclass(frozen=True)
class Setup:
    api: LiveApi
    client: httpx2.AsyncClient
    tenant: str
    database_url: str

    async def add(self, collection_id: str, name: str, content: bytes, media_type: str) -> str:
        """Ingest a file; return the id of its document."""
        response = await self.client.post(
            f"/v1/collections/{collection_id}/documents", files=[("files", (name, content, media_type))]
        )
        job = await finished_job(self.client, response.json()["id"])
        assert job["status"] == "succeeded", job
        document_id: str = job["documents"][0]["document_id"]
        return document_id

    def rows(self) -> int:
        """Return the tenant's originals in the database, as its superuser."""
        with psycopg.connect(make_conninfo(self.database_url, user="postgres")) as connection:
            query = "SELECT count(*) FROM vectorforge.originals WHERE tenant_id = %s"
            row = connection.execute(query, (self.tenant,)).fetchone()
        assert row is not None
        return int(row[0])


@pytest.fixture
async def setup(app_url: str, make_tenant: Callable[[], str]) -> AsyncIterator[Setup]:
    tenant = make_tenant()
    async with live_api(settings_for(app_url, [tenant])) as api, api.client(tenant) as client:
        yield Setup(api, client, tenant, app_url)


async def test_original_is_downloaded_as_an_attachment_that_cannot_run(setup: Setup) -> None:
    collection = await new_collection(setup.client, "handbook")
    document = await setup.add(collection, "Rück gabe;.html", PAGE, "text/html")
    response = await setup.client.get(f"/v1/documents/{document}/original")
    assert (response.status_code, response.content) == (200, PAGE)
    headers = response.headers
    assert headers["content-type"] == "text/html"
    names = """filename="R_ck gabe;.html"; filename*=UTF-8''R%C3%BCck%20gabe%3B.html"""
    assert headers["content-disposition"] == f"attachment; {names}"
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["content-security-policy"].startswith("default-src 'none'; sandbox;")
    assert headers["cache-control"] == "private, no-cache"
    again = await setup.client.get(
        f"/v1/documents/{document}/original", headers={"If-None-Match": headers["etag"]}
    )
    assert (again.status_code, again.content) == (304, b"")


async def test_replaced_version_leaves_its_original_behind_nowhere(setup: Setup) -> None:
    collection = await new_collection(setup.client, "handbook")
    document = await setup.add(collection, "a.txt", b"Parcels leave on Mondays.", "text/plain")
    assert await setup.add(collection, "a.txt", b"Parcels leave on Tuesdays.", "text/plain") == document
    response = await setup.client.get(f"/v1/documents/{document}/original")
    assert (response.content, setup.rows()) == (b"Parcels leave on Tuesdays.", 1)


async def test_same_text_in_another_file_replaces_the_original(setup: Setup) -> None:
    collection = await new_collection(setup.client, "handbook")
    document = await setup.add(collection, "a.html", b"<p>Parcels leave on Mondays.</p>", "text/html")
    await setup.add(collection, "a.html", b"<p class=x>Parcels leave on Mondays.</p>", "text/html")
    response = await setup.client.get(f"/v1/documents/{document}/original")
    assert (response.content, setup.rows()) == (b"<p class=x>Parcels leave on Mondays.</p>", 1)


async def test_collection_without_originals_answers_404_and_stores_none(setup: Setup) -> None:
    made = await setup.client.post("/v1/collections", json={"name": "brief", "keep_originals": False})
    assert made.json()["keep_originals"] is False
    document = await setup.add(made.json()["id"], "a.txt", b"Parcels leave on Mondays.", "text/plain")
    response = await setup.client.get(f"/v1/documents/{document}/original")
    assert (response.status_code, response.json()["code"]) == (404, "original_not_kept")
    assert setup.rows() == 0


async def test_turning_originals_off_deletes_those_that_are_kept(setup: Setup) -> None:
    collection = await new_collection(setup.client, "handbook")
    for number in range(3):
        await setup.add(collection, f"{number}.txt", b"Parcels leave on Mondays.", "text/plain")
    assert setup.rows() == 3
    changed = await setup.client.patch(f"/v1/collections/{collection}", json={"keep_originals": False})
    assert (changed.json()["keep_originals"], setup.rows()) == (False, 0)
    kept = await setup.client.patch(f"/v1/collections/{collection}", json={"keep_originals": True})
    assert kept.json()["keep_originals"] is True
    document = await setup.add(collection, "0.txt", b"Parcels leave on Mondays.", "text/plain")  # unchanged
    assert (await setup.client.get(f"/v1/documents/{document}/original")).status_code == 200


@pytest.mark.parametrize("route", ["/v1/documents/{}/original", "/v1/files/{}/content"])
async def test_download_is_read_from_the_database_while_it_is_sent(setup: Setup, route: str) -> None:
    page = b"<!-- " + b"x" * 20_000_000 + b" --><p>A refund takes five days."
    document = await setup.add(await new_collection(setup.client, "handbook"), "a.html", page, "text/html")
    path = route.format(document)
    assert (await setup.client.get(path)).content == page
    async with setup.client.stream("GET", path) as response:
        pieces = response.aiter_raw()
        assert page.startswith(await anext(pieces))
        deleted = await setup.client.delete(f"/v1/documents/{document}")
        assert deleted.status_code == 200
        with pytest.raises(httpx2.RemoteProtocolError):  # the rest is not in the server's memory
            async for _ in pieces:
                pass


async def test_text_is_read_from_the_database_while_it_is_sent(setup: Setup) -> None:
    collection = await new_collection(setup.client, "handbook")
    document = await setup.add(collection, "Über.txt", b"Parcels leave on Mondays.", "text/plain")
    text = '5 € "\\\n\u2028\x01\U0001f600' * 900_000  # of a file, it would be embedded for minutes
    with psycopg.connect(make_conninfo(setup.database_url, user="postgres")) as connection:
        statement = "UPDATE vectorforge.documents SET text = %s, size_chars = %s WHERE id = %s"
        connection.execute(statement, (text, len(text), document))
    path = f"/v1/documents/{document}/text"
    whole = await setup.client.get(path)
    expected = {"id": document, "source": "Über.txt", "title": None, "media_type": "text/plain"}
    assert (whole.headers["content-type"], whole.json()) == ("application/json", {**expected, "text": text})
    async with setup.client.stream("GET", path) as response:
        pieces = response.aiter_raw()
        assert whole.content.startswith(await anext(pieces))
        await setup.add(collection, "Über.txt", b"Parcels leave on Tuesdays.", "text/plain")
        with pytest.raises(httpx2.RemoteProtocolError):  # a text of two versions would be worse
            async for _ in pieces:
                pass
    assert (await setup.client.get(path)).json()["text"] == "Parcels leave on Tuesdays."


async def test_text_of_a_vector_store_file_is_read_from_the_database_while_it_is_sent(setup: Setup) -> None:
    collection = await new_collection(setup.client, "handbook")
    document = await setup.add(collection, "a.txt", b"Parcels leave on Mondays.", "text/plain")
    text = '€€€€€€€€€"' * 900_000  # 26 MB: more than the buffers of a connection
    with psycopg.connect(make_conninfo(setup.database_url, user="postgres")) as connection:
        statement = "UPDATE vectorforge.documents SET text = %s, size_chars = %s WHERE id = %s"
        connection.execute(statement, (text, len(text), document))
    path = f"/v1/vector_stores/{collection}/files/{document}/content"
    expected = {"object": "vector_store.file_content.page", "has_more": False, "next_page": None}
    assert (await setup.client.get(path)).json() == {**expected, "data": [{"type": "text", "text": text}]}
    async with setup.client.stream("GET", path) as response:
        pieces = response.aiter_raw()
        await anext(pieces)
        await setup.add(collection, "a.txt", b"Parcels leave on Tuesdays.", "text/plain")
        with pytest.raises(httpx2.RemoteProtocolError):  # the rest is not in the server's memory
            async for _ in pieces:
                pass


async def test_text_of_a_document_replaced_after_the_lookup_is_the_new_one(setup: Setup) -> None:
    collection = await new_collection(setup.client, "handbook")
    document = await setup.add(collection, "a.txt", b"Parcels leave on Mondays.", "text/plain")

    class ReplacedAfterLookup(DocumentRepository):
        lookups = 0

        async def find_by_id(self, document_id: UUID) -> Document | None:
            found = await super().find_by_id(document_id)
            self.lookups += 1
            if self.lookups == 1:
                await setup.add(collection, "a.txt", b"Parcels leave on Tuesdays.", "text/plain")
            return found

    tenant = setup.api.application.for_tenant(setup.tenant)
    tenant.documents = documents = ReplacedAfterLookup(
        setup.api.application.shared.database.for_tenant(setup.tenant)
    )
    response = await show_text(UUID(document), tenant)
    assert isinstance(response, StreamingResponse)
    body = "".join([str(part) async for part in response.body_iterator])
    assert (json.loads(body)["text"], documents.lookups) == ("Parcels leave on Tuesdays.", 2)


@pytest.mark.parametrize("what", ["document", "filter", "collection", "tenant"])
async def test_deletion_leaves_no_original_behind(setup: Setup, what: str) -> None:
    collection = await new_collection(setup.client, "handbook")
    document = await setup.add(collection, "a.txt", b"Parcels leave on Mondays.", "text/plain")
    assert setup.rows() == 1
    client = setup.client
    if what == "filter":
        path = f"/v1/collections/{collection}/documents/delete"
        filters = {"filters": {"$not": {"none": {"$exists": True}}}}
        assert (await client.post(path, json=filters)).json()["deleted"] == 1
    else:
        path = {
            "document": f"/v1/documents/{document}",
            "collection": f"/v1/collections/{collection}",
            "tenant": f"/v1/tenant?confirm={setup.tenant}",
        }[what]
        erased = (await client.delete(path)).json()
        assert erased["certificate"]["erased"]["originals"] == 1
    assert setup.rows() == 0
    assert (await client.get(f"/v1/documents/{document}/original")).json()["code"] == "not_found"


async def test_lines_of_jsonl_have_no_original(setup: Setup) -> None:
    collection = await new_collection(setup.client, "handbook")
    lines = b'{"id": "1", "text": "Parcels leave on Mondays."}\n'
    document = await setup.add(collection, "a.jsonl", lines, "application/jsonl")
    response = await setup.client.get(f"/v1/documents/{document}/original")
    assert response.json()["code"] == "original_not_kept"
    assert await setup.api.application.for_tenant(setup.tenant).originals.find(UUID(document)) is None


@pytest.mark.parametrize(
    ("requested", "expected"),
    [
        ("bytes=0-4", slice(0, 5)),
        ("bytes=5-", slice(5, None)),
        ("Bytes=-7", slice(-7, None)),
        ("bytes=3-99999999999", slice(3, None)),
        ("bytes=-99999999999", slice(0, None)),
    ],
)
async def test_range_of_the_original_is_served(setup: Setup, requested: str, expected: slice) -> None:
    document = await setup.add(await new_collection(setup.client, "handbook"), "a.html", PAGE, "text/html")
    path = f"/v1/documents/{document}/original"
    response = await setup.client.get(path, headers={"Range": requested})
    assert (response.status_code, response.content) == (206, PAGE[expected])
    start, stop, _ = expected.indices(len(PAGE))
    assert response.headers["content-range"] == f"bytes {start}-{stop - 1}/{len(PAGE)}"
    assert response.headers["content-length"] == str(stop - start)
    assert response.headers["content-disposition"].startswith("attachment;")
    assert response.headers["content-security-policy"].startswith("default-src 'none'; sandbox;")


@pytest.mark.parametrize("requested", ["bytes=0-1,3-4", "bytes=4-1", "bytes=-", "lines=1-2", "bytes=a-b"])
async def test_unusable_range_is_ignored(setup: Setup, requested: str) -> None:
    document = await setup.add(await new_collection(setup.client, "handbook"), "a.html", PAGE, "text/html")
    response = await setup.client.get(f"/v1/documents/{document}/original", headers={"Range": requested})
    assert (response.status_code, response.content) == (200, PAGE)
    assert (response.headers["accept-ranges"], "content-range" in response.headers) == ("bytes", False)


@pytest.mark.parametrize("requested", [f"bytes={len(PAGE)}-", "bytes=-0"])
async def test_range_beyond_the_original_is_rejected(setup: Setup, requested: str) -> None:
    document = await setup.add(await new_collection(setup.client, "handbook"), "a.html", PAGE, "text/html")
    response = await setup.client.get(f"/v1/documents/{document}/original", headers={"Range": requested})
    assert (response.status_code, response.json()["code"]) == (416, "range_not_satisfiable")
    assert response.headers["content-range"] == f"bytes */{len(PAGE)}"
    assert f"{len(PAGE)} bytes" in response.json()["detail"]


async def test_range_of_another_version_gets_the_whole_file(setup: Setup) -> None:
    document = await setup.add(await new_collection(setup.client, "handbook"), "a.html", PAGE, "text/html")
    path = f"/v1/documents/{document}/original"
    etag = (await setup.client.get(path)).headers["etag"]
    for condition, status in ((etag, 206), (f"W/{etag}", 200), ('"other"', 200), ("yesterday", 200)):
        response = await setup.client.get(path, headers={"Range": "bytes=0-4", "If-Range": condition})
        assert response.status_code == status
    cached = await setup.client.get(path, headers={"Range": "bytes=0-4", "If-None-Match": etag})
    assert cached.status_code == 304
