"""The API explorer at ``/docs``: groups, examples that run with a key, streams, phones and dark mode."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx2
import pytest
import pytest_asyncio
from playwright.async_api import Locator, Page, expect
from pydantic import SecretStr

from tests.browser.conftest import Visit
from tests.browser.test_page_layout import PHONE, contrast, luminance, overflow
from tests.support.http.live_api import (
    LiveApi,
    add_documents,
    key_of,
    live_api,
    new_collection,
    settings_for,
)
from tests.support.vendors.fake_openai import FakeOpenAI
from tests.support.vendors.fake_vendor import Reply
from vectorforge.api.openapi import document
from vectorforge.llm.providers.openai import OpenAIProvider
from vectorforge.local.postgres import EmbeddedPostgres

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]


@pytest.fixture
def tenant(make_tenant: Callable[[], str]) -> str:
    return make_tenant()


@pytest_asyncio.fixture(loop_scope="session")
async def openai() -> AsyncIterator[FakeOpenAI]:
    async with FakeOpenAI() as server:
        yield server


@pytest_asyncio.fixture(loop_scope="session")
async def api(postgres_server: EmbeddedPostgres, tenant: str, openai: FakeOpenAI) -> AsyncIterator[LiveApi]:
    """Start a server that needs a key, with one document in the default collection."""
    provider = OpenAIProvider(SecretStr(openai.api_key), base_url=openai.base_url, retries=0)
    async with live_api(settings_for(postgres_server.app_url, [tenant]), provider) as running:
        async with running.client(tenant) as client:
            await add_documents(client, await new_collection(client), refunds="The head approves refunds.")
        yield running


def operation(page: Page, name: str) -> Locator:
    return page.locator(f'details.operation[id="{name}"]')


async def opened(page: Page, name: str) -> Locator:
    """Open an operation's form."""
    found = operation(page, name)
    await found.locator("> summary").click()
    return found


async def send(form: Locator, status: str) -> Locator:
    """Send the form and wait for the response; return its body."""
    await form.locator("button[type=submit]").click()
    await expect(form.locator(".outcome")).to_contain_text(status)
    return form.get_by_role("region", name="Body")


async def test_explorer_lists_every_operation_by_group(api: LiveApi, visit: Visit) -> None:  # issue 21
    page = await visit(f"{api.url}/docs")
    described = document()
    groups = [tag["x-displayName"] for tag in described["tags"]]
    await expect(page.locator("#list h2")).to_have_text(groups)
    await expect(page.get_by_role("navigation", name="Groups").locator("a")).to_have_text(groups)
    names = [f"{verb.upper()} {path}" for path, verbs in described["paths"].items() for verb in verbs]
    assert sorted(await page.locator("details.operation").evaluate_all("all => all.map(one => one.id)")) == (
        sorted(names)
    )
    await page.get_by_label("Filter", exact=True).fill("/v1/search")
    await expect(page.locator("details.operation:visible")).to_have_count(1)
    form = await opened(page, "POST /v1/search")
    await form.get_by_text("Fields of the body").click()
    await expect(form.locator(".fields").first).to_contain_text("top_k integer1 or more, default 10")
    await expect(form).to_contain_text("Needs a key with the scope read.")


async def test_explorer_describes_the_api_without_javascript(api: LiveApi, visit: Visit) -> None:  # issue 21
    page = await visit(f"{api.url}/docs", java_script_enabled=False)
    found = await opened(page, "GET /v1/documents/{document_id}/chunks")
    await expect(found).to_contain_text("document_id in path, required")
    await found.get_by_text("Responses", exact=True).click()
    await expect(found.locator(".fields .fields").first).to_contain_text("chunks array of object")


async def test_example_runs_with_the_entered_key_only(
    api: LiveApi, visit: Visit, tenant: str
) -> None:  # issue 21
    page = await visit(f"{api.url}/docs", failed_requests=True)
    form = await opened(page, "POST /v1/search")
    body = await send(form, "401 Unauthorized")
    await expect(body).to_contain_text('"code": "unauthenticated"')
    await page.get_by_label("API key", exact=True).fill(key_of(tenant))
    body = await send(form, "200 OK,")
    await expect(body).to_contain_text("The head approves refunds.")
    await form.get_by_text("Headers", exact=True).click()
    await expect(form.locator(".result")).to_contain_text("x-request-id: ")
    await form.get_by_text("As a command").click()
    await expect(form.locator(".result")).to_contain_text('-H "X-Api-Key: $VECTORFORGE_API_KEY"')
    assert key_of(tenant) not in await form.inner_text()
    await page.reload()
    await expect(page.get_by_label("API key", exact=True)).to_have_value(key_of(tenant))
    assert await page.evaluate("localStorage.length") == 0


@pytest.mark.slow
async def test_ids_of_a_response_fill_the_paths_of_other_operations(
    api: LiveApi, visit: Visit, tenant: str
) -> None:
    page = await visit(f"{api.url}/docs")
    await page.get_by_label("API key", exact=True).fill(key_of(tenant))
    await send(await opened(page, "GET /v1/collections/{collection_id}/documents"), "200 OK,")
    form = await opened(page, "GET /v1/documents/{document_id}/chunks")
    await expect(await send(form, "200 OK,")).to_contain_text("The head approves refunds.")
    form = await opened(page, "GET /v1/documents/{document_id}/original")
    await expect(await send(form, "200 OK,")).to_contain_text("The head approves refunds.")


async def test_streamed_answer_appears_while_it_is_written(
    api: LiveApi, visit: Visit, tenant: str, openai: FakeOpenAI
) -> None:  # issue 21
    gate = asyncio.Event()

    async def hold(number: int) -> None:
        if number == 1:
            await gate.wait()

    openai.script(Reply(texts=("The head", " does [Context 1]."), gate=hold))
    page = await visit(f"{api.url}/docs#POST%20/v1/rag/query")
    await page.get_by_label("API key", exact=True).fill(key_of(tenant))
    form = operation(page, "POST /v1/rag/query")
    await form.get_by_label("Example").select_option("The same, streamed")
    await form.locator("button[type=submit]").click()
    body = form.get_by_role("region", name="Body")
    await expect(body).to_contain_text("The head")
    assert "event: done" not in await body.inner_text()
    gate.set()
    await expect(body).to_contain_text("event: done")
    await expect(form.locator(".outcome")).to_contain_text("200 OK,")


@pytest.mark.slow
async def test_stop_ends_a_streamed_answer_and_its_model(
    api: LiveApi, visit: Visit, tenant: str, openai: FakeOpenAI
) -> None:
    openai.script(Reply(texts=("The head", " never"), gate=lambda n: asyncio.sleep(60 * n)))
    page = await visit(f"{api.url}/docs", failed_requests=True)
    await page.get_by_label("API key", exact=True).fill(key_of(tenant))
    form = await opened(page, "POST /v1/rag/query")
    await form.get_by_label("Example").select_option("The same, streamed")
    await form.locator("button[type=submit]").click()
    await expect(form.get_by_role("region", name="Body")).to_contain_text("The head")
    await form.get_by_role("button", name="Stop").click()
    await expect(form.locator(".outcome")).to_have_text("200 OK, stopped")
    async with asyncio.timeout(20):
        await openai.requests[-1].client_closed.wait()


@pytest.mark.parametrize("scheme", [pytest.param("light", marks=pytest.mark.slow), "dark"])
async def test_explorer_is_readable_and_fits_a_phone(api: LiveApi, visit: Visit, scheme: str) -> None:
    page = await visit(f"{api.url}/docs", color_scheme=scheme, **PHONE)
    for name in ("GET /v1/queries", "POST /v1/collections/{collection_id}/embedding-switch/switch"):
        form = await opened(page, name)
        await form.get_by_text("Responses", exact=True).click()
    assert await overflow(page) <= 0
    ground = await luminance(page, "body", "backgroundColor")
    assert (ground > 0.5) is (scheme == "light")
    for selector in (".what", ".method.delete", ".note", ".fields .type", "nav a"):
        assert contrast(await luminance(page, selector, "color"), ground) >= 4.5, selector


@pytest.mark.slow
async def test_explorer_works_with_the_keyboard(api: LiveApi, visit: Visit, tenant: str) -> None:
    page = await visit(f"{api.url}/docs")
    await page.get_by_label("API key", exact=True).focus()
    await page.keyboard.type(key_of(tenant))
    await page.keyboard.press("Tab")
    await page.keyboard.type("get /v1/collections")
    await page.keyboard.press("Tab")
    await page.keyboard.press("Enter")
    form = page.locator("details.operation[open]")
    await form.locator("button[type=submit]").press("Enter")
    await expect(form.locator(".outcome")).to_contain_text("200 OK,")
    await expect(page.locator("#status")).to_contain_text("200 OK,")


async def test_disabled_explorer_is_not_found(postgres_server: EmbeddedPostgres) -> None:  # issue 21
    server: dict[str, Any] = {"auth": "local", "api_explorer": False}
    async with (
        live_api(settings_for(postgres_server.app_url, server=server)) as running,
        httpx2.AsyncClient(base_url=running.url) as client,
    ):
        for method in ("GET", "HEAD"):
            response = await client.request(method, "/docs")
            assert response.status_code == 404
        assert (await client.get("/docs")).json()["code"] == "route_not_found"
        assert (await client.get("/source")).status_code == 200
