"""The web page with the real server over a failing connection: resumed, stopped, logged."""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

import httpx2
import pytest
import pytest_asyncio
from playwright.async_api import expect

from tests.browser.conftest import Visit
from tests.browser.page_actions import ask, ended
from tests.support.http.cuttable_relay import CuttableRelay, cuttable
from tests.support.http.live_api import add_documents, live_api, new_collection, settings_for
from tests.support.vendors.scripted_llm import ScriptedLLM
from vectorforge.local.postgres import EmbeddedPostgres

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

PIECES = ("Let the dough rise ", "for two hours [Source 1]. ", "Bake it at ", "230 degrees 👩‍🍳 [Source 1].")
SHOWN = "Let the dough rise for two hours 1. Bake it at 230 degrees 👩‍🍳 1."


@dataclass
class Bakery:
    """A server behind a relay, whose model streams under the test's control."""

    relay: CuttableRelay
    client: httpx2.AsyncClient
    gate: asyncio.Semaphore

    async def logged(self) -> dict[str, Any]:
        """Return the record of the only query, once it has ended."""
        async with asyncio.timeout(10):  # without a reader it continues for 30 s
            for _ in range(200):
                if rows := (await self.client.get("/v1/queries")).json()["queries"]:
                    row: dict[str, Any] = rows[0]
                    if row["outcome"] != "started":
                        return row
                await asyncio.sleep(0.05)
        raise AssertionError("The query went on.")


@pytest_asyncio.fixture(loop_scope="session")
async def bakery(postgres_server: EmbeddedPostgres, make_tenant: Callable[[], str]) -> AsyncIterator[Bakery]:
    gate = asyncio.Semaphore(0)
    server = {"auth": "local", "local_tenant": make_tenant()}
    llm = ScriptedLLM(PIECES, gate=gate)
    async with (
        live_api(settings_for(postgres_server.app_url, server=server), llm) as api,
        api.client(None) as client,
        cuttable(api.url) as relay,
    ):
        bread = "# Bread\n\nLet the dough rise for two hours before baking it at 230 degrees.\n"
        await add_documents(
            client, await new_collection(client), bread=bread, bike="# Bike\n\nOil the chain.\n"
        )
        yield Bakery(relay, client, gate)


async def test_interrupted_answer_is_resumed_to_its_whole_text(bakery: Bakery, visit: Visit) -> None:
    page = await visit(bakery.relay.url, failed_requests=True)
    await ask(page, "How long must the dough rise?")
    await expect(page.locator(".answer")).to_have_text("Let the dough rise")
    bakery.relay.cut()
    for _ in PIECES:
        bakery.gate.release()
    await ended(page)
    await expect(page.locator(".answer")).to_have_text(SHOWN)
    verdicts = await page.locator(".cite").evaluate_all("(nodes) => nodes.map((n) => n.dataset.verdict)")
    assert verdicts == ["supported", "supported"]
    row = await bakery.logged()
    assert (row["outcome"], row["generated_response"]) == ("answered", "".join(PIECES))
    await page.get_by_text("How this answer came about").click()
    steps = page.get_by_role("list", name="Passages").get_by_role("listitem")
    await expect(steps).to_have_text(
        ["Matched2", "Nearest2", "Scored too low0", "Did not fit0", "Read2", "Cited1"]
    )
    await expect(page.get_by_role("list", name="Time")).to_contain_text("Total")
    await expect(page.locator(".cost b")).to_have_text("price unknown")


async def test_stop_aborts_model_call_and_logs_partial_answer(bakery: Bakery, visit: Visit) -> None:
    page = await visit(bakery.relay.url)
    await ask(page, "How long must the dough rise?")
    await expect(page.locator(".answer")).to_have_text("Let the dough rise")
    await page.get_by_role("button", name="Stop the answer").click()
    await ended(page, "stopped")
    await expect(page.locator(".turn")).to_contain_text("Stopped. This is not the whole answer.")
    row = await bakery.logged()
    assert (row["outcome"], row["generated_response"]) == ("aborted", PIECES[0])


async def test_page_unload_aborts_the_answer(bakery: Bakery, visit: Visit) -> None:
    page = await visit(bakery.relay.url)
    await ask(page, "How long must the dough rise?")
    await expect(page.locator(".answer")).to_have_text("Let the dough rise")
    await page.goto("about:blank")
    assert (await bakery.logged())["outcome"] == "aborted"
