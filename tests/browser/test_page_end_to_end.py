"""The web page with the real FastAPI, PostgreSQL, local embedder and extractive provider."""

import re
from collections.abc import AsyncIterator, Callable

import httpx2
import psycopg
import pytest
import pytest_asyncio
from playwright.async_api import FilePayload, expect
from pydantic import SecretStr

from tests.browser.conftest import Visit
from tests.browser.page_actions import ask, ended
from tests.support.formats.located import Located, price_list, three_slides, two_pages
from tests.support.http.live_server import serve
from vectorforge.api.app import create_app
from vectorforge.bootstrap import Application
from vectorforge.config import DatabaseSettings, LLMSettings, ServerSettings, VectorForgeConfig
from vectorforge.local.postgres import EmbeddedPostgres

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

KETTLE = (
    "# Kettle care 🫖\n\nA short guide 👩‍🔧.\n\n## Safety\n\nNever open the lid while the kettle is on.\n\n"
    "## Descaling\n\nDescale the kettle every three months with two spoons of citric acid.\n"
)
COPIES = """
INSERT INTO vectorforge.collections
    (tenant_id, id, name, embedding_provider, embedding_model, dimension, distance_metric)
SELECT tenant_id, gen_random_uuid(), copy, embedding_provider, embedding_model, dimension, distance_metric
FROM vectorforge.collections CROSS JOIN unnest(%(names)s::text[]) AS copy
"""
"""Requests for 250 collections would take most of the test's time."""
BREAD = "# Bread\n\nLet the dough rise for two hours before baking it at 230 degrees.\n"


@pytest.fixture
def tenant(make_tenant: Callable[[], str]) -> str:
    return make_tenant()


@pytest_asyncio.fixture(loop_scope="session")
async def server_url(postgres_server: EmbeddedPostgres, tenant: str) -> AsyncIterator[str]:
    """Start a laptop's server with a new tenant."""
    config = VectorForgeConfig(
        database=DatabaseSettings(database_url=SecretStr(postgres_server.app_url)),
        llm=LLMSettings(),
        server=ServerSettings(auth="local", local_tenant=tenant),
    )
    async with serve(create_app(Application.build(config))) as url:
        yield url


async def test_empty_server_with_uploads_yields_cited_answer(server_url: str, visit: Visit) -> None:
    page = await visit(server_url)
    await expect(page.get_by_role("heading", level=1)).to_have_text("Ask your own documents")
    texts = {"kettle.md": KETTLE, "bread.md": BREAD, "empty.txt": ""}
    files: list[FilePayload] = [
        {"name": name, "mimeType": "text/markdown", "buffer": text.encode()} for name, text in texts.items()
    ]
    await page.set_input_files("#files", files)
    rows = page.locator("#uploads li")
    await expect(rows.nth(0)).to_contain_text("Added, 1 passage", timeout=30_000)
    await expect(rows.nth(1)).to_contain_text("Added, 1 passage", timeout=30_000)
    await expect(rows.nth(2)).to_contain_text("The document is empty.", timeout=30_000)
    await expect(page.locator("#documents-list li")).to_have_count(2)

    await ask(page, "How often should I descale the kettle?")
    await ended(page)
    await expect(page.locator(".answer")).to_contain_text("every three months")
    await expect(page.locator(".badge:visible")).to_have_text(
        "Quoted from your documents, no model wrote this"
    )
    await page.locator(".cite").first.click()
    await expect(page.locator("#panel-title")).to_have_text("Kettle care 🫖")
    shown = page.locator("#document-text")
    await expect(shown.get_by_role("heading")).to_have_text(["Kettle care 🫖", "Safety", "Descaling"])
    await expect(shown.locator(".quote")).to_have_text(
        "Descale the kettle every three months with two spoons of citric acid."
    )

    await ask(page, "How long must the dough rise?")
    await expect(page.locator(".answer").nth(1)).to_contain_text("two hours")

    await page.get_by_role("button", name="All documents").click()
    await page.get_by_role("button", name="Delete Bread").click()
    await page.get_by_role("button", name="Delete", exact=True).click()
    await expect(page.locator("#documents-list li")).to_have_count(1)
    await page.reload()
    await expect(page.locator("#document-count")).to_have_text("1")


@pytest.mark.parametrize(
    "file", [two_pages(), three_slides(), price_list()], ids=lambda file: file.made.source
)
async def test_sources_and_citations_show_the_place_of_their_sentence(
    server_url: str, visit: Visit, file: Located
) -> None:
    page = await visit(server_url)
    upload: FilePayload = {
        "name": file.made.source,
        "mimeType": "application/octet-stream",
        "buffer": file.made.content,
    }
    await page.set_input_files("#files", upload)
    await expect(page.locator("#uploads li")).to_contain_text("Added, 1 passage", timeout=30_000)
    await ask(page, file.question)
    await ended(page)
    cited = page.locator(f'.cite[title*=", {file.text}"]')
    await expect(cited.first).to_have_accessible_name(re.compile(f", {re.escape(file.text)}"))
    await expect(page.locator(".sources .source").first).to_contain_text(file.text)
    await cited.first.click()
    await expect(page.locator("#panel .meta")).to_contain_text(file.text)


async def test_picker_of_250_collections_offers_each_and_queries_the_last(
    server_url: str, visit: Visit, postgres_server: EmbeddedPostgres, tenant: str
) -> None:
    """The API lists 200 per page."""
    names = [f"topic-{number:03d}" for number in range(250)]
    async with httpx2.AsyncClient(base_url=server_url) as client:
        (await client.post("/v1/collections", json={"name": names[-1]})).raise_for_status()
    with psycopg.connect(postgres_server.app_url) as connection:
        connection.execute("SELECT vectorforge.enter_tenant(%s)", [tenant])
        connection.execute(COPIES, {"names": names[:-1]})
    page = await visit(server_url)
    picker = page.get_by_label("Collection", exact=True)
    await expect(picker.locator("option")).to_have_text(names)
    await picker.select_option("topic-249")
    await page.set_input_files(
        "#files", {"name": "bread.md", "mimeType": "text/markdown", "buffer": BREAD.encode()}
    )
    await expect(page.locator("#uploads li")).to_contain_text("Added, 1 passage", timeout=30_000)
    await ask(page, "How long must the dough rise?")
    await ended(page)
    await expect(page.locator(".answer")).to_contain_text("two hours")
    await page.reload()
    await expect(picker.locator("option:checked")).to_have_text("topic-249")
    await expect(page.locator("#document-count")).to_have_text("1")
