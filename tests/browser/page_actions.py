"""Actions shared by the tests of the page."""

import httpx2
from playwright.async_api import FilePayload, Page, expect

from tests.support.http.live_api import key_of


def file(name: str, text: str = "some text") -> FilePayload:
    return {"name": name, "mimeType": "text/markdown", "buffer": text.encode()}


async def ask(page: Page, question: str = "A question?") -> None:
    """Type a question and send it."""
    await page.locator("#question").fill(question)
    await page.keyboard.press("Enter")


async def ended(page: Page, phase: str = "answered", turn: int = 0) -> None:
    """Wait until an answer has ended: answered, stopped or failed."""
    await expect(page.locator(".turn").nth(turn)).to_have_attribute("data-phase", phase)


async def chunks_of(client: httpx2.AsyncClient, document_id: str) -> list[str]:
    """Return the ids of a document's chunks."""
    chunks = (await client.get(f"/v1/documents/{document_id}/chunks")).json()["chunks"]
    return [chunk["id"] for chunk in chunks]


async def sign_in(page: Page, tenant: str) -> None:
    """Enter the tenant's key in the dialog."""
    await page.fill("#key", key_of(tenant))
    await page.get_by_role("button", name="Continue").click()
