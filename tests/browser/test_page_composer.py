"""The web page's query box: earlier questions, a queued question, the effort, and suggestions."""

import asyncio

import pytest
from playwright.async_api import expect

from tests.browser.answer_script import Hold, Refuse, answer, source
from tests.browser.conftest import Visit
from tests.browser.page_actions import ask, ended
from tests.browser.stub_api import StubApi
from tests.browser.stub_conversations import exchange

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]


async def test_arrow_keys_recall_earlier_questions_and_keep_the_draft(stub: StubApi, visit: Visit) -> None:
    stored = stub.conversations.add("Earlier", exchange("Stored?", "Yes.", []))
    page = await visit(f"{stub.url}/?conversation={stored['id']}")
    await ask(page, "First\nof two lines?")
    await ended(page, turn=1)
    box = page.get_by_label("Your question")
    await box.fill("draft")
    for key, shown in (
        ("ArrowUp", "First\nof two lines?"),
        ("ArrowUp", "Stored?"),
        ("ArrowUp", "Stored?"),
        ("ArrowDown", "First\nof two lines?"),
        ("ArrowDown", "draft"),
        ("ArrowDown", "draft"),
    ):
        await page.keyboard.press(key)
        await expect(box).to_have_value(shown)
    await box.fill("one\ntwo")
    await page.keyboard.press("ArrowUp")  # to the first line
    await expect(box).to_have_value("one\ntwo")
    await page.keyboard.press("ArrowUp")
    await expect(box).to_have_value("First\nof two lines?")
    await page.keyboard.press("Enter")
    await ended(page, turn=2)
    assert stub.queries[-1]["query"] == "First\nof two lines?"


async def test_question_sent_while_an_answer_streams_is_queued_and_asked_next(
    stub: StubApi, visit: Visit
) -> None:
    gate = asyncio.Event()
    stub.scripts = [answer("One", Hold(gate)), answer("Two.")]
    page = await visit(stub.url)
    await ask(page, "First?")
    await expect(page.locator(".answer")).to_have_text("One")
    await page.get_by_label("Your question").fill("Second?")
    await page.get_by_role("button", name="Queue question").click()
    await expect(page.locator("#queue")).to_have_text("Next: Second?")
    await expect(page.get_by_role("status")).to_have_text("Question queued.")
    await expect(page.get_by_role("button", name="Stop the answer")).to_be_visible()
    await ask(page, "Third?")
    await expect(page.get_by_role("status")).to_have_text("A question is queued already.")
    await expect(page.get_by_label("Your question")).to_have_value("Third?")
    assert len(stub.queries) == 1
    gate.set()
    await ended(page, turn=1)
    await expect(page.locator(".answer")).to_have_text(["One", "Two."])
    await expect(page.locator("#queue")).to_be_hidden()
    assert [query["query"] for query in stub.queries] == ["First?", "Second?"]


async def test_queued_question_is_canceled_into_the_box(stub: StubApi, visit: Visit) -> None:
    gate = asyncio.Event()
    stub.scripts = [answer("One", Hold(gate))]
    page = await visit(stub.url)
    await ask(page, "First?")
    await ask(page, "Second?")
    await page.get_by_role("button", name="Cancel the queued question").click()
    await expect(page.get_by_label("Your question")).to_have_value("Second?")
    await expect(page.get_by_label("Your question")).to_be_focused()
    gate.set()
    await ended(page)
    await expect(page.locator(".turn")).to_have_count(1)


async def test_queued_question_is_returned_to_the_box_after_a_failure(stub: StubApi, visit: Visit) -> None:
    gate = asyncio.Event()
    stub.scripts = [answer("One", Hold(gate))[:4]]  # breaks off
    page = await visit(stub.url, failed_requests=True)
    await ask(page, "First?")
    await expect(page.locator(".answer")).to_have_text("One")
    await ask(page, "Second?")
    stub.refused_returns = [Refuse(404, "Gone.")]
    gate.set()
    await ended(page, "failed")
    await expect(page.get_by_label("Your question")).to_have_value("Second?")
    assert len(stub.queries) == 1


async def test_effort_is_sent_once_chosen_and_remembered(stub: StubApi, visit: Visit) -> None:
    page = await visit(stub.url)
    await ask(page)
    await ended(page)
    effort = page.get_by_label("Effort")
    assert await effort.locator("option").evaluate_all("(all) => all.map((one) => one.value)") == [
        "",
        "minimal",
        "low",
        "medium",
        "auto",
    ]
    await effort.select_option("medium")
    await page.reload()
    await expect(effort).to_have_value("medium")
    await ask(page)
    await ended(page, turn=1)
    assert [query.get("effort") for query in stub.queries] == [None, "medium"]


async def test_suggestions_are_made_from_headings_and_offered_only_if_found(
    stub: StubApi, visit: Visit
) -> None:
    headings = ("Travel > Meals", "Travel > Hotels", "Travel")
    stub.add_document("text", file="travel.md", title="Travel", headings=headings)
    stub.add_document("text", file="notes.md", title="Notes")
    stub.search.not_found.add("Hotels")
    page = await visit(stub.url)
    offered = [
        "What does “Travel” say about “Meals”?",
        "What is “Notes” about?",
        "What is “Travel” about?",
    ]
    await expect(page.locator(".try button")).to_have_text(offered)
    assert {search["collection"] for search in stub.search.searches} == {"c1"}
    stub.scripts = [answer("48 €.")]
    await page.get_by_role("button", name=offered[0]).click()
    await ended(page)
    assert stub.queries[0]["query"] == offered[0]


async def test_passages_that_should_be_cited_are_sent_with_a_bad_rating(stub: StubApi, visit: Visit) -> None:
    document = stub.add_document("Meals. Hotels.", file="a.md", title="Travel")
    sources = [source(1, document, 0, 6), source(2, document, 7, 14, location_text="p. 2")]
    stub.scripts = [answer("Meals [1].", sources=sources)]
    page = await visit(stub.url)
    await ask(page)
    await ended(page)
    await page.get_by_role("button", name="Bad answer").click()
    await page.get_by_label("[2] Travel, p. 2").check()
    await page.get_by_role("button", name="Send", exact=True).click()
    await expect(page.get_by_label("Comment")).to_have_count(0)
    assert stub.ratings[-1][1] == {
        "rating": "down",
        "reasons": [],
        "comment": "",
        "should_cite": [sources[1]["chunk_id"]],
    }


async def test_same_problem_is_said_once(stub: StubApi, visit: Visit) -> None:
    stub.scripts = [[Refuse(503, "The database cannot be reached.")] for _ in range(2)]
    page = await visit(stub.url, failed_requests=True)
    for turn in range(2):
        await ask(page, f"{turn}?")
        await ended(page, "failed", turn=turn)
    await expect(page.get_by_text("The database cannot be reached.")).to_have_count(1)
    await expect(page.locator(".problem").last).to_contain_text("No answer, for the same reason.")


async def test_key_is_signed_in_and_out(stub: StubApi, visit: Visit) -> None:
    stub.api_key = "correct-horse"
    page = await visit(stub.url, failed_requests=True)
    await expect(page.get_by_role("button", name="Sign out")).to_have_count(0)
    await page.get_by_role("textbox", name="API key").fill("correct-horse")
    await page.keyboard.press("Enter")
    await page.get_by_role("button", name="Sign out").click()
    await expect(page.get_by_role("dialog")).to_be_visible()
    assert await page.evaluate("sessionStorage.length") == 0
    await page.keyboard.press("Escape")
    await ask(page)
    await expect(page.get_by_role("dialog")).to_be_visible()
    await page.keyboard.press("Escape")
    await ended(page, "failed")
    await expect(page.locator(".problem p")).to_have_text("No answer, for the same reason.")
    await page.locator(".problem").get_by_role("button", name="Enter the key").click()
    await page.get_by_role("textbox", name="API key").fill("correct-horse")
    await page.keyboard.press("Enter")
    await ended(page)


async def test_collection_is_renamed_and_deleted_after_confirmation(stub: StubApi, visit: Visit) -> None:
    stub.add_collection("travel")
    stub.add_document("text", file="a.md")
    page = await visit(stub.url, failed_requests=True)
    await page.locator("#toggle-documents").click()
    await page.get_by_role("button", name="Rename collection").click()
    await page.get_by_role("textbox", name="Name").fill("travel")
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("dialog")).to_contain_text("A collection named 'travel' already exists.")
    await page.get_by_role("textbox", name="Name").fill("policies")
    await page.keyboard.press("Enter")
    picker = page.get_by_label("Collection", exact=True)
    await expect(picker.locator("option")).to_have_text(["policies", "travel"])
    await expect(picker).to_have_value("c1")
    await page.get_by_role("button", name="Delete collection").click()
    dialog = page.get_by_role("alertdialog")
    await expect(dialog).to_contain_text("Delete “policies”?")
    await expect(dialog).to_contain_text("1 document with 0 passages will be erased")
    await page.get_by_role("button", name="Delete", exact=True).click()
    await expect(picker.locator("option")).to_have_text(["travel"])
    await expect(picker).to_have_value("c2")
    assert [c["name"] for c in stub.collections] == ["travel"]
