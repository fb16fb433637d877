"""The statistics page: numbers, keyboard, phones, dark mode, keys, and missing data."""

from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import pytest
from playwright.async_api import Page, expect

from tests.browser.conftest import Visit
from tests.browser.stub_api import StubApi
from tests.support.http.live_api import add_documents, live_api, new_collection, settings_for
from vectorforge.local.postgres import EmbeddedPostgres

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

Json = dict[str, Any]
PHONE: Json = {"viewport": {"width": 360, "height": 740}, "has_touch": True, "is_mobile": True}
HOSTILE = "<img src=x onerror=\"document.title='owned'\">"


def activity(queries: int, **changes: Any) -> Json:
    """Return the statistics of some queries, a tenth of them failed."""
    times = {"p50": 1200.0, "p95": 2400.0, "p99": 4100.0}
    stages = ("total", "retrieval", "context", "generation", "first_token")
    return {
        "queries": queries,
        "outcomes": {"answered": queries - queries // 10, "error": queries // 10} if queries else {},
        "cached": queries // 5,
        "degraded": queries // 20,
        "low_quality": 0,
        "prompt_tokens": queries * 900,
        "completion_tokens": queries * 100,
        "cost_usd": queries * 0.01,
        "unpriced": 0,
        "rated_up": queries // 50,
        "rated_down": queries // 200,
        "latency_ms": dict.fromkeys(stages, times) if queries else {},
        **changes,
    }


def statistics(counts: list[int], **changes: Any) -> Json:
    """Return the days from 16 November with this many queries each."""
    series = [{"start": f"2026-11-{16 + n}T00:00:00Z", **activity(count)} for n, count in enumerate(counts)]
    total = sum(counts)
    models = [{"provider": "openai", "model": "gpt-6-luna", **activity(total, unpriced=2)}]
    return {
        "since": "2026-11-16T00:00:00Z",
        "until": "2026-11-22T12:00:00Z",
        "bucket": "day",
        "totals": activity(total),
        "degraded_steps": {"stale": total // 20} if total else {},
        "series": series,
        "models": models if total else [],
        "variants": [],
        "collections": [],
        "content": {"collections": 1, "documents": 12, "chunks": 340},
        **changes,
    }


@pytest.fixture
def full(stub: StubApi) -> StubApi:
    """Return a server with a week of queries."""
    stub.statistics = statistics([100, 200, 0, 400, 100, 100, 100])
    return stub


def tile(page: Page, name: str) -> Any:
    return page.locator("#tiles > div").filter(has=page.get_by_text(name, exact=True)).locator("dd")


def plot(page: Page, title: str) -> Any:
    return page.get_by_role("group", name=f"{title}.")


async def test_statistics_page_shows_tiles_charts_and_models(
    full: StubApi, visit: Visit
) -> None:  # D-041, D-042
    page = await visit(f"{full.url}/statistics")
    await expect(tile(page, "Questions")).to_contain_text("1,000")
    await expect(tile(page, "Questions")).to_contain_text("100 failed")
    await expect(tile(page, "Typical time")).to_contain_text("1.2 s")
    await expect(tile(page, "Tokens")).to_contain_text("1M")
    await expect(tile(page, "Cost")).to_contain_text("$10.00")
    await expect(tile(page, "From the cache")).to_contain_text("20 %")
    await expect(tile(page, "Degraded")).to_contain_text("old answer 50")
    await expect(tile(page, "Rated good")).to_contain_text("80 %")
    await expect(tile(page, "Rated good")).to_contain_text("20 of 25 ratings")
    titles = [
        "Questions by outcome",
        "Time to the whole answer",
        "Tokens",
        "Cost",
        "From the cache",
        "Degraded",
    ]
    for title in titles:
        await expect(plot(page, title)).to_be_visible()
    bars = plot(page, "Questions by outcome").locator("rect.bar-part")
    await expect(bars).to_have_count(12)  # answered and failed on six days
    heights = await bars.evaluate_all("found => found.map((bar) => Number(bar.getAttribute('height')))")
    assert heights[4] == pytest.approx(4 * heights[0], rel=0.01)  # 360 answers against 90
    stages = page.get_by_role("img", name="Time by stage.")
    assert "Search: half within 1.2 s, 95 percent within 2.4 s" in (
        await stages.get_attribute("aria-label") or ""
    )
    await expect(page.get_by_text("None in this time.")).to_have_count(2)  # no results, low quality
    models = page.get_by_role("region", name="Table: Models")
    await expect(models.get_by_role("row").nth(1)).to_contain_text("openai · gpt-6-luna")
    await expect(models.get_by_role("row").nth(1).get_by_role("cell").last).to_have_text("20 of 25")
    await expect(page.get_by_text("* without models whose price is not known")).to_be_visible()


@pytest.mark.slow
async def test_percentiles_are_nested_bars_with_a_gap_where_data_is_missing(
    full: StubApi, visit: Visit
) -> None:
    page = await visit(f"{full.url}/statistics")
    bars = plot(page, "Time to the whole answer").locator("rect.bar-part")
    await expect(bars).to_have_count(18)  # three on six days
    boxes = [await bars.nth(at).bounding_box() for at in range(3)]
    assert all(boxes)
    heights = [box["height"] for box in boxes if box]
    assert heights == pytest.approx([heights[0], heights[0] * 24 / 41, heights[0] * 12 / 41], rel=0.01)
    assert len({box["y"] + box["height"] for box in boxes if box}) == 1


@pytest.mark.slow
async def test_arrow_keys_show_every_interval(full: StubApi, visit: Visit) -> None:
    page = await visit(f"{full.url}/statistics")
    intervals = plot(page, "Questions by outcome").get_by_role("radio")
    await expect(intervals.first).to_have_accessible_name("Mon, November 16, Answered 90, Failed 10")
    await intervals.first.focus()
    tip = page.locator(".tip:visible")
    await expect(tip).to_have_text("Mon, November 16Answered90Failed10")
    await page.keyboard.press("ArrowRight")
    await expect(tip).to_contain_text("Tue, November 17")
    await page.keyboard.press("Tab")
    await expect(page.locator(".tip:visible")).to_have_count(0)


@pytest.mark.slow
async def test_pointer_hover_shows_tooltip_of_the_interval(full: StubApi, visit: Visit) -> None:
    page = await visit(f"{full.url}/statistics")
    chart = plot(page, "Cost")
    box = await chart.bounding_box()
    assert box is not None
    await chart.hover(position={"x": box["width"] - 5, "y": 40})
    await expect(page.locator(".tip:visible")).to_contain_text(
        "Sun, November 22US dollars$1.00", use_inner_text=False
    )
    await page.get_by_role("heading", level=1).hover()
    await expect(page.locator(".tip:visible")).to_have_count(0)


async def test_chart_is_available_as_a_table(full: StubApi, visit: Visit) -> None:
    page = await visit(f"{full.url}/statistics")
    figure = page.locator("figure").filter(has=plot(page, "Questions by outcome"))
    await figure.get_by_text("As a table").click()
    rows = figure.get_by_role("row")
    await expect(rows).to_have_count(8)
    await expect(rows.nth(4)).to_have_text("Thu, November 1936040")


@pytest.mark.slow
async def test_selected_range_and_collection_are_requested_and_restored(full: StubApi, visit: Visit) -> None:
    page = await visit(f"{full.url}/statistics")
    await expect(page.get_by_role("radio", name="7 days")).to_be_checked()
    await page.get_by_role("radio", name="30 days").check()
    async with page.expect_response(lambda response: "collection_id=c1" in response.url):
        await page.get_by_label("Collection").select_option("handbook")
    await page.get_by_role("radio", name="Days…").check()
    await page.get_by_label("First day").fill("2026-11-01")
    await page.get_by_label("Last day").fill("2026-11-03")
    async with page.expect_response(lambda response: "until=2026-11-04" in response.url):
        await page.get_by_role("button", name="Reload").click()
    requested = full.ranges[-1]
    assert (requested["since"], requested["until"], requested["collection_id"]) == (
        "2026-11-01",
        "2026-11-04T00:00:00.000Z",
        "c1",
    )
    await page.reload()
    await expect(page.get_by_role("radio", name="Days…")).to_be_checked()
    await expect(page.get_by_label("Collection")).to_have_value("c1")
    assert full.ranges[-1] == requested


async def test_statistics_without_queries_show_empty_state(stub: StubApi, visit: Visit) -> None:
    stub.statistics = statistics([0] * 7, content={"collections": 1, "documents": 0, "chunks": 0})
    page = await visit(f"{stub.url}/statistics")
    await expect(page.get_by_role("heading", name="No questions in this time")).to_be_visible()
    await expect(page.get_by_text("There are no documents yet either.")).to_be_visible()
    await expect(page.locator(".plot")).to_have_count(0)
    await page.get_by_role("link", name="Ask a question").click()
    await expect(page).to_have_url(f"{stub.url}/")


async def test_failed_load_shows_error_and_can_be_retried(stub: StubApi, visit: Visit) -> None:
    page = await visit(f"{stub.url}/statistics", failed_requests=True)
    await expect(page.get_by_role("alert")).to_contain_text("The database is not available.")
    stub.statistics = statistics([5])
    await page.get_by_role("button", name="Try again").click()
    await expect(tile(page, "Questions")).to_contain_text("5")
    await expect(page.get_by_role("alert")).to_be_hidden()


async def test_missing_api_key_opens_prompt_and_is_shared_with_main_page(full: StubApi, visit: Visit) -> None:
    full.api_key = "right"
    page = await visit(f"{full.url}/statistics", failed_requests=True)
    await page.get_by_role("textbox", name="API key").fill("wrong")
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("dialog")).to_contain_text("did not accept that key")
    await page.get_by_role("textbox", name="API key").fill("right")
    await page.keyboard.press("Enter")
    await expect(tile(page, "Questions")).to_contain_text("1,000")
    await page.get_by_role("link", name="Ask", exact=True).click()
    await page.get_by_role("link", name="Statistics").click()
    await expect(tile(page, "Questions")).to_contain_text("1,000")  # without a new prompt


async def test_hostile_names_are_shown_as_text(full: StubApi, visit: Visit) -> None:
    full.statistics["models"][0]["model"] = HOSTILE
    full.add_collection(HOSTILE)
    page = await visit(f"{full.url}/statistics#{quote(HOSTILE)}")
    await expect(page.get_by_role("region", name="Table: Models")).to_contain_text(HOSTILE)
    assert await page.title() == "Statistics – VectorForge"
    assert await page.locator("img").count() == 0


@pytest.mark.parametrize("scheme", [pytest.param("light", marks=pytest.mark.slow), "dark"])
async def test_statistics_on_phone_fit_the_screen_in_both_schemes(
    full: StubApi, visit: Visit, scheme: str
) -> None:
    page = await visit(f"{full.url}/statistics", color_scheme=scheme, **PHONE)
    await expect(tile(page, "Questions")).to_be_visible()
    assert await page.evaluate("document.documentElement.scrollWidth - innerWidth") == 0
    paper = await page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert paper == {"light": "rgb(255, 255, 255)", "dark": "rgb(19, 20, 22)"}[scheme]
    box = await plot(page, "Cost").bounding_box()
    assert box is not None
    assert box["width"] > 250  # one below the other
    await plot(page, "Cost").tap(position={"x": box["width"] / 2, "y": 60})
    tip = await page.locator(".tip:visible").bounding_box()
    assert tip is not None
    assert tip["x"] >= 0
    assert tip["x"] + tip["width"] <= 360


async def test_statistics_page_shows_data_of_the_real_api(
    postgres_server: EmbeddedPostgres, visit: Visit, make_tenant: Callable[[], str]
) -> None:
    tenant = make_tenant()
    server = {"auth": "local", "local_tenant": tenant}
    async with live_api(settings_for(postgres_server.app_url, server=server)) as api:
        async with api.client(None) as client:
            await add_documents(
                client, await new_collection(client), tea="Green tea is brewed at eighty degrees."
            )
            for query in ("How hot is green tea?", "How hot is tea?"):
                await client.post("/v1/rag/query", json={"query": query})
        page = await visit(f"{api.url}/statistics")
        await expect(tile(page, "Questions")).to_contain_text("2")
        await expect(tile(page, "Cost")).to_contain_text("$0")
        await expect(page.get_by_role("region", name="Table: Models")).to_contain_text("extractive-v1")
        await page.get_by_label("Collection").select_option("default")
        await page.get_by_role("radio", name="24 hours").check()
        await expect(plot(page, "Questions by outcome").locator("rect.bar-part")).to_have_count(1)
        await page.context.close()
