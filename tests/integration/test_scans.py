"""Scans over HTTP: the collection's setting, locations that the page image marks, and images."""

from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx2
import pytest

from tests.support.formats.scans import Sheet, file_of, pdf_of, prose
from tests.support.http.live_api import finished_job, live_api, settings_for

FACT = "The mooring fee at the northern quay is 48 crowns a night."
SHEET = Sheet(prose([FACT]))


@pytest.fixture
async def client(app_url: str, make_tenant: Callable[[], str]) -> AsyncIterator[httpx2.AsyncClient]:
    tenant = make_tenant()
    async with live_api(settings_for(app_url, [tenant])) as api, api.client(tenant) as opened:
        yield opened


async def ingested(client: httpx2.AsyncClient, collection: str, name: str, content: bytes) -> dict[str, Any]:
    """Return the document of the finished job."""
    files = [("files", (name, content, "application/octet-stream"))]
    response = await client.post(f"/v1/collections/{collection}/documents", files=files)
    job = await finished_job(client, response.json()["id"])
    document: dict[str, Any] = job["documents"][0]
    return document


async def test_collection_with_ocr_reads_scan_and_cites_its_lines(client: httpx2.AsyncClient) -> None:
    made = (await client.post("/v1/collections", json={"name": "archive"})).json()
    assert made["ocr"] is False
    scan = pdf_of([SHEET])
    refused = await ingested(client, made["id"], "scan.pdf", scan)
    assert refused["error"]["code"] == "document_empty"
    assert "`ocr` of the collection" in refused["error"]["message"]

    changed = await client.patch(f"/v1/collections/{made['id']}", json={"ocr": True})
    assert (changed.json()["ocr"], changed.json()["keep_originals"]) == (True, True)
    document = await ingested(client, made["id"], "scan.pdf", scan)
    assert document["error"] is None
    query = {"query": "mooring fee", "collection": made["id"], "search_mode": "lexical"}
    [hit] = (await client.post("/v1/search", json=query)).json()["results"]
    assert hit["text"] == FACT
    [location] = hit["locations"]
    [rect] = location["rects"]
    x, y = SHEET.lines[0].middle()
    assert location["page"] == 1
    assert rect[0] < x < rect[2]
    assert rect[1] < y < rect[3]
    path = f"/v1/documents/{document['document_id']}/pages/1.png"
    plain = await client.get(path, params={"width": 300})
    marked = await client.get(path, params={"width": 300, "chunk_id": hit["chunk_id"]})
    assert (plain.status_code, marked.status_code) == (200, 200)
    assert plain.content != marked.content


async def test_image_is_read_and_shown_as_a_page(client: httpx2.AsyncClient) -> None:
    made = (await client.post("/v1/collections", json={"name": "photos", "ocr": True})).json()
    assert made["ocr"] is True
    document = await ingested(client, made["id"], "page.jpg", file_of(SHEET, "JPEG"))
    assert document["error"] is None
    query = {"query": "mooring fee", "collection": made["id"], "search_mode": "lexical"}
    [hit] = (await client.post("/v1/search", json=query)).json()["results"]
    assert (hit["text"], hit["locations"][0]["page"]) == (FACT, 1)
    image = await client.get(f"/v1/documents/{document['document_id']}/pages/1.png")
    assert (image.status_code, image.content[:4]) == (200, b"\x89PNG")
