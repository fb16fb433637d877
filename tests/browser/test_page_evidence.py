"""The web page's details of an answer: verdicts while it streams, then the funnel, latency and cost."""

import asyncio
from typing import Any

import pytest
from playwright.async_api import Page, expect

from tests.browser.answer_script import FUNNEL, Hold, Send, answer, citation, source
from tests.browser.conftest import Visit
from tests.browser.page_actions import ask, ended
from tests.browser.stub_api import StubApi

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

NOTHING = dict.fromkeys(("candidates", "below_min_score", "dropped_by_budget", "used", "cited"), 0)
PHONE: dict[str, Any] = {"viewport": {"width": 360, "height": 740}, "has_touch": True, "is_mobile": True}


async def open_account(page: Page) -> None:
    """Open the details of the newest answer, which are closed at first."""
    await page.get_by_text("How this answer came about").last.click()


async def listed(page: Page, name: str) -> list[str]:
    """Return the text of a list, as read by a screen reader."""
    items = page.get_by_role("list", name=name).get_by_role("listitem")
    return [" ".join(text.split()) for text in await items.all_inner_texts()]


async def widths(page: Page, selector: str) -> list[float]:
    found: list[float] = await page.locator(selector).evaluate_all(
        "(nodes) => nodes.map((node) => node.getBoundingClientRect().width)"
    )
    return found


async def test_citation_verdicts_are_shown_while_the_answer_streams(stub: StubApi, visit: Visit) -> None:
    text = "Breakfast 🍳 is 48 € [Context 1]. Dinner is 90 € [Context 1, Context 2]. Nice [Context 2]. `x[1]`"
    document = stub.add_document("48 and 60", file="a.md", title="Travel")
    gate = asyncio.Event()
    script = answer(
        text[:45],
        citation(text, "[Context 1]", 1, "supported"),
        Hold(gate),
        text[45:],
        citation(text, "[Context 1, Context 2]", 1, "unsupported"),
        citation(text, "[Context 1, Context 2]", 2, "unsupported"),
        citation(text, "[Context 2]", 2, "unchecked", occurrence=1),
        sources=[source(1, document, 0, 9), source(2, document, 0, 9)],
        quality={"uncited_sentences": 2},
    )
    stub.scripts = [script]
    page = await visit(stub.url)
    await ask(page)
    first = page.get_by_role(
        "button", name="Source 1: Travel. Words match: the passage has the numbers, names and most words"
    )
    await expect(first).to_be_visible()
    await expect(page.locator(".answer")).to_have_attribute("aria-busy", "true")
    gate.set()
    await ended(page)
    await open_account(page)
    verdicts = await page.locator(".cite").evaluate_all("(nodes) => nodes.map((n) => n.dataset.verdict)")
    assert verdicts == ["supported", "unsupported", "unsupported", "unchecked"]
    await expect(page.locator(".cite")).to_have_text(["1", "1", "2", "2"])
    await expect(page.locator(".answer code")).to_have_text("x[1]")
    await expect(page.locator(".verdicts")).to_have_text(
        "Citations, compared by words: 1 with the words of their passage, 2 not supported, 1 not checkable. "
        "2 sentences without a citation."
    )


async def test_marker_characters_and_code_labels_are_shown_as_text(stub: StubApi, visit: Visit) -> None:
    text = "\ue0000.1\ue001 and [1].\n\n~~~\nlist [1]\n~~~\n"
    one = [source(1, stub.add_document("passage", file="a.md"), 0, 7)]
    citations = [citation(text, "[1]", 1, "supported", occurrence=n) for n in (1, 2)]
    stub.scripts = [answer(text, *citations, sources=one)]
    page = await visit(stub.url)
    await ask(page)
    await ended(page)
    await open_account(page)
    await expect(page.locator(".cite")).to_have_count(1)
    await expect(page.locator(".answer p")).to_have_text("\ufffd0.1\ufffd and 1.")
    await expect(page.locator(".answer pre")).to_have_text("list [1]")


async def test_funnel_shows_chunk_counts_and_proportional_bars(stub: StubApi, visit: Visit) -> None:
    stub.scripts = [answer("Text.")]
    page = await visit(stub.url)
    await ask(page)
    await ended(page)
    await open_account(page)
    assert await listed(page, "Passages") == [
        "Matched 340", "Nearest 10", "Scored too low −2", "Did not fit −1", "Read 7", "Cited 1",
    ]  # fmt: skip
    bars = await widths(page, ".funnel .track i")
    assert bars[0] > bars[1] > bars[4] > bars[5] > 0
    assert bars[1] > bars[2] > bars[3] > 0


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"matched": 10_000, "matched_is_at_least": True}, "Matched 10,000+"),
        ({"matched": 0, **NOTHING}, "Matched 0"),
        ({"matched": None, **NOTHING}, "Matched not searched"),
    ],
)
async def test_funnel_without_exact_count_shows_bounded_or_no_count(
    stub: StubApi, visit: Visit, changes: dict[str, Any], expected: str
) -> None:
    stub.scripts = [answer("Text.", funnel=FUNNEL | changes)]
    page = await visit(stub.url)
    await ask(page)
    await ended(page)
    await open_account(page)
    assert (await listed(page, "Passages"))[0] == expected
    assert all(width >= 0 for width in await widths(page, ".funnel .track i"))


STEP: dict[str, Any] = {"round": 1, "origin": "model", "queries": ["kettle weight", "x" * 90], "error": None}


@pytest.mark.parametrize(
    "context", [pytest.param({}, id="desktop"), pytest.param(PHONE, id="phone", marks=pytest.mark.slow)]
)
async def test_evidence_lists_the_steps_of_the_search(
    stub: StubApi, visit: Visit, context: dict[str, Any]
) -> None:
    steps = [
        STEP | {"kind": "plan", "found": 0, "added": 0},
        STEP | {"kind": "search", "queries": ["kettle weight"], "found": 1, "added": 1},
        STEP | {"kind": "read", "queries": [], "source": "kettle.md", "found": 4, "added": 2},
        STEP | {"kind": "plan", "queries": [], "found": 0, "added": 0, "error": "llm_timeout"},
    ]
    stub.scripts = [answer("Text.", steps=steps)]
    page = await visit(stub.url, **context)
    await ask(page)
    await ended(page)
    await open_account(page)
    assert await listed(page, "Steps") == [
        f"Planned kettle weight, {'x' * 90} (by the model)",
        "Searched for kettle weight (1 passage, 1 new)",
        "Read kettle.md (4 passages, 2 new)",
        "Planned no further search (skipped: llm_timeout)",
    ]
    assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")


async def test_evidence_shows_time_and_cost(stub: StubApi, visit: Visit) -> None:
    stub.scripts = [answer("Text.")]
    page = await visit(stub.url)
    await ask(page)
    await ended(page)
    await open_account(page)
    assert await listed(page, "Time") == [
        "Search 12 ms",
        "Wait for first word 400 ms",
        "Writing 501 ms",
        "Total 913 ms",
    ]
    search, first, writing = await widths(page, ".times i")
    assert search < first < writing
    assert writing / first == pytest.approx(500.6 / 400, rel=0.05)
    await expect(page.locator(".cost")).to_have_text("$0.0012812 tokens read, 96 written")


@pytest.mark.parametrize(
    ("done", "cost"),
    [
        ({"cost_usd": None}, "price unknown"),
        ({"cost_usd": 0}, "$0"),
        ({"cost_usd": 0, "cached": True}, "$0, from the cache"),
        ({"cost_usd": 1.5}, "$1.50"),
        ({"cost_usd": 0.00000123}, "$0.0000012"),
    ],
)
async def test_cost_shows_price_cache_or_unknown(
    stub: StubApi, visit: Visit, done: dict[str, Any], cost: str
) -> None:
    stub.scripts = [answer("Text.", **done)]
    page = await visit(stub.url)
    await ask(page)
    await ended(page)
    await open_account(page)
    await expect(page.locator(".cost b")).to_have_text(cost)
    if done == {"cost_usd": None}:
        await expect(page.locator(".foot")).to_contain_text("fake-1 · price unknown")


async def test_extractive_answer_shows_zero_cost(stub: StubApi, visit: Visit) -> None:
    stub.scripts = [answer("Quoted.", extractive=True, cost_usd=None)]
    page = await visit(stub.url)
    await ask(page)
    await ended(page)
    await open_account(page)
    await expect(page.locator(".cost")).to_have_text("$0, no model wrote this")


async def test_time_without_first_token_shows_search_and_rest(stub: StubApi, visit: Visit) -> None:
    latency = {
        "retrieval_ms": 20,
        "context_ms": 0,
        "generation_ms": 0,
        "total_ms": 30,
        "first_token_ms": None,
    }
    stub.scripts = [answer("Nothing found.", latency=latency)]
    page = await visit(stub.url)
    await ask(page)
    await ended(page)
    await open_account(page)
    assert await listed(page, "Time") == ["Search 20 ms", "The rest 10 ms", "Total 30 ms"]


async def test_evidence_is_collapsed_until_opened(stub: StubApi, visit: Visit) -> None:
    stub.scripts = [answer("One."), answer("Two.")]
    page = await visit(stub.url)
    for turn in range(2):
        await ask(page)
        await ended(page, turn=turn)
    accounts = page.locator("details.evidence")
    assert await accounts.evaluate_all("(nodes) => nodes.map((node) => node.open)") == [False, False]
    await accounts.nth(0).get_by_text("How this answer came about").press("Enter")
    await expect(accounts.nth(0).get_by_role("list", name="Passages")).to_be_visible()


@pytest.mark.parametrize("scheme", [pytest.param("light", marks=pytest.mark.slow), "dark"])
async def test_evidence_on_phone_fits_the_screen(stub: StubApi, visit: Visit, scheme: str) -> None:
    big = {"matched": 1_234_567, "matched_is_at_least": True, "candidates": 100, "used": 97, "cited": 42}
    text = "It is 48 [1]. It is 90 [1]. "
    cited = [source(1, stub.add_document("48", file="a.md"), 0, 2)]
    events: list[Send] = [citation(text, "[1]", 1, v, n) for n, v in ((1, "supported"), (2, "unsupported"))]
    stub.scripts = [answer(text, *events, sources=cited, funnel=FUNNEL | big, cost_usd=123.45)]
    page = await visit(stub.url, color_scheme=scheme, **PHONE)
    await ask(page)
    await ended(page)
    await open_account(page)
    assert await page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
    for name in ("Passages", "Time"):
        box = await page.get_by_role("list", name=name).bounding_box()
        assert box is not None
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= 360
    passages, times = (page.get_by_role("list", name=name) for name in ("Passages", "Time"))
    above, below = await passages.bounding_box(), await times.bounding_box()
    assert above is not None
    assert below is not None
    assert below["y"] > above["y"] + above["height"]  # one below the other
