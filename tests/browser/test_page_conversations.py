"""Stored conversations on the web page: their addresses, reloads, list, names and deletion."""

import asyncio

import pytest
from playwright.async_api import Page, expect

from tests.browser.answer_script import Hold, Refuse, answer, source
from tests.browser.conftest import Visit
from tests.browser.page_actions import ask, ended
from tests.browser.stub_api import StubApi
from tests.browser.stub_conversations import exchange

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]


async def open_list(page: Page) -> None:
    await page.get_by_role("button", name="Conversations", exact=True).click()
    await expect(page.locator("#panel-title")).to_have_text("Conversations")


async def test_conversation_survives_a_reload_with_its_citations(stub: StubApi, visit: Visit) -> None:
    document = stub.add_document("Meals: 48 €. Hotels: 160 €.", file="travel.md", title="Travel")
    cited = [source(1, document, 0, 12), source(2, document, 13, 27)]
    stub.scripts = [answer("Meals [Context 1].", sources=cited), answer("Hotels [2].", sources=cited)]
    page = await visit(stub.url)
    await ask(page, "Meals?")
    await ended(page)
    await ask(page, "Hotels?")
    await ended(page, turn=1)
    (stored,) = stub.conversations.stored
    assert page.url == f"{stub.url}/?conversation={stored['id']}"
    assert [query["conversation_id"] for query in stub.queries] == [stored["id"]] * 2
    assert not any("messages" in query for query in stub.queries)

    await page.reload()
    await expect(page.locator(".turn h2")).to_have_text(["Meals?", "Hotels?"])
    await expect(page.locator(".answer")).to_have_text(["Meals 1.", "Hotels 2."])
    await expect(page.locator(".foot").first).to_contain_text("fake-1")
    await page.locator(".cite").nth(1).click()
    await expect(page.locator("#passage")).to_have_text("Hotels: 160 €.")
    await page.get_by_role("button", name="Good answer").last.click()
    await expect(page.locator(".rated").last).to_have_text("Thank you.")
    assert stub.ratings[-1][0] == stored["messages"][-1]["query_id"]
    stub.scripts = [answer("Continued.")]
    await ask(page, "And?")
    await ended(page, turn=2)
    assert stub.queries[2]["conversation_id"] == stored["id"]


async def test_extractive_answers_are_still_labeled_after_a_reload(stub: StubApi, visit: Visit) -> None:
    document = stub.add_document("A quote.", file="a.md")
    stub.scripts = [answer("“A quote.” [Context 1]", sources=[source(1, document, 0, 8)], extractive=True)]
    page = await visit(stub.url)
    await ask(page)
    await ended(page)
    await page.reload()
    await expect(page.locator(".badge:visible")).to_have_text(
        "Quoted from your documents, no model wrote this"
    )


async def test_back_and_new_conversation_change_address_and_turns(stub: StubApi, visit: Visit) -> None:
    page = await visit(stub.url)
    await ask(page, "First?")
    await ended(page)
    first = page.url
    await page.get_by_role("button", name="New conversation").click()
    await expect(page.locator(".turn")).to_have_count(0)
    assert page.url == f"{stub.url}/"
    await ask(page, "Second?")
    await ended(page)
    assert page.url != first
    await page.go_back()
    await expect(page.locator(".turn h2")).to_have_text("First?")
    assert page.url == first
    await page.go_forward()
    await expect(page.locator(".turn h2")).to_have_text("Second?")
    assert [query["conversation_id"] for query in stub.queries] == [
        one["id"] for one in reversed(stub.conversations.stored)
    ]


async def test_conversations_are_opened_renamed_and_deleted_from_their_list(
    stub: StubApi, visit: Visit
) -> None:
    sources = [source(1, stub.add_document("A passage.", file="a.md", title="Notes"), 0, 10)]
    kept = stub.conversations.add("Receipts", exchange("How long?", "A year [1].", sources))
    stub.conversations.add("Old one", exchange("Old?", "Yes.", []))
    stub.conversations.add()  # it has no messages
    page = await visit(stub.url)
    await open_list(page)
    await expect(page.locator("#conversations-list .title")).to_have_text(["Old one", "Receipts"])
    await page.get_by_role("button", name="Receipts", exact=True).click()
    await expect(page.locator(".turn h2")).to_have_text("How long?")
    await expect(page.locator('#conversations-list [aria-current="true"]')).to_have_text("Receipts")

    await page.get_by_role("button", name="Rename Receipts").click()
    await expect(page.get_by_role("textbox", name="Name")).to_have_value("Receipts")
    await page.get_by_role("textbox", name="Name").fill("Receipts of 2026")
    await page.keyboard.press("Enter")
    await expect(page.locator("#conversations-list .title").last).to_have_text("Receipts of 2026")
    assert kept["title"] == "Receipts of 2026"

    await page.get_by_role("button", name="Delete Old one").click()
    await expect(page.get_by_role("alertdialog")).to_contain_text("Its questions and answers will be erased.")
    await page.get_by_role("button", name="Keep it").click()
    assert len(stub.conversations.stored) == 3
    await page.get_by_role("button", name="Delete Old one").click()
    await page.get_by_role("button", name="Delete", exact=True).click()
    await expect(page.locator("#conversations-list .title")).to_have_text(["Receipts of 2026"])
    await expect(page.locator(".turn")).to_have_count(1)

    await page.get_by_role("button", name="Delete Receipts of 2026").click()
    await page.get_by_role("button", name="Delete", exact=True).click()
    await expect(page.locator(".turn")).to_have_count(0)
    await expect(page.locator("#panel-body")).to_contain_text("No conversations yet.")
    assert page.url == f"{stub.url}/"


async def test_list_of_conversations_is_paginated(stub: StubApi, visit: Visit) -> None:
    for number in range(60):
        stub.conversations.add(f"Number {number}", exchange("?", "!", []))
    page = await visit(stub.url)
    await open_list(page)
    await expect(page.locator("#conversations-list li")).to_have_count(50)
    await page.get_by_role("button", name="Show more").click()
    await expect(page.locator("#conversations-list li")).to_have_count(60)
    await expect(page.get_by_role("button", name="Show more")).to_have_count(0)


async def test_deleted_conversation_is_reported_and_the_next_question_begins_another(
    stub: StubApi, visit: Visit
) -> None:
    gone = "00000000-0000-4000-8000-000000000000"
    page = await visit(f"{stub.url}/?conversation={gone}", failed_requests=True)
    await expect(page.get_by_role("alert")).to_contain_text("This conversation does not exist any more.")
    await page.get_by_role("button", name="Dismiss").click()
    await ask(page)
    await ended(page)
    (stored,) = stub.conversations.stored
    stub.conversations.stored.clear()
    stub.scripts = [[Refuse(404, f"Conversation {stored['id']} not found")], answer("Anew.")]
    await ask(page, "And?")
    await ended(page, "failed", turn=1)
    await page.get_by_role("button", name="Retry").click()
    await ended(page, turn=1)
    assert stub.queries[-1]["conversation_id"] == stub.conversations.stored[0]["id"] != stored["id"]


async def test_turn_of_another_collection_names_it(stub: StubApi, visit: Visit) -> None:
    stub.add_collection("travel")
    messages = [
        *exchange("Here?", "Yes.", [], collection="c1"),
        *exchange("There?", "Yes.", [], collection="c2"),
        *exchange("Gone?", "Yes.", None, collection="c9"),
    ]
    stored = stub.conversations.add("Mixed", messages)
    page = await visit(f"{stub.url}/?conversation={stored['id']}")
    await expect(page.get_by_label("Collection", exact=True)).to_have_value("c1")
    places = ["Asked in “travel”", "Asked in a collection that is not listed any more"]
    await expect(page.locator(".where:visible")).to_have_text(places)
    await expect(page.locator(".turn").last).to_contain_text("The sources of this answer are not stored")
    await expect(page.locator(".note")).to_have_count(1)


async def test_shown_part_of_a_long_conversation_is_labeled(stub: StubApi, visit: Visit) -> None:
    stored = stub.conversations.add("Long", exchange("One?", "1", []) + exchange("Two?", "2", []))
    stub.conversations.shown_messages = 2
    page = await visit(f"{stub.url}/?conversation={stored['id']}")
    await expect(page.locator(".turn h2")).to_have_text("Two?")
    await expect(page.locator("#turns")).to_contain_text("Earlier messages are not shown.")


async def test_opening_another_conversation_stops_the_running_answer(stub: StubApi, visit: Visit) -> None:
    stub.conversations.add("Other", exchange("Other?", "Yes.", []))
    stub.scripts = [answer("Half", Hold(asyncio.Event()))]
    page = await visit(stub.url)
    await ask(page)
    await expect(page.locator(".answer")).to_have_text("Half")
    await open_list(page)
    await page.get_by_role("button", name="Other", exact=True).click()
    await expect(page.locator(".turn h2")).to_have_text("Other?")
    await expect(page.get_by_role("button", name="Send question")).to_be_visible()
    assert stub.stops == list(stub.streams)
