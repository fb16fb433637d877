"""Take the README's picture of the page: ``python -m tests.browser.screenshot http://localhost:8000``.

The server is a new ``vectorforge up`` with its sample.
"""

import io
import sys
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright

from tests.browser.conftest import ARGUMENTS, CHROMIUM

PICTURE = Path(__file__).parents[2] / "docs" / "images" / "page.png"
QUESTION = "How does a new version of a document replace the old one?"
COLORS = 128

if __name__ == "__main__":
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        page = browser.new_page(viewport={"width": 1360, "height": 1100}, locale="en-US")
        page.goto(sys.argv[1])
        page.fill("#question", QUESTION)
        page.keyboard.press("Enter")
        page.click(".evidence summary", timeout=120_000)
        page.click(".cite")
        page.locator("#passage").wait_for()
        page.mouse.move(0, 0)
        page.wait_for_timeout(1_000)  # transitions
        with Image.open(io.BytesIO(page.screenshot())) as picture:
            picture.convert("RGB").quantize(COLORS).save(PICTURE, optimize=True)
        browser.close()
