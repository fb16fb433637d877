"""The web page on every screen: colors, phone layout, keyboard and reduced motion."""

import re
from typing import Any

import pytest
from playwright.async_api import Page, expect

from tests.browser.answer_script import answer, source
from tests.browser.conftest import Visit
from tests.browser.page_actions import ask, ended, file
from tests.browser.stub_api import StubApi

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]
PHONE: dict[str, Any] = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}


async def overflow(page: Page) -> int:
    """Return the pixels by which the page is wider than the screen."""
    return int(await page.evaluate("document.documentElement.scrollWidth - innerWidth"))


async def test_long_answer_scrolls_in_its_own_area_only(stub: StubApi, visit: Visit) -> None:
    """The window of the page has no scroll bar: what moved it, such as find in page, could not be undone."""
    document = stub.add_document("A passage.", file="a.md")
    sources = [source(number, document, 0, 10) for number in range(1, 10)]
    stub.scripts = [answer("\n\n".join(["Text [1] [5] [9]."] * 40), sources=sources)]
    page = await visit(stub.url)
    await ask(page, "q")
    await ended(page)
    assert await page.evaluate("document.scrollingElement.scrollHeight - innerHeight") == 0


async def test_arabic_is_written_from_the_right(stub: StubApi, visit: Visit) -> None:
    text = "# دليل\n\nالمدة 21 يومًا.\n"
    document = stub.add_document(text, file="دليل.md")
    written = "المدة 21 يومًا [1].\n\n1. افتح `VPN 2`.\n\n```\nmake run\n```"
    stub.scripts = [answer(written, sources=[source(1, document, 8, len(text))])]
    page = await visit(stub.url)
    await ask(page, "كم المدة؟")
    await ended(page)
    await page.locator(".cite").first.click()
    await expect(page.locator(".page mark").first).to_be_visible()
    for selector in (".turn h2", ".answer > p", ".answer li", "#panel-title", ".page .answer p"):
        await expect(page.locator(selector).first).to_have_css("direction", "rtl")
    for selector in (".answer li code", ".answer pre", ".sources h3"):
        await expect(page.locator(selector).first).to_have_css("direction", "ltr")


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_colors_follow_system_scheme_and_stay_readable(
    stub: StubApi, visit: Visit, scheme: str
) -> None:
    document = stub.add_document("A passage.", file="a.md")
    stub.scripts = [answer("Text [1].", sources=[source(1, document, 0, 10)])]
    page = await visit(stub.url, color_scheme=scheme)
    await ask(page, "q")
    await expect(page.locator(".foot")).to_contain_text("answered in")
    ground = await luminance(page, "body", "backgroundColor")
    assert (ground > 0.5) is (scheme == "light")
    for selector in (".answer", ".foot", ".source em", ".hint", ".sources h3"):
        assert contrast(await luminance(page, selector, "color"), ground) >= 4.5, selector
    chip = [await luminance(page, ".cite", name) for name in ("color", "backgroundColor")]
    assert contrast(*chip) >= 4.5


async def luminance(page: Page, selector: str, name: str) -> float:
    """Return the relative luminance of a computed color, 0 to 1 (WCAG 2.2)."""
    colour = await page.locator(selector).first.evaluate("(node, name) => getComputedStyle(node)[name]", name)
    parts = [int(part) / 255 for part in re.findall(r"\d+", colour)[:3]]
    red, green, blue = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: float, other: float) -> float:
    """Return the contrast ratio, 1 to 21 (WCAG 2.2)."""
    return (max(one, other) + 0.05) / (min(one, other) + 0.05)


async def test_phone_layout_never_scrolls_sideways_and_opens_source_sheet(
    stub: StubApi, visit: Visit
) -> None:
    document = stub.add_document("word " * 400 + "W" * 300, file="x" * 180 + ".md", title="T" * 180)
    cited = source(1, document, 0, 50, heading="H" * 200)
    text = (
        "U" * 300 + "\n\n```\n" + "c" * 300 + "\n```\n\n| a | b |\n|---|---|\n| " + "z" * 200 + " | 2 [1] |"
    )
    stub.scripts = [answer(text, sources=[cited])]
    page = await visit(stub.url, **PHONE)
    assert await overflow(page) <= 0
    await ask(page, "Q" * 300)
    await expect(page.locator(".foot")).to_contain_text("answered in")
    assert await overflow(page) <= 0
    await page.locator(".source").tap()
    sheet = page.get_by_role("dialog")
    await expect(sheet.locator("#passage")).to_be_in_viewport()
    assert await overflow(page) <= 0
    assert await page.evaluate("document.getElementById('talk').inert")
    await page.touchscreen.tap(195, 40)  # the scrim above the sheet
    await expect(sheet).to_be_hidden()
    await expect(page.locator(".source")).to_be_focused()
    assert not await page.evaluate("document.getElementById('talk').inert")


@pytest.mark.parametrize("width", [820, pytest.param(1024, marks=pytest.mark.slow)])
async def test_bar_of_tablet_fits_the_screen(stub: StubApi, visit: Visit, width: int) -> None:
    stub.add_document("A passage.", file="a.md")
    page = await visit(stub.url, locale="de-DE", viewport={"width": width, "height": 900})
    await ask(page, "q")
    await ended(page)
    last, picker = page.locator("#toggle-documents"), page.get_by_label("Sammlung", exact=True)
    assert await last.evaluate("(node) => node.getBoundingClientRect().right") <= width
    assert await picker.evaluate("(node) => node.scrollWidth - node.clientWidth") == 0


async def test_page_is_fully_usable_with_the_keyboard(stub: StubApi, visit: Visit) -> None:
    document = stub.add_document("The limit is 48.", file="a.md", title="Policy")
    stub.scripts = [answer("It is 48 [Context 1].", sources=[source(1, document, 0, 16)])]
    page = await visit(stub.url)
    await page.keyboard.press("Tab")
    await page.locator("#collection").focus()
    await page.keyboard.press("Escape")
    await page.locator("#new-collection").focus()
    await page.keyboard.press("/")
    await page.keyboard.type("first line")
    await page.keyboard.press("Shift+Enter")
    await page.keyboard.type("second line")
    assert stub.queries == []
    await page.keyboard.press("Enter")
    await expect(page.locator(".foot")).to_contain_text("answered in")
    assert stub.queries[0]["query"] == "first line\nsecond line"
    for _ in range(20):
        await page.keyboard.press("Shift+Tab")
        if await page.evaluate("document.activeElement.classList.contains('cite')"):
            break
    await page.keyboard.press("Enter")
    await expect(page.locator("#panel-title")).to_be_focused()
    shown = page.get_by_role("complementary", name="Policy").locator("#document-text")
    await expect(shown).to_have_text("The limit is 48.")
    await page.keyboard.press("Escape")
    await expect(page.locator("#panel")).to_be_hidden()
    await expect(page.locator(".cite")).to_be_focused()


async def test_reduced_motion_disables_animation(stub: StubApi, visit: Visit) -> None:
    stub.ingestion_gate.clear()
    page = await visit(stub.url, reduced_motion="reduce")
    await page.set_input_files("#files", [file("a.md")])
    await expect(page.locator("#uploads progress")).to_have_css("animation-name", "none")
    stub.ingestion_gate.set()


@pytest.mark.parametrize(
    "screen", [pytest.param({}, id="desktop", marks=pytest.mark.slow), pytest.param(PHONE, id="phone")]
)
async def test_wide_table_is_aligned_and_scrolls_instead_of_breaking_words_apart(
    stub: StubApi, visit: Visit, screen: dict[str, Any]
) -> None:
    table = (
        "| Where | Cost | Kind | Remarks |\n|---|---:|:-:|:--|\n"
        "| `shared/vectorforge/db/tenant_database.py` | 0.1 ms | a | no call takes a tenant from a request |"
    )
    stub.scripts = [answer(table)]
    page = await visit(stub.url, **screen)
    await ask(page, "q")
    await ended(page)
    for cell in ("th", "td"):
        sides = await page.locator(f".answer {cell}").evaluate_all(
            "cells => cells.map((cell) => getComputedStyle(cell).textAlign)"
        )
        assert sides == ["start", "right", "center", "start"]
    assert await page.locator(".answer tr").last.evaluate("row => row.offsetHeight") < 90  # three lines
    assert await overflow(page) == 0
