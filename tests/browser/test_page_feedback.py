"""The web page's thumbs: by keyboard, on a phone, and before the query is logged."""

from typing import Any

import pytest
from playwright.async_api import expect

from tests.browser.answer_script import answer
from tests.browser.conftest import Visit
from tests.browser.page_actions import ask, ended
from tests.browser.stub_api import StubApi

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

PHONE: dict[str, Any] = {"viewport": {"width": 360, "height": 740}, "has_touch": True, "is_mobile": True}


async def test_thumbs_and_reasons_are_sent_by_keyboard(stub: StubApi, visit: Visit) -> None:
    stub.scripts, stub.unlogged = [answer("It takes an hour.")], 1
    page = await visit(stub.url, failed_requests=True)
    await ask(page)
    await ended(page)
    (query_id,) = stub.streams
    group = page.get_by_role("group", name="Rate this answer")
    up, down = (group.get_by_role("button", name=name) for name in ("Good answer", "Bad answer"))
    state = group.locator(".rated")
    await up.focus()
    await page.keyboard.press("Enter")
    await expect(up).to_have_attribute("aria-pressed", "true")
    await expect(state).to_have_text("Thank you.")  # after the 404 of a query that is not logged yet
    await page.keyboard.press("Tab")
    await expect(down).to_be_focused()
    await page.keyboard.press("Space")
    await expect(up).to_have_attribute("aria-pressed", "false")
    await expect(state).to_have_text("Thank you.")
    await group.get_by_label("Wrong source").press("Space")
    await group.get_by_label("Comment").fill("See page 4.")
    await page.keyboard.press("Tab")
    await page.keyboard.press("Enter")
    await expect(group.get_by_label("Comment")).to_have_count(0)
    await expect(down).to_be_focused()
    await page.keyboard.press("Enter")
    await expect(state).to_have_text("Rating withdrawn.")
    bare: dict[str, Any] = {"reasons": [], "comment": ""}
    assert stub.ratings == [
        (query_id, {"rating": "up", **bare}),
        (query_id, {"rating": "down", **bare}),
        (query_id, {"rating": "down", "reasons": ["wrong_citation"], "comment": "See page 4."}),
        (query_id, None),
    ]


async def test_reasons_fit_on_a_phone(stub: StubApi, visit: Visit) -> None:
    stub.scripts = [answer("It takes an hour.")]
    page = await visit(stub.url, **PHONE)
    await ask(page)
    await ended(page)
    down = page.get_by_role("button", name="Bad answer")
    box = await down.bounding_box()
    assert box is not None
    assert min(box["width"], box["height"]) >= 40
    await down.tap()
    await expect(page.get_by_label("Comment")).to_be_visible()
    assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    for part in await page.locator(".feedback :is(label, textarea, button)").all():
        placed = await part.bounding_box()
        assert placed is not None
        assert placed["x"] >= 0
        assert placed["x"] + placed["width"] <= 360
    size = await page.get_by_label("Comment").evaluate(
        "(node) => parseFloat(getComputedStyle(node).fontSize)"
    )
    assert size >= 16  # a smaller field zooms the page on iOS
