"""The web page with degraded answers: marked, and quotes are not attributed to a model."""

import pytest
from playwright.async_api import expect

from tests.browser.answer_script import Send, Step, answer, source
from tests.browser.conftest import Visit
from tests.browser.page_actions import ask, ended
from tests.browser.stub_api import StubApi

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]


def finished(script: list[Step], **done: object) -> list[Step]:
    """Return the script with more fields in its last event."""
    last = script[-1]
    assert isinstance(last, Send)
    return [*script[:-1], Send("done", {**last.data, **done})]


async def test_retrieved_passages_without_answer_are_labeled_as_quotes(stub: StubApi, visit: Visit) -> None:
    cited = [source(1, stub.add_document("A quote.", file="a.md"), 0, 8)]
    step = {
        "step": "passages",
        "reason": "llm_error",
        "provider": "extractive",
        "model": "e",
        "extractive": True,
    }
    script = answer(Send("degraded", step), "A quote. [Source 1]", sources=cited)
    stub.scripts = [finished(script, degraded=["passages"], cached=False)]
    page = await visit(stub.url)
    await ask(page)
    await ended(page)
    shown = "The model is unavailable; showing the retrieved passages"
    await expect(page.locator(".foot")).to_contain_text(shown)
    await expect(page.locator(".badge:visible")).to_have_text(
        "Quoted from your documents, no model wrote this"
    )
    await expect(page.locator(".foot")).not_to_contain_text("fake-1")  # not written by the requested model


async def test_fallback_model_is_named_in_the_footer(stub: StubApi, visit: Visit) -> None:
    step = {"step": "provider", "reason": "llm_error", "provider": "b", "model": "b-2", "extractive": False}
    stub.scripts = [finished(answer(Send("degraded", step), "Text."), degraded=["provider"], cached=False)]
    page = await visit(stub.url)
    await ask(page)
    await ended(page)
    await expect(page.locator(".foot")).to_contain_text("Another model answered in its place")
    await expect(page.locator(".foot")).to_contain_text("b-2")


async def test_cached_answer_is_labeled_in_the_footer(stub: StubApi, visit: Visit) -> None:
    stub.scripts = [finished(answer("Text."), degraded=[], cached=True), answer("Text.")]
    page = await visit(stub.url)
    await ask(page)
    await ended(page)
    await expect(page.locator(".foot")).to_contain_text("Answered before, on the same documents")
    await ask(page)
    await ended(page, turn=1)
    await expect(page.locator(".foot").nth(1)).not_to_contain_text("before")
