"""Actions shared by the tests of the page."""

from playwright.async_api import FilePayload, Page, expect


def file(name: str, text: str = "some text") -> FilePayload:
    return {"name": name, "mimeType": "text/markdown", "buffer": text.encode()}


async def ask(page: Page, question: str = "A question?") -> None:
    """Type a question and send it."""
    await page.get_by_label("Your question").fill(question)
    await page.keyboard.press("Enter")


async def ended(page: Page, phase: str = "answered", turn: int = 0) -> None:
    """Wait until an answer has ended: answered, stopped or failed."""
    await expect(page.locator(".turn").nth(turn)).to_have_attribute("data-phase", phase)
