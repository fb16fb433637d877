"""Images of PDF pages over HTTP: marks, limits, and files that have none."""

import io
import zlib
from collections.abc import AsyncIterator, Callable

import httpx2
import pytest
from reportlab.lib.pagesizes import A4
from reportlab.pdfgen.canvas import Canvas

from tests.support.http.live_api import finished_job, live_api, new_collection, settings_for

SENTENCES = {
    1: "The warranty covers frames for five years.",
    2: "A refund is paid within fourteen days of the return.",
}
WIDTH = 300


def pdf(sentences: dict[int, str]) -> bytes:
    """Return a PDF with a sentence on each page, near its top."""
    output = io.BytesIO()
    canvas = Canvas(output, pagesize=A4)
    for sentence in sentences.values():
        canvas.drawString(72, 740, sentence)
        canvas.showPage()
    canvas.save()
    return output.getvalue()


def pixels(png: bytes) -> tuple[int, int, set[tuple[int, int, int]]]:
    """Return width, height and the colors of a PNG of our own, whose rows are not filtered."""
    assert png.startswith(b"\x89PNG\r\n\x1a\n")
    width, height = int.from_bytes(png[16:20]), int.from_bytes(png[20:24])
    start = png.index(b"IDAT")
    rows = zlib.decompress(png[start + 4 : start + 4 + int.from_bytes(png[start - 4 : start])])
    assert len(rows) == height * (3 * width + 1)
    colors = {
        (rows[at], rows[at + 1], rows[at + 2])
        for row in range(height)
        for at in range(row * (3 * width + 1) + 1, (row + 1) * (3 * width + 1), 3)
    }
    return width, height, colors


PALE, STRONG = (255, 255, 200), (255, 255, 70)
"""White where a chunk is marked, and where a sentence in it is marked as well: 200 · 90 / 255."""


@pytest.fixture
async def client(app_url: str, make_tenant: Callable[[], str]) -> AsyncIterator[httpx2.AsyncClient]:
    tenant = make_tenant()
    async with live_api(settings_for(app_url, [tenant])) as api, api.client(tenant) as opened:
        yield opened


async def add(client: httpx2.AsyncClient, name: str, content: bytes) -> str:
    collection = await new_collection(client, "handbook")
    files = [("files", (name, content, "application/octet-stream"))]
    response = await client.post(f"/v1/collections/{collection}/documents", files=files)
    job = await finished_job(client, response.json()["id"])
    assert job["status"] == "succeeded", job
    document_id: str = job["documents"][0]["document_id"]
    return document_id


async def test_page_image_marks_lines_of_the_chunk_and_the_sentence(client: httpx2.AsyncClient) -> None:
    document = await add(client, "terms.pdf", pdf(SENTENCES))
    path = f"/v1/documents/{document}/pages"
    plain = await client.get(f"{path}/1.png", params={"width": WIDTH})
    assert (plain.status_code, plain.headers["content-type"]) == (200, "image/png")
    assert plain.headers["cache-control"] == "private, no-cache"
    width, height, colors = pixels(plain.content)
    assert (width, height) == (WIDTH, 425)
    assert not {PALE, STRONG} & colors

    chunks = (await client.get(f"/v1/documents/{document}/chunks")).json()["chunks"]
    chunk = next(c for c in chunks if any(place["page"] == 2 for place in c["locations"]))
    params = {"width": WIDTH, "chunk_id": chunk["id"]}
    marked = await client.get(f"{path}/2.png", params=params)
    _, _, colors = pixels(marked.content)
    assert PALE in colors
    assert STRONG not in colors
    quoted = await client.get(f"{path}/2.png", params={**params, "quote": "paid within FOURTEEN days"})
    assert {PALE, STRONG} <= pixels(quoted.content)[2]
    headers = {"If-None-Match": quoted.headers["etag"]}
    again = await client.get(
        f"{path}/2.png", params={**params, "quote": "paid within FOURTEEN days"}, headers=headers
    )
    assert (again.status_code, again.content) == (304, b"")
    assert quoted.headers["etag"] != marked.headers["etag"]


@pytest.mark.parametrize(
    ("page", "params", "status", "code"),
    [
        ("3", {}, 404, "not_found"),
        ("0", {}, 422, "invalid_input"),
        ("1", {"width": "2001"}, 422, "invalid_input"),
        ("1", {"quote": "x" * 1_001}, 422, "invalid_input"),
        ("1", {"chunk_id": "01a219ed-9f96-746b-8003-a7f7edd86929"}, 404, "not_found"),
    ],
)
async def test_page_image_out_of_bounds_is_a_problem(
    client: httpx2.AsyncClient, page: str, params: dict[str, str], status: int, code: str
) -> None:
    document = await add(client, "terms.pdf", pdf(SENTENCES))
    response = await client.get(f"/v1/documents/{document}/pages/{page}.png", params=params)
    assert (response.status_code, response.json()["code"]) == (status, code), response.text
    assert response.headers["content-type"] == "application/problem+json"


async def test_text_file_has_no_page_images(client: httpx2.AsyncClient) -> None:
    document = await add(client, "terms.txt", b"A refund is paid within fourteen days.")
    response = await client.get(f"/v1/documents/{document}/pages/1.png")
    assert (response.status_code, response.json()["code"]) == (404, "not_found")
    assert "PDF" in response.json()["detail"]


async def test_huge_page_is_rendered_within_the_pixel_limit(client: httpx2.AsyncClient) -> None:
    output = io.BytesIO()
    canvas = Canvas(output, pagesize=(20, 14_000))
    canvas.drawString(1, 13_900, "A refund is paid.")
    canvas.save()
    document = await add(client, "strip.pdf", output.getvalue())
    response = await client.get(f"/v1/documents/{document}/pages/1.png", params={"width": 2_000})
    assert response.status_code == 200
    png = response.content
    assert int.from_bytes(png[16:20]) * int.from_bytes(png[20:24]) <= 8_300_000
