"""The browser examples as a reader runs them: built, served with their proxy, and used in Chromium."""

import asyncio
import shutil
import subprocess
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio
from aiohttp import web
from playwright.async_api import Page, expect

from tests.browser.conftest import Visit
from tests.clients.guides import BROKEN, QUESTION, Guides, serve_guides, unending
from tests.clients.node_processes import NodeProgram
from tests.clients.npm import HERE, installed_modules
from tests.support.http.live_api import key_of
from tests.support.vendors.fake_openai import FakeOpenAI
from tests.support.vendors.fake_vendor import Reply
from vectorforge.local.postgres import EmbeddedPostgres

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.asyncio(loop_scope="session")]

EXAMPLES = HERE.parents[1] / "examples"
PIECES = (
    "👩‍🔧 Let it rise",
    " for two hours 🕑 [Sou",
    "rce 1]. <b>Wait</b> 900 days [Source",
    " 1].",
)
ANSWER = "👩‍🔧 Let it rise for two hours 🕑 [1]. <b>Wait</b> 900 days [1]."


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the example with its package.json's packages, and return its folder."""
    folder = tmp_path_factory.mktemp("examples")
    modules = installed_modules()
    shutil.copy(EXAMPLES / "fetch_reader.html", folder)
    example = folder / "use-chat"
    shutil.copytree(EXAMPLES / "use-chat", example, ignore=shutil.ignore_patterns("node_modules", "dist"))
    (example / "node_modules").symlink_to(modules)
    for command in ((modules / ".bin" / "tsc", "--noEmit"), ("node", "build.mjs")):
        done = subprocess.run(command, cwd=example, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    return example


@dataclass(frozen=True, slots=True)
class Example:
    """The example's server in front of the guides' server."""

    url: str
    guides: Guides
    openai: FakeOpenAI


@pytest_asyncio.fixture(loop_scope="session")
async def example(
    built: Path, postgres_server: EmbeddedPostgres, make_tenant: Callable[[], str]
) -> AsyncIterator[Example]:
    """Run the example."""
    async with (
        FakeOpenAI() as openai,
        serve_guides(postgres_server.app_url, make_tenant(), openai) as guides,
        await NodeProgram.start(
            "serve.mjs",
            cwd=built,
            VECTORFORGE_URL=guides.api.url,
            VECTORFORGE_API_KEY=key_of(guides.tenant),
            PORT="0",
        ) as server,
    ):
        yield Example(await server.read_line(), guides, openai)


async def ask(page: Page, question: str = QUESTION) -> None:
    box = page.get_by_label("Question")
    await box.fill(question)
    await box.press("Enter")


async def no_wider_than_the_screen(page: Page) -> bool:
    return bool(await page.evaluate("document.documentElement.scrollWidth <= innerWidth"))


async def test_use_chat_answer_shows_sources_and_citations(example: Example, visit: Visit) -> None:
    example.openai.script(Reply(texts=PIECES), Reply(texts=("**In short**: 230 degrees [Source 1].",)))
    page = await visit(example.url)
    await ask(page)
    await expect(page.locator(".text")).to_have_text(ANSWER)  # its markup is shown as text
    await expect(page.locator(".foot")).to_have_text("18 tokens")
    labels = page.locator(".cite")
    await expect(labels).to_have_text(["[1]", "[1]"])
    await expect(labels.nth(0)).to_have_class("cite supported")
    await expect(labels.nth(1)).to_have_class("cite unsupported")
    await labels.first.click()
    await expect(page.locator(".passage b")).to_have_text("Bread")
    await expect(page.locator("blockquote")).to_contain_text("Let the dough rise for two hours")
    await page.get_by_role("button", name="Close").click()
    await expect(page.locator(".passage")).to_have_count(0)
    await page.get_by_text("3 sources").click()
    sources = page.locator(".sources b")
    await expect(sources).to_have_count(3)
    await expect(sources.first).to_have_text("Bread")

    await ask(page, "How hot is the oven?")
    await expect(page.locator(".text").nth(1)).to_have_text("In short: 230 degrees [1].")
    await expect(page.locator(".text b")).to_have_text(["In short"])
    assert [message["role"] for message in example.openai.bodies[1]["messages"]][1:3] == ["user", "assistant"]


async def test_use_chat_stop_closes_model_stream(example: Example, visit: Visit) -> None:
    example.openai.script(unending("Two hours"))
    page = await visit(example.url)
    await ask(page)
    await expect(page.locator(".text")).to_have_text("Two hours")
    await page.get_by_role("button", name="Stop").click()
    async with asyncio.timeout(10):  # through the example's own server
        await example.openai.requests[0].client_closed.wait()
    await expect(page.get_by_role("button", name="Ask")).to_be_visible()
    await expect(page.locator(".text")).to_have_text("Two hours")
    await expect(page.get_by_role("alert")).to_have_count(0)


async def test_use_chat_error_shows_message_and_retry(example: Example, visit: Visit) -> None:
    page = await visit(f"{example.url}/?collection=nowhere", failed_requests=True)
    await ask(page)
    await expect(page.get_by_role("alert").locator("p")).to_have_text('There is no collection "nowhere".')

    example.openai.script(Reply(texts=("Two hours [Source 1].", " And"), ending="cut"), Reply(texts=("So.",)))
    page = await visit(example.url)
    await ask(page)
    await expect(page.get_by_role("alert")).to_contain_text(BROKEN)
    await expect(page.locator(".text")).to_have_text("Two hours [1]. And")
    await page.get_by_role("button", name="Try again").click()
    await expect(page.locator(".text")).to_have_text("So.")
    await expect(page.get_by_role("alert")).to_have_count(0)


async def test_use_chat_on_dark_phone_fits_the_screen(example: Example, visit: Visit, tmp_path: Path) -> None:
    example.openai.script(Reply(texts=("Two hours, " + "very" * 60 + " long [Source 1].",)))
    phone = {"viewport": {"width": 360, "height": 640}, "is_mobile": True, "color_scheme": "dark"}
    page = await visit(example.url, **phone)
    await ask(page)
    await page.locator(".cite").click()
    await page.get_by_text("3 sources").click()
    assert await no_wider_than_the_screen(page)
    for button in await page.get_by_role("button").all():
        box = await button.bounding_box()
        assert box is not None
        if await button.get_attribute("class") is None:  # labels are as tall as their line
            assert box["height"] >= 44
    background = await page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert background == "rgb(22, 24, 28)"
    await page.screenshot(path=tmp_path / "phone.png")


async def test_fetch_reader_shows_answer_and_stops_it(example: Example, visit: Visit) -> None:
    example.openai.script(Reply(texts=("<i>Two</i>", " hours 🕑 [Context 1].")), unending("Half"))
    page = await visit(f"{example.url}/fetch_reader.html")
    await ask(page)
    await expect(page.locator("#state")).to_have_text("Done: stop")
    await expect(page.locator("#answer")).to_have_text("<i>Two</i> hours 🕑 [Context 1].")
    await expect(page.locator("#sources li")).to_have_count(3)
    await expect(page.locator("#sources li").first).to_have_text("Bread")
    await ask(page, "And the oven?")
    await expect(page.locator("#answer")).to_have_text("Half")
    await page.get_by_role("button", name="Stop").click()
    await expect(page.locator("#state")).to_have_text("Stopped")
    async with asyncio.timeout(10):
        await example.openai.requests[1].client_closed.wait()


async def test_fetch_reader_with_failed_query_shows_error(example: Example, visit: Visit) -> None:
    example.openai.script(Reply(texts=("Two hours",), ending="cut"))
    page = await visit(f"{example.url}/fetch_reader.html", failed_requests=True)
    await ask(page, " ")
    await expect(page.locator("#state")).to_have_text("Query cannot be empty")
    await ask(page)
    await expect(page.locator("#state")).to_contain_text(BROKEN)
    await expect(page.locator("#answer")).to_have_text("Two hours")


CARRIAGE_RETURN = 13
ODD_STREAM = (
    "\ufeff: ping\r\n\r\n"
    'event: sources\rdata: {"sources":\rdata:[]}\r\r'
    'event:token\r\ndata:{"text": "Zwei 🕑"}\r\n\r\nretry: 5\nid\nunknown\n\n'
    'event: token\nid: 2\ndata: {"text":\ndata: " Stunden"}\n\n'
)


@pytest.mark.parametrize(
    ("end", "state"), [("\n\n", "Done: stop"), ("\n", "The connection was cut before the end.")]
)
async def test_fetch_reader_with_bytewise_stream_reads_every_line_ending(
    built: Path, visit: Visit, end: str, state: str
) -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        for byte in (ODD_STREAM + 'event: done\ndata: {"finish_reason": "stop"}' + end).encode():
            await response.write(bytes([byte]))
            await asyncio.sleep(0.05 if byte == CARRIAGE_RETURN else 0)  # splits a CRLF into two pieces
        await response.write_eof()
        return response

    async def reader(_: web.Request) -> web.FileResponse:
        return web.FileResponse(built.parent / "fetch_reader.html")

    app = web.Application()
    app.router.add_get("/", reader)
    app.router.add_post("/v1/rag/query", answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        page = await visit(f"http://127.0.0.1:{runner.addresses[0][1]}")
        await ask(page)
        await expect(page.locator("#state")).to_have_text(state)
        await expect(page.locator("#answer")).to_have_text("Zwei 🕑 Stunden")
        await page.close()
    finally:
        await runner.cleanup()
