"""The web page after a disconnect: it resumes, shows that, and never takes a part for the whole."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
from playwright.async_api import expect

from tests.browser.answer_script import Cut, Hold, Refuse, Send, answer, citation, source
from tests.browser.conftest import Visit
from tests.browser.page_actions import ask, ended
from tests.browser.stub_api import StubApi

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

LOST = "Connection lost, resuming…"


async def test_interrupted_answer_is_resumed_at_its_last_event(stub: StubApi, visit: Visit) -> None:
    gate = asyncio.Event()
    stub.scripts = [answer("Grüße, ", "eins ", Cut(), "zwei ", Hold(gate), "drei.", answer="")]
    del stub.scripts[0][-1].data["answer"]  # type: ignore[union-attr]  # so that what is shown are the tokens
    page = await visit(stub.url, failed_requests=True)
    await ask(page)
    await expect(page.locator(".answer")).to_have_text("Grüße, eins zwei")
    await expect(page.locator(".turn")).to_have_attribute("aria-busy", "true")
    assert stub.returns == ["4"]  # meta, sources and two tokens had arrived
    assert stub.queries[0]["resumable"] is True
    gate.set()
    await ended(page)
    await expect(page.locator(".answer")).to_have_text("Grüße, eins zwei drei.")
    await expect(page.locator(".turn").get_by_text(LOST)).to_have_count(0)
    assert len(stub.queries) == 1


@pytest.mark.parametrize(
    "at", [1, 4, 8, *(pytest.param(at, marks=pytest.mark.slow) for at in (2, 3, 5, 6, 7))]
)
async def test_answer_interrupted_at_any_event_is_whole_after_resume(
    stub: StubApi, visit: Visit, at: int
) -> None:
    text = "It is 48 [Context 1]. Bread 👩‍🍳 rises."
    cited = [source(1, stub.add_document("48", file="a.md"), 0, 2)]
    script = answer("It is ", "48 [Con", "text 1]. ", "Bread 👩‍🍳 rises.", sources=cited)
    script.insert(5, citation(text, "[Context 1]", 1, "supported"))
    del script[-1].data["answer"]  # type: ignore[union-attr]  # a Send
    script.insert(at, Cut())
    stub.scripts = [script]
    page = await visit(stub.url, failed_requests=True)
    await ask(page)
    await ended(page)
    await expect(page.locator(".answer")).to_have_text("It is 48 1. Bread 👩‍🍳 rises.")
    await expect(page.locator(".cite")).to_have_attribute("data-verdict", "supported")
    assert stub.returns == [str(at)]
    assert len(stub.queries) == 1


async def test_unavailable_server_is_retried_until_it_resumes(stub: StubApi, visit: Visit) -> None:
    stub.scripts = [answer("One ", Cut(), "two ", Cut(), "three.")]
    stub.refused_returns = [Refuse(503, "Away."), Refuse(502, "Away.")]
    page = await visit(stub.url, failed_requests=True)
    await ask(page)
    await expect(page.locator(".turn").get_by_text(LOST)).to_be_visible()
    await expect(page.get_by_role("status")).to_have_text(LOST)
    await ended(page)
    await expect(page.locator(".answer")).to_have_text("One two three.")
    assert stub.returns == ["3", "3", "3", "5"]


@pytest.mark.parametrize("status", [404, 403])
async def test_answer_that_cannot_be_resumed_fails_and_can_be_retried(
    stub: StubApi, visit: Visit, status: int
) -> None:
    stub.scripts = [answer("Half an ", Cut(), "answer."), answer("Whole.")]
    stub.refused_returns = [Refuse(status, "No.")]
    page = await visit(stub.url, failed_requests=True)
    await ask(page, "Why?")
    await ended(page, "failed")
    await expect(page.get_by_role("alert")).to_contain_text(
        "does not have the rest" if status == 404 else "No."
    )
    await expect(page.locator(".answer")).to_have_text("Half an")
    await expect(page.locator(".evidence")).to_have_count(0)
    await page.get_by_role("button", name="Retry" if status == 404 else "Ask again").click()
    await ended(page)
    await expect(page.locator(".answer")).to_have_text("Whole.")
    assert [query["query"] for query in stub.queries] == ["Why?", "Why?"]


async def test_resume_stops_after_repeated_failures_and_can_be_continued(stub: StubApi, visit: Visit) -> None:
    stub.scripts = [answer("Half an ", Cut(), "answer.")]
    stub.refused_returns = [Refuse(503, "Away.")] * 7
    page = await visit(stub.url, failed_requests=True)
    await page.clock.install()
    await page.reload()
    await ask(page)
    await expect(page.locator(".turn").get_by_text(LOST)).to_be_visible()
    async with asyncio.timeout(60):
        while len(stub.returns) < 7:
            await page.clock.fast_forward(12_000)
            await asyncio.sleep(0.05)
    await expect(page.get_by_role("alert")).to_contain_text("the rest of the answer could not be fetched")
    await expect(page.locator(".turn")).to_have_attribute("data-phase", "failed")
    left, right = [
        await page.get_by_role("button", name=name).bounding_box() for name in ("Fetch the rest", "Ask again")
    ]
    assert left is not None
    assert right is not None
    assert right["x"] - (left["x"] + left["width"]) >= 8
    await page.get_by_role("button", name="Fetch the rest").click()
    await page.clock.fast_forward(1_000)
    await ended(page)
    await expect(page.locator(".answer")).to_have_text("Half an answer.")
    assert stub.returns == ["3"] * 8
    assert len(stub.queries) == 1


async def test_online_event_resumes_without_waiting(stub: StubApi, visit: Visit) -> None:
    stub.scripts = [answer("Half an ", Cut(), "answer.")]
    page = await visit(stub.url, failed_requests=True)
    await page.clock.install()
    await page.reload()
    await page.clock.pause_at(datetime.now(UTC) + timedelta(hours=1))
    await ask(page)
    await expect(page.locator(".turn").get_by_text(LOST)).to_be_visible()
    await page.evaluate("dispatchEvent(new Event('online'))")  # the page's clock is stopped
    await ended(page)
    await expect(page.locator(".answer")).to_have_text("Half an answer.")


async def test_silent_connection_is_resumed(stub: StubApi, visit: Visit) -> None:
    gate = asyncio.Event()
    stub.scripts = [answer("Half an ", Hold(gate), "answer.")]
    page = await visit(stub.url)
    await page.clock.install()
    await page.reload()
    await ask(page)
    await expect(page.locator(".answer")).to_have_text("Half an")
    await page.clock.fast_forward(61_000)
    await expect(page.locator(".turn").get_by_text(LOST)).to_be_visible()
    gate.set()
    await page.clock.fast_forward(1_000)
    await ended(page)
    await expect(page.locator(".answer")).to_have_text("Half an answer.")
    assert stub.returns == ["3"]


async def test_stop_during_reconnect_aborts_the_stream(stub: StubApi, visit: Visit) -> None:
    stub.scripts = [answer("Half an ", Cut(), "answer.")]
    stub.refused_returns = [Refuse(503, "Away.")] * 7
    page = await visit(stub.url, failed_requests=True)
    await ask(page)
    await expect(page.locator(".turn").get_by_text(LOST)).to_be_visible()
    await page.get_by_role("button", name="Stop the answer").click()
    await ended(page, "stopped")
    assert stub.stops == list(stub.streams)
    await expect(page.locator(".turn")).to_contain_text("Stopped. This is not the whole answer.")


async def test_unsuccessful_stop_request_closes_the_connection(stub: StubApi, visit: Visit) -> None:
    gate = asyncio.Event()
    script = answer("Half an ", Hold(gate), "answer.")
    stub.scripts = [[Send("meta", {**script[0].data, "request_id": "unknown"}), *script[1:]]]  # type: ignore[union-attr]  # a Send
    page = await visit(stub.url, failed_requests=True)
    await ask(page)
    await expect(page.locator(".answer")).to_have_text("Half an")
    del stub.streams["unknown"]  # now stopping fails
    await page.keyboard.press("Escape")
    await ended(page, "stopped")
    await asyncio.wait_for(stub.query_closed.wait(), 20)


@pytest.mark.parametrize("how", ["New conversation", "leave"])
async def test_abandoned_answer_is_stopped_on_the_server(stub: StubApi, visit: Visit, how: str) -> None:
    stub.scripts = [answer("Half an ", Hold(asyncio.Event()), "answer.")]
    page = await visit(stub.url)
    await ask(page)
    await expect(page.locator(".answer")).to_have_text("Half an")
    if how == "leave":
        await page.goto("about:blank")
    else:
        await page.get_by_role("button", name=how).click()
    async with stub.seen, asyncio.timeout(20):
        await stub.seen.wait_for(lambda: stub.stops == list(stub.streams))
