"""The web pages by axe-core's rules for WCAG 2.2 and best practices, in each state, color and size."""

from collections.abc import Sequence
from typing import Any

import pytest
from playwright.async_api import Page, expect

from tests.browser.answer_script import Refuse, answer, citation, source
from tests.browser.conftest import Visit
from tests.browser.page_actions import ask, ended
from tests.browser.stub_api import StubApi
from tests.browser.stub_conversations import exchange
from tests.browser.test_statistics_page import statistics
from tests.clients.npm import installed_modules

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]
PHONE: dict[str, Any] = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}
DESKTOP: dict[str, Any] = {"viewport": {"width": 1280, "height": 800}}
ZOOMED: dict[str, Any] = {"viewport": {"width": 640, "height": 400}, "device_scale_factor": 2}
SCREENS = [
    pytest.param(DESKTOP, id="desktop"),
    pytest.param(DESKTOP | {"color_scheme": "dark"}, id="dark", marks=pytest.mark.slow),
    pytest.param(PHONE, id="phone", marks=pytest.mark.slow),
    pytest.param(PHONE | {"color_scheme": "dark"}, id="phone-dark"),
    pytest.param(ZOOMED, id="zoomed", marks=pytest.mark.slow),
    pytest.param(DESKTOP | {"locale": "de-DE"}, id="german", marks=pytest.mark.slow),
]
TEXT = (
    "# Limits\n\nMeals are **48 €** [1], hotels 160 € [2].\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n"
    "```\ncode\n```\n\n> quoted\n\n1. one\n2. two\n"
)


@pytest.fixture(scope="session")
def axe() -> str:
    """Return the script of axe-core."""
    return (installed_modules() / "axe-core" / "axe.min.js").read_text(encoding="utf-8")


async def violations(page: Page, axe: str) -> Sequence[str]:
    """Return the violated rules, each with its elements."""
    await page.evaluate("document.getAnimations().forEach((animation) => animation.finish())")
    if not await page.evaluate("'axe' in window"):
        await page.evaluate(axe)
    found: Sequence[str] = await page.evaluate(
        "async () => (await axe.run(document, { resultTypes: ['violations'] })).violations"
        ".map((rule) => `${rule.id}: ${rule.nodes.map((node) => node.html.slice(0, 200)).join(' | ')}`)"
    )
    return found


@pytest.mark.parametrize("screen", SCREENS)
async def test_page_has_no_violations_in_any_state(
    stub: StubApi, visit: Visit, axe: str, screen: dict[str, Any]
) -> None:
    page = await visit(stub.url, failed_requests=True, **screen)
    await expect(page.get_by_role("heading", level=1)).to_be_visible()
    assert await violations(page, axe) == [], "empty"

    document = stub.add_document("Meals: 48 €. Hotels.", file="a.md", title="Travel", headings=("Meals",))
    stub.conversations.add("Earlier one", exchange("Before?", "Yes.", []))
    await page.reload()
    await expect(page.locator(".try li")).to_have_count(2)
    assert await violations(page, axe) == [], "suggestions"

    cited = [source(n, document, 0, 12, relevance=0.5) for n in (1, 2, 3)]
    verdicts = [citation(TEXT, "[1]", 1, "supported"), citation(TEXT, "[2]", 2, "unsupported")]
    stub.scripts = [answer(TEXT, *verdicts, sources=cited), [Refuse(503, "The database cannot be reached.")]]
    await ask(page)
    await ended(page)
    await page.locator(".evidence summary").click()
    await page.locator('.thumb[data-rating="down"]').click()
    await expect(page.locator(".feedback form")).to_be_visible()
    assert await violations(page, axe) == [], "answer with its evidence"
    await page.locator(".cite").first.click()
    await expect(page.locator("#passage")).to_be_visible()
    assert await violations(page, axe) == [], "source"
    await page.keyboard.press("Escape")

    await ask(page, "Fails?")
    await ended(page, "failed", turn=1)
    assert await violations(page, axe) == [], "error"
    for name, row in (("conversations", "#conversations-list li"), ("documents", "#documents-list li")):
        await page.locator(f"#toggle-{name}").click()
        await expect(page.locator(row).first).to_be_visible()
        assert await violations(page, axe) == [], name
        await page.locator("#panel .rows .icon").last.click()
        await expect(page.locator("#confirm-dialog")).to_be_visible()
        assert await violations(page, axe) == [], f"{name}: dialog"
        await page.keyboard.press("Escape")
        await page.keyboard.press("Escape")


@pytest.mark.parametrize("screen", SCREENS)
@pytest.mark.parametrize("path", ["statistics", "source?chunk=00000000-0000-4000-8000-000000000000"])
async def test_other_pages_have_no_violations(
    stub: StubApi, visit: Visit, axe: str, screen: dict[str, Any], path: str
) -> None:
    stub.statistics = statistics([100, 200, 0, 400, 100, 100, 100])
    stub.add_document("# Terms\n\nA refund is paid within fourteen days.\n", file="a.md", title="Terms")
    page = await visit(f"{stub.url}/{path}", failed_requests=True, **screen)
    await expect(page.get_by_role("heading", level=1)).to_be_visible()
    await page.wait_for_load_state("networkidle")
    assert await violations(page, axe) == []
