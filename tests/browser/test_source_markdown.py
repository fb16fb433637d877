"""Markdown on the source page: rendered, the cited sentence marked; nothing in it runs or loads."""

import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from urllib.parse import urlencode

import pytest
import pytest_asyncio
from playwright.async_api import Page, expect

from tests.browser.conftest import Visit
from tests.browser.page_actions import ask, chunks_of, ended, sign_in
from tests.support.http.live_api import finished_job, live_api, new_collection, settings_for
from vectorforge.local.postgres import EmbeddedPostgres

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

PHONE = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}
CARE = """# Care of the bicycle

Oil the **chain** every month.
Read [the guide](https://example.org/guide?a=1 "Guide") and [our page](other.md).

## Every week

1. Pump up the tires.
2. Check `brakes`:

```sh
# [not a link](https://example.org)
check --brakes
```

| part | interval |
|------|----------|
| chain | one month |
| tires | one week |
"""
HOSTILE = """# Hostile

<script>window.ran = 1</script> <img src=x onerror="window.ran = 2"> <svg onload="window.ran = 3">

[script](javascript:window.ran=4) [case](JaVaScRiPt:window.ran=5)
[data](data:text/html,<script>window.ran=6</script>)
[file](file:///etc/passwd) [vb](vbscript:x) [protocol](//example.org/x)
[quote](https://example.org/"onclick="window.ran=7)

![pixel](https://example.org/pixel.png) ![inline](data:image/svg+xml,<svg/onload=window.ran=8>)

<a href="javascript:window.ran=9" onclick="window.ran=10">click</a>

| a | <b onmouseover="window.ran=11">b</b> |
|---|---|
| \ue000\ue002\ue003 | [x](javascript:alert(1)) |
"""


REFUNDS = {
    "refunds": "# Refunds\n\nReturns are free. A refund is paid within fourteen days of the return.\n",
    "vouchers": "# Vouchers\n\nA refund of a voucher is paid within three days of the return. Ask us.\n",
}


@dataclass(frozen=True)
class Shelf:
    url: str
    tenant: str
    care: list[str]
    hostile: list[str]


@pytest_asyncio.fixture(loop_scope="session")
async def shelf(postgres_server: EmbeddedPostgres, make_tenant: Callable[[], str]) -> AsyncIterator[Shelf]:
    tenant = make_tenant()
    async with live_api(settings_for(postgres_server.app_url, [tenant])) as api, api.client(tenant) as client:
        collection = await new_collection(client)
        found = []
        for name, text in {"care": CARE, "hostile": HOSTILE, **REFUNDS}.items():
            files = [("files", (f"{name}.md", text.encode(), "text/markdown"))]
            response = await client.post(f"/v1/collections/{collection}/documents", files=files)
            job = await finished_job(client, response.json()["id"])
            found.append(await chunks_of(client, job["documents"][0]["document_id"]))
        yield Shelf(api.url, tenant, *found[:2])


async def open_source(shelf: Shelf, visit: Visit, chunk: str, quote: str = "", **options: object) -> Page:
    given = urlencode({"at": "1", "quote": quote})
    page = await visit(f"{shelf.url}/source?chunk={chunk}#{given}", failed_requests=True, **options)
    await sign_in(page, shelf.tenant)
    await expect(page.locator("#body .answer")).to_be_visible()
    return page


@pytest.mark.parametrize(
    "options", [pytest.param({}, id="desk"), pytest.param(PHONE, id="phone", marks=pytest.mark.slow)]
)
async def test_markdown_is_rendered_with_its_sentence_marked(
    shelf: Shelf, visit: Visit, options: dict[str, object]
) -> None:
    page = await open_source(shelf, visit, shelf.care[0], "Oil the **chain** every month.", **options)
    body = page.locator("#body")
    await expect(body.get_by_role("heading", name="Every week")).to_be_visible()
    await expect(body.locator("ol li")).to_have_count(2)
    await expect(body.locator("tr").nth(2).locator("td")).to_have_text(["tires", "one week"])
    await expect(body.locator("pre code")).to_have_text(
        "# [not a link](https://example.org)\ncheck --brakes", use_inner_text=True
    )
    await expect(body.locator("p br")).to_have_count(0)
    await expect(body.locator("strong .quote")).to_have_text("chain")
    assert "".join(await body.locator(".quote").all_text_contents()) == "Oil the chain every month."
    await expect(body.locator(".quote").first).to_be_in_viewport()
    links = body.locator("a")
    assert await links.evaluate_all("nodes => nodes.map((a) => [a.href, a.rel, a.target])") == [
        ["https://example.org/guide?a=1", "noopener noreferrer nofollow", "_blank"]
    ]
    width = await page.evaluate("document.documentElement.scrollWidth")
    assert width == await page.evaluate("innerWidth")


@pytest.mark.parametrize(
    ("passage", "quote", "start"),
    [
        ("To bathe cat satin. The cat sat.", "the cat sat", 20),
        ("Take 15 apples now, or 5 apples now.", "5 apples now", 23),
        ("我们使用 Python 编写程序。", "使用 Python 编写", 2),
        ("It is done.Now go.Next", "Now go.", 11),
    ],
)
async def test_sentence_is_found_at_word_boundaries(
    shelf: Shelf, visit: Visit, passage: str, quote: str, start: int
) -> None:
    page = await visit(f"{shelf.url}/source", failed_requests=True)
    found = await page.evaluate("([passage, quote]) => sentenceIn(passage, quote)", [passage, quote])
    assert found["start"] == start


async def test_whole_passage_is_marked_without_a_sentence(shelf: Shelf, visit: Visit) -> None:
    page = await open_source(shelf, visit, shelf.care[-1])
    marked = "".join(await page.locator("mark.alone").all_text_contents())
    assert "chainone month" in marked
    assert "tiresone week" in marked
    await expect(page.locator(".quote")).to_have_count(0)
    assert not await page.evaluate(r"/[\uE002-\uE005]/.test(document.body.textContent)")


async def test_sentence_in_a_table_cell_is_marked(shelf: Shelf, visit: Visit) -> None:
    page = await open_source(shelf, visit, shelf.care[-1], "| tires | one week |")
    assert await page.locator("td .quote").all_text_contents() == ["tires", "one week"]
    await expect(page.locator("tr").last.locator("td")).to_have_count(2)


async def test_nothing_in_a_document_runs_loads_or_leaves_the_web(shelf: Shelf, visit: Visit) -> None:
    page = await open_source(shelf, visit, shelf.hostile[-1])  # ``visit`` fails on requests to other origins
    body = page.locator("#body")
    await expect(body).to_contain_text("<script>window.ran = 1</script>")
    assert await body.locator("script, img, svg, iframe, b, object").count() == 0
    hrefs = await body.locator("a").evaluate_all("nodes => nodes.map((a) => a.protocol)")
    assert set(hrefs) <= {"https:"}
    handlers = "nodes => nodes.flatMap((n) => n.getAttributeNames()).filter((name) => name.startsWith('on'))"
    assert await body.locator("*").evaluate_all(handlers) == []
    for text in ("script", "data", "file", "click"):
        await body.get_by_text(text, exact=False).first.click()
    assert await page.evaluate("window.ran") is None
    await expect(body.locator(".image")).to_have_text(["pixel", "inline"])


async def test_steps_of_an_answer_lead_to_each_citation_with_its_sentence(shelf: Shelf, visit: Visit) -> None:
    page = await visit(shelf.url, failed_requests=True)
    await sign_in(page, shelf.tenant)
    await ask(page, "When is a refund paid after the return?")
    await ended(page)
    await page.locator(".cite").first.click()
    async with page.expect_popup() as opened:
        await page.get_by_role("link", name="Open page").click()
    reader = await opened.value
    await expect(reader.locator(".quote").first).to_be_visible()
    quotes = await reader.evaluate("new URLSearchParams(location.hash.slice(1)).getAll('quote')")
    chunks = await reader.evaluate("new URLSearchParams(location.search).getAll('chunk')")
    assert len(quotes) == len(chunks) >= 2, json.dumps(quotes)
    assert len(set(quotes)) == len(quotes)
    for number in range(len(quotes)):
        await expect(reader.locator("#position")).to_have_text(f"{number + 1} of {len(quotes)}")
        await expect(reader.locator(".quote")).to_have_text(quotes[number])
        if number + 1 < len(quotes):
            await reader.get_by_role("button", name="Next citation").click()
