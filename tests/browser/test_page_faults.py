"""The web page with unusual or broken streams: it reads every valid form and hides no failure."""

import asyncio
import json

import pytest
from playwright.async_api import expect

from tests.browser.answer_script import Cut, Hold, Raw, Refuse, Send, Step, answer
from tests.browser.conftest import Visit
from tests.browser.page_actions import ask, ended
from tests.browser.stub_api import StubApi

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]


def token(text: str) -> str:
    return json.dumps({"text": text}, ensure_ascii=False)


WIRE = (
    "\ufeff: ping\r\n\r\n"
    'event:sources\r\ndata: {"sources": [],\r\ndata: "retrieval_ms": 1}\r\nretry: 5\r\n\r\n'
    f"id: 1\rdata: {token('Grüße ')}\revent: token\r\r"
    f"event: token\ndata: {token('👩‍💻 ')}\nunknown: x\n\n: ping\n\n"
    "event: later-addition\ndata: {}\n\nevent: token\n\n"
    f"event: token\r\ndata: {token('und ein Ende.')}\r\n\r\n"
    'event: done\r\ndata: {"finish_reason": "stop"}\r\n\r\n'
    "event: token\ndata: no blank line follows\n"
)
"""Every line end, a byte order mark, comments, unknown fields, data of two lines, an event without data."""


# P2: any valid serialization of the stream, cut anywhere
@pytest.mark.parametrize(
    "size", [1, 7, *(pytest.param(size, marks=pytest.mark.slow) for size in (2, 3, 10_000))]
)
async def test_event_stream_split_at_any_size_is_parsed_per_standard(
    stub: StubApi, visit: Visit, size: int
) -> None:
    page = await visit(stub.url)
    wire = WIRE.encode()
    events = await page.evaluate(
        """async (pieces) => {
            const events = [];
            const body = new ReadableStream({ start(controller) {
                for (const piece of pieces) controller.enqueue(new Uint8Array(piece));
                controller.close();
            } });
            for await (const { event, data } of serverEvents(body, () => {})) events.push([event, data]);
            return events;
        }""",
        [list(wire[at : at + size]) for at in range(0, len(wire), size)],
    )
    assert events == [
        ["sources", '{"sources": [],\n"retrieval_ms": 1}'],
        ["token", token("Grüße ")],
        ["token", token("👩‍💻 ")],
        ["later-addition", "{}"],
        ["token", token("und ein Ende.")],
        ["done", '{"finish_reason": "stop"}'],
    ]


async def test_unknown_events_and_pings_are_ignored(stub: StubApi, visit: Visit) -> None:
    stub.scripts = [[Raw(WIRE.encode())]]
    page = await visit(stub.url)
    await ask(page)
    await ended(page)
    await expect(page.locator(".answer")).to_have_text("Grüße 👩‍💻 und ein Ende.")


PARTIAL = Send("token", {"text": "Half an ans"})
PROBLEM = {"status": 502, "detail": "RAG query error: The model failed.", "request_id": "req-7"}


# P3: after any failure the page shows an error, the text so far and a retry
@pytest.mark.parametrize(
    ("steps", "message", "partial"),
    [
        ([PARTIAL, Send("error", PROBLEM | {"stage": "generate"})], "The model failed.", True),
        ([PARTIAL, Send("error", {"problem": PROBLEM, "stage": "generate"})], "The model failed.", True),
        ([PARTIAL], "broke off before its end", True),
        ([PARTIAL, Raw(b'event: done\ndata: {"finish_reason": "stop"}\n')], "broke off before its end", True),
        ([PARTIAL, Raw(b"event: token\ndata: {nonsense\n\n")], "could not be read", True),
        ([Refuse(503, "RAG query error: The database cannot be reached.")], "The database cannot be", False),
        ([Refuse(429, "Slow down.")], "Slow down.", False),
    ],
    ids=["error", "error-nested", "no-terminal", "unfinished-terminal", "nonsense", "503", "429"],
)
async def test_failed_answer_shows_error_and_can_be_retried(
    stub: StubApi, visit: Visit, steps: list[Step], message: str, partial: bool
) -> None:
    stub.scripts = [steps, answer("Whole.")]
    page = await visit(stub.url, failed_requests=True)
    await ask(page, "Why?")
    await ended(page, "failed")
    await expect(page.get_by_role("alert")).to_contain_text(message)
    assert "RAG query error" not in await page.locator(".turn").inner_text()
    await expect(page.locator(".answer")).to_have_text("Half an ans" if partial else "")
    await page.get_by_role("button", name="Retry").click()
    await ended(page, "answered")
    await expect(page.locator(".answer")).to_have_text("Whole.")
    assert [q["query"] for q in stub.queries] == ["Why?", "Why?"]
    assert "messages" not in stub.queries[1]


async def test_reset_connection_shows_error_and_retains_text(stub: StubApi, visit: Visit) -> None:
    gate = asyncio.Event()
    stub.scripts = [[PARTIAL, Hold(gate), Cut()]]
    page = await visit(stub.url, failed_requests=True)
    await ask(page)
    await expect(page.locator(".answer")).to_have_text("Half an ans")
    gate.set()
    await expect(page.get_by_role("alert")).to_contain_text("connection broke")
    await expect(page.locator(".answer")).to_have_text("Half an ans")


async def test_silent_server_times_out_and_closes_the_query(stub: StubApi, visit: Visit) -> None:
    stub.scripts = [[PARTIAL, Hold(asyncio.Event())]]
    page = await visit(stub.url)
    await page.clock.install()
    await page.reload()
    await ask(page)
    await expect(page.locator(".answer")).to_have_text("Half an ans")
    await page.clock.fast_forward(61_000)
    await expect(page.get_by_role("alert")).to_contain_text("went silent")
    await asyncio.wait_for(stub.query_closed.wait(), 20)
