"""The source page with a real server: a PDF and a text, opened from citations, on a desk and on a phone."""

import io
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

import pytest
import pytest_asyncio
from playwright.async_api import expect
from reportlab.lib.pagesizes import A4
from reportlab.pdfgen.canvas import Canvas

from tests.browser.conftest import Visit
from tests.browser.page_actions import ask, chunks_of, ended, sign_in
from tests.support.http.live_api import finished_job, live_api, new_collection, settings_for
from vectorforge.local.postgres import EmbeddedPostgres

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

REFUND = "A refund is paid within fourteen days of the return."
PHONE = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}
RENDERING_MS = 40_000
"""Wait for the child processes of two pages on a busy machine."""
YELLOW = """(image) => {
  const size = { width: image.naturalWidth, height: image.naturalHeight };
  const canvas = Object.assign(document.createElement("canvas"), size);
  const context = canvas.getContext("2d");
  context.drawImage(image, 0, 0);
  const { data } = context.getImageData(0, 0, canvas.width, canvas.height);
  let found = 0;
  for (let at = 0; at < data.length; at += 4) if (data[at] === 255 && data[at + 2] === 70) found += 1;
  return found;
}"""
"""Pixels of the color of a cited sentence."""


def pdf() -> bytes:
    """Return a PDF whose second page has the sentence on refunds."""
    output = io.BytesIO()
    canvas = Canvas(output, pagesize=A4)
    canvas.setTitle("Terms of sale")
    for sentence in ("The warranty covers frames for five years.", REFUND):
        canvas.drawString(72, 740, sentence)
        canvas.showPage()
    canvas.save()
    return output.getvalue()


@dataclass(frozen=True)
class Shop:
    url: str
    tenant: str
    chunks: list[str]
    """Chunks of the PDF's second page and of the text."""


@pytest_asyncio.fixture(loop_scope="session")
async def shop(postgres_server: EmbeddedPostgres, make_tenant: Callable[[], str]) -> AsyncIterator[Shop]:
    tenant = make_tenant()
    async with live_api(settings_for(postgres_server.app_url, [tenant])) as api, api.client(tenant) as client:
        collection = await new_collection(client)
        files = [
            ("files", ("terms.pdf", pdf(), "application/pdf")),
            ("files", ("care.md", b"# Care\n\nOil the chain every month.\n", "text/markdown")),
        ]
        response = await client.post(f"/v1/collections/{collection}/documents", files=files)
        job = await finished_job(client, response.json()["id"])
        chunks = [(await chunks_of(client, entry["document_id"]))[-1] for entry in job["documents"]]
        yield Shop(api.url, tenant, chunks)


async def test_citation_opens_the_page_with_its_sentence_marked(shop: Shop, visit: Visit) -> None:
    page = await visit(shop.url, failed_requests=True)  # 401, before the key
    await sign_in(page, shop.tenant)
    await ask(page, "When is a refund paid after the return?")
    await ended(page)
    await page.locator(".cite").first.click()
    async with page.expect_popup() as opened:
        await page.get_by_role("link", name="Open page").click()
    reader = await opened.value
    await expect(reader.get_by_role("heading", level=1)).to_have_text("Terms of sale")
    await expect(reader.locator("#key-dialog")).not_to_be_visible()  # signed in as the page that opened it
    await expect(reader.locator("#meta")).to_contain_text("p. 2")
    image = reader.locator("figure img").last
    await expect(image).to_be_visible(timeout=RENDERING_MS)
    assert REFUND in (await image.get_attribute("alt") or "")
    assert await image.evaluate(YELLOW) > 1_000


async def test_previous_and_next_step_through_the_citations_on_a_phone(shop: Shop, visit: Visit) -> None:
    cited = "&".join(f"chunk={chunk}" for chunk in shop.chunks)
    page = await visit(
        f"{shop.url}/source?{cited}#at=2&quote=&quote=Oil+the+chain", failed_requests=True, **PHONE
    )
    await sign_in(page, shop.tenant)
    await expect(page.get_by_role("heading", level=1)).to_have_text("Care")
    await expect(page.locator("#body .quote")).to_have_text("Oil the chain")
    await expect(page.locator("#position")).to_have_text("2 of 2")
    await expect(page.get_by_role("button", name="Next citation")).to_be_disabled()
    await page.get_by_role("button", name="Previous citation").click()
    await expect(page.get_by_role("heading", level=1)).to_have_text("Terms of sale")
    image = page.locator("figure img")
    await expect(image.first).to_be_visible(timeout=RENDERING_MS)
    assert await page.evaluate("document.documentElement.scrollWidth") == 390
    await page.keyboard.press("ArrowRight")
    await expect(page.locator("#body .quote")).to_have_text("Oil the chain")


async def test_deleted_document_and_empty_link_say_so(shop: Shop, visit: Visit) -> None:
    page = await visit(f"{shop.url}/source?chunk=01a219ed-9f96-746b-8003-a7f7edd86929", failed_requests=True)
    await sign_in(page, shop.tenant)
    await expect(page.locator("#note")).to_have_text("This document has been deleted since.")
    await page.goto(f"{shop.url}/source?chunk=nonsense")
    await expect(page.locator("#note")).to_have_text("This link names no passage.")


async def test_original_is_downloaded_from_the_source_page(shop: Shop, visit: Visit) -> None:
    page = await visit(f"{shop.url}/source?chunk={shop.chunks[1]}", failed_requests=True)
    await sign_in(page, shop.tenant)
    async with page.expect_download() as started:
        await page.get_by_role("button", name="Download the original").click()
    download = await started.value
    assert download.suggested_filename == "care.md"
