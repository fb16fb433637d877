"""Stored conversations and suggestions of the web page with the real service, behind a base path."""

from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx2
import pytest
import pytest_asyncio
from playwright.async_api import expect
from pydantic import SecretStr

from tests.browser.conftest import Visit
from tests.browser.page_actions import ask, ended, file
from tests.browser.test_page_end_to_end import BREAD, KETTLE
from tests.support.http.live_server import serve
from vectorforge.api.app import create_app
from vectorforge.bootstrap import Application
from vectorforge.config import DatabaseSettings, LLMSettings, ServerSettings, VectorForgeConfig
from vectorforge.local.postgres import EmbeddedPostgres

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]
BASE = "/prod"


def under_base(app: Any) -> Any:
    """Serve an app below a path, as a stage of API Gateway does."""

    async def called(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            assert scope["path"].startswith(BASE), scope["path"]
            path = scope["path"].removeprefix(BASE) or "/"
            scope = {**scope, "path": path, "raw_path": path.encode()}
        await app(scope, receive, send)

    return called


@pytest_asyncio.fixture(loop_scope="session")
async def based_url(postgres_server: EmbeddedPostgres, make_tenant: Callable[[], str]) -> AsyncIterator[str]:
    """Start a laptop's server with a new tenant, below a path."""
    config = VectorForgeConfig(
        database=DatabaseSettings(database_url=SecretStr(postgres_server.app_url)),
        llm=LLMSettings(),
        server=ServerSettings(auth="local", local_tenant=make_tenant()),
    )
    async with serve(under_base(create_app(Application.build(config)))) as url:
        yield url + BASE


async def test_conversation_is_reloaded_renamed_and_deleted(based_url: str, visit: Visit) -> None:
    page = await visit(f"{based_url}/")
    await page.set_input_files("#files", [file("kettle.md", KETTLE), file("bread.md", BREAD)])
    await expect(page.locator("#uploads li", has_text="Added")).to_have_count(2, timeout=30_000)
    await ask(page, "How often should I descale the kettle?")
    await ended(page)
    await ask(page, "How long must the dough rise?")
    await ended(page, turn=1)
    shown = await page.locator(".answer").all_inner_texts()
    async with httpx2.AsyncClient(base_url=based_url) as client:
        (stored,) = (await client.get("/v1/conversations")).json()["conversations"]
    assert page.url == f"{based_url}/?conversation={stored['id']}"

    await page.reload()
    await expect(page.locator(".turn h2")).to_have_text(
        ["How often should I descale the kettle?", "How long must the dough rise?"]
    )
    assert await page.locator(".answer").all_inner_texts() == shown
    await expect(page.locator(".badge:visible")).to_have_text(
        ["Quoted from your documents, no model wrote this"] * 2
    )
    await page.locator(".cite").first.click()
    await expect(page.locator("#panel-title")).to_have_text("Kettle care 🫖")
    await expect(page.locator(".quote")).to_contain_text("Descale the kettle every three months")
    await page.get_by_role("button", name="Good answer").first.click()
    await expect(page.locator(".rated").first).to_have_text("Thank you.")

    await page.get_by_role("button", name="Conversations", exact=True).click()
    await page.get_by_role("button", name="Rename How often should I descale the kettle?").click()
    await page.get_by_role("textbox", name="Name").fill("Kettle")
    await page.keyboard.press("Enter")
    await expect(page.locator("#conversations-list .title")).to_have_text(["Kettle"])
    await page.get_by_role("button", name="Delete Kettle").click()
    await page.get_by_role("button", name="Delete", exact=True).click()
    await expect(page.locator(".turn")).to_have_count(0)
    assert page.url == f"{based_url}/"
    async with httpx2.AsyncClient(base_url=based_url) as client:
        assert (await client.get("/v1/conversations")).json()["conversations"] == []


async def test_reload_shows_the_same_marks_times_and_scores(based_url: str, visit: Visit) -> None:
    page = await visit(f"{based_url}/")
    await page.set_input_files("#files", [file("kettle.md", KETTLE), file("bread.md", BREAD)])
    await expect(page.locator("#uploads li", has_text="Added")).to_have_count(2, timeout=30_000)
    await ask(page, "How often should I descale the kettle?")
    await ended(page)
    parts = (".cite[data-verdict]", ".sources .score", ".foot > span", ".evidence")

    async def shown() -> list[list[str]]:
        marks = await page.locator(".answer .cite").evaluate_all("all => all.map((one) => one.outerHTML)")
        return [marks, *[await page.locator(part).all_text_contents() for part in parts]]

    before = await shown()
    assert all(before)
    assert "Searched in" in before[3][0]
    await page.reload()
    await expect(page.locator(".turn h2")).to_have_text("How often should I descale the kettle?")
    await ended(page)
    assert await shown() == before


async def test_suggestion_from_a_heading_is_answered_from_its_section(based_url: str, visit: Visit) -> None:
    page = await visit(f"{based_url}/")
    guide = "# Kettle care\n\n" + "".join(
        f"## {heading}\n\n{sentence} {'It is made of steel and stands in the kitchen. ' * 12}\n\n"
        for heading, sentence in (
            ("Descaling", "Descale the kettle every three months with citric acid."),
            ("Warranty", "The warranty of the kettle covers five years."),
        )
    )
    await page.set_input_files("#files", [file("kettle.md", guide)])
    await expect(page.locator("#uploads li")).to_contain_text("Added", timeout=30_000)
    await page.keyboard.press("Escape")
    await page.reload()
    question = "What does “Kettle care” say about “Descaling”?"
    await page.get_by_role("button", name=question).click()
    await ended(page)
    await expect(page.locator(".turn h2")).to_have_text(question)
    await expect(page.locator(".answer")).to_contain_text("every three months")


async def test_collection_is_renamed_and_erased_from_the_page(based_url: str, visit: Visit) -> None:
    page = await visit(f"{based_url}/")
    await page.set_input_files("#files", [file("bread.md", BREAD)])
    await expect(page.locator("#uploads li")).to_contain_text("Added", timeout=30_000)
    await page.get_by_role("button", name="Rename collection").click()
    await page.get_by_role("textbox", name="Name").fill("baking")
    await page.keyboard.press("Enter")
    picker = page.get_by_label("Collection", exact=True)
    await expect(picker.locator("option")).to_have_text(["baking"])
    await page.get_by_role("button", name="Delete collection").click()
    await expect(page.get_by_role("alertdialog")).to_contain_text("1 document with 1 passage will be erased")
    await page.get_by_role("button", name="Delete", exact=True).click()
    await expect(picker).to_be_disabled()
    async with httpx2.AsyncClient(base_url=based_url) as client:
        assert (await client.get("/v1/collections")).json()["collections"] == []
