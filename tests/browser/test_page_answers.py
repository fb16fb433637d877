"""The web page while an answer arrives: streaming, citations, formatting, stopping, continuing."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from playwright.async_api import Page, expect

from tests.browser.answer_script import Hold, Send, answer, citation, source
from tests.browser.conftest import Visit
from tests.browser.page_actions import ask, ended
from tests.browser.stub_api import StubApi

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]


async def shown(page: Page, stub: StubApi, text: str, sources: list[dict[str, Any]] | None = None) -> str:
    """Return the page's markup for an answer, without the attributes."""
    stub.scripts.append(answer(text, sources=sources or []))
    await ask(page)
    await ended(page, turn=await page.locator(".turn").count() - 1)
    markup: str = await page.locator(".answer").last.evaluate(
        "(node) => { const bare = (n) => n.nodeType === 3 ? n.data"
        " : `<${n.localName}>${[...n.childNodes].map(bare).join('')}</${n.localName}>`;"
        " return [...node.childNodes].map(bare).join(''); }"
    )
    return markup


async def test_streamed_text_is_shown_before_the_answer_ends(stub: StubApi, visit: Visit) -> None:
    gate = asyncio.Event()
    stub.scripts = [answer("The first half", Hold(gate), " and the second.")]
    page = await visit(stub.url)
    await ask(page)
    live = page.locator(".answer")
    await expect(live).to_have_text("The first half")
    await expect(live).to_have_attribute("aria-live", "polite")
    await expect(live).to_have_attribute("aria-busy", "true")
    await expect(page.get_by_role("button", name="Stop the answer")).to_be_visible()
    gate.set()
    await expect(live).to_have_text("The first half and the second.")
    await expect(live).to_have_attribute("aria-busy", "false")
    await expect(page.get_by_role("status")).to_have_text("Answer complete.")
    foot = page.locator(".foot")
    await expect(foot).to_contain_text(
        "Searched in 12 ms · answered in 913 ms · 812 tokens read, 96 written · fake-1 · $0.0012"
    )


@pytest.mark.parametrize("how", ["Escape", "button"])
async def test_stop_aborts_query_on_server_and_retains_text(stub: StubApi, visit: Visit, how: str) -> None:
    stub.scripts = [answer("As far as it got", Hold(asyncio.Event())), answer("Whole.")]
    page = await visit(stub.url)
    await ask(page)
    await expect(page.locator(".answer")).to_have_text("As far as it got")
    if how == "Escape":
        await page.keyboard.press("Escape")
    else:
        await page.get_by_role("button", name="Stop the answer").click()
    await ended(page, "stopped")
    assert stub.stops == list(stub.streams)
    await expect(page.locator(".turn")).to_contain_text("Stopped. This is not the whole answer.")
    await expect(page.locator(".answer")).to_have_text("As far as it got")
    await page.get_by_role("button", name="Ask again").click()
    await expect(page.locator(".answer")).to_have_text("Whole.")


async def test_citation_click_highlights_its_passage_after_emoji(stub: StubApi, visit: Visit) -> None:
    meal = "Meals: 48 € 🍝 a day."
    text = f"{meal} " + "👩‍💻🧳 " * 500 + f"{meal} " + "More text. " * 500 + "Hotels: 160 €."
    document = stub.add_document(text, file="travel.txt", title="Travel")
    meals, hotels = text.rindex("Meals"), text.index("Hotels")
    sources = [source(1, document, meals, meals + len(meal)), source(2, document, hotels, len(text))]
    stub.scripts = [answer("See [Context 2], then [Source 1] and [Context 1, Context 2].", sources=sources)]
    page = await visit(stub.url)
    await ask(page)
    cites = page.locator(".cite")
    await expect(cites).to_have_text(["2", "1", "1", "2"])
    await cites.nth(1).click()
    await expect(page.locator("#passage")).to_have_text(meal)
    before = await page.locator("#passage").evaluate("(node) => node.previousSibling.data")
    assert before == text[:meals]  # the second of two equal chunks
    await expect(page.locator("#passage")).to_be_in_viewport(ratio=1)
    await expect(page.locator('.answer [aria-current="true"]')).to_have_text(["1", "1"])
    assert await page.locator("#document-text").text_content() == text
    await page.get_by_role("button", name="Next source").click()
    await expect(page.locator("#passage")).to_have_text("Hotels: 160 €.")
    await expect(page.locator("#passage")).to_be_in_viewport(ratio=1)


async def test_quoted_words_are_highlighted_in_their_passage(stub: StubApi, visit: Visit) -> None:
    text = "Meals (48 € a day)\nare paid. Receipts are kept for a year. Hotels are not."
    cited = [source(1, stub.add_document(text, file="a.txt"), 0, len(text))]
    stub.scripts = [
        answer("“Meals (48 € a day) are paid.” [1] Hotels are not. [1] In our words [1].", sources=cited)
    ]
    page = await visit(stub.url)
    await ask(page)
    for number, quote in enumerate((["Meals (48 € a day)\nare paid."], ["Hotels are not."], [])):
        await page.locator(".cite").nth(number).click()
        await expect(page.locator("#passage .quote")).to_have_text(quote)
        assert await page.locator("#passage").text_content() == text


async def test_source_has_the_heading_of_its_cited_sentence(stub: StubApi, visit: Visit) -> None:
    text = "Meals are paid.\n\n## Hotels\n\nHotels cost 160 €."
    cited = source(
        1, stub.add_document(text, file="a.md", title="Travel"), 0, len(text), heading="Travel > Meals"
    )
    at = text.index("Hotels cost")
    place = {"start_offset": at, "end_offset": len(text), "locations": [{"heading": "Travel > Hotels"}]}
    sentence = "Hotels cost 160 €. [1]"
    found = citation(sentence, "[1]", 1, "supported")
    stub.scripts = [answer(sentence, replace(found, data=found.data | place), sources=[cited])]
    page = await visit(stub.url)
    await ask(page)
    await expect(page.locator(".sources em")).to_have_text("Hotels · a.md")
    await page.locator(".cite").click()
    await expect(page.locator("#panel .meta")).to_have_text("a.md · Hotels")


async def test_huge_document_opens_around_its_passage(stub: StubApi, visit: Visit) -> None:
    text = "".join(f"Line {n} of a very long document.\n" for n in range(30_000))
    document = stub.add_document(text, file="huge.txt")
    start = text.index("Line 20000 ")
    stub.scripts = [answer("[1]", sources=[source(1, document, start, start + 10)])]
    page = await visit(stub.url)
    await ask(page)
    await page.locator(".cite").click()
    await expect(page.locator("#passage")).to_have_text("Line 20000")
    assert len(await page.locator("#document-text").text_content() or "") < 300_000
    await page.get_by_role("button", name="Show the whole document").first.click()
    await expect(page.locator("#passage")).to_be_in_viewport()
    assert await page.locator("#document-text").text_content() == text


async def test_changed_or_deleted_document_still_shows_the_passage(stub: StubApi, visit: Visit) -> None:
    moved = stub.add_document("The limit is 48.", file="moved.md")
    changed = stub.add_document("The limit is 48.", file="changed.md")
    deleted = stub.add_document("The limit is 48.", file="deleted.md")
    sources = [source(n + 1, d, 0, 16) for n, d in enumerate((moved, changed, deleted))]
    stub.scripts = [answer("[1] [2] [3]", sources=sources)]
    page = await visit(stub.url, failed_requests=True)
    await ask(page)
    await ended(page)
    moved["text"] = "A new first line.\nThe limit is 48."
    changed["text"] = "All limits were lifted."
    stub.documents.remove(deleted)
    for number, note in enumerate(("A new first line.", "has changed since", "has been deleted since")):
        await page.locator(".cite").nth(number).click()
        await expect(page.locator("#panel-body")).to_contain_text(note)
        await expect(page.locator("#passage")).to_have_text("The limit is 48.")


async def test_labels_without_source_are_shown_as_text(stub: StubApi, visit: Visit) -> None:
    document = stub.add_document("passage", file="a.md")
    one = [source(1, document, 0, 7)]
    page = await visit(stub.url)
    assert await shown(page, stub, "a [1] b [2] `x[1]` [1, 2]", one) == (
        "<p>a <button>1</button> b [2] <code>x[1]</code> [1, 2]</p>"
    )
    assert await shown(page, stub, "a [Context 7] b [Source 1]", one) == (
        "<p>a [Context 7] b <button>1</button></p>"
    )
    # where long labels are used, a bare number is the document's own
    assert await shown(page, stub, "list[1] is quoted [Context 1]", one) == (
        "<p>list[1] is quoted <button>1</button></p>"
    )


async def test_quoted_rows_are_shown_on_lines_of_their_own(stub: StubApi, visit: Visit) -> None:
    page = await visit(stub.url)
    text = "Keys:\nname: list [Context 1]\nname: rotate\nuntil noon [Context 1]"
    assert await shown(page, stub, text, [{"source_number": 1, "label": "[Context 1]"}]) == (
        "<p>Keys:<br></br>name: list <button>1</button><br></br>"
        "name: rotate until noon <button>1</button></p>"
    )


async def test_markdown_subset_is_rendered(stub: StubApi, visit: Visit) -> None:
    page = await visit(stub.url)
    text = (
        "# Title\nOne **bold** and *slanted* `co*d*e`\nSecond line, 2 * 3 * 4 and\nsnake_case\n\n"
        "- a\n- b\n  - b1\n- c\n\n3. three\n4. four\n\n> quoted\n\n```py\nif a < b:\n    **no**\n```\n"
        "| k | v |\n|---|---|\n| 1 | **2** |\n\nunclosed **bold\n\n"
        "    make run\n\n    - a: **no**\n      b: 1\n\nthen\n    wrapped\n\n```\nopen fence"
    )
    assert await shown(page, stub, text) == (
        "<h3>Title</h3><p>One <strong>bold</strong> and <i>slanted</i> <code>co*d*e</code><br></br>"
        "Second line, 2 * 3 * 4 and snake_case</p>"
        "<ul><li>a</li><li>b<ul><li>b1</li></ul></li><li>c</li></ul><ol><li>three</li><li>four</li></ol>"
        "<blockquote><p>quoted</p></blockquote><pre><code>if a < b:\n    **no**</code></pre>"
        "<div><table><tr><th>k</th><th>v</th></tr><tr><td>1</td><td><strong>2</strong></td></tr></table></div>"
        "<p>unclosed **bold</p><pre><code>make run\n\n- a: **no**\n  b: 1</code></pre>"
        "<p>then wrapped</p><pre><code>open fence</code></pre>"
    )


async def test_conversation_sends_history_and_new_conversation_drops_it(stub: StubApi, visit: Visit) -> None:
    stub.scripts = [answer(f"Answer {n}.") for n in range(6)] + [
        [Send("token", {"text": "Half"})],
        answer("Seventh."),
        answer("New."),
    ]
    stub.conversations.is_full = True  # so the page sends the earlier messages itself
    page = await visit(stub.url, failed_requests=True)
    for number in range(8):
        await ask(page, f"Question {number}?")
        await ended(page, "failed" if number == 6 else "answered", turn=number)
    await expect(page.get_by_role("alert").first).to_contain_text(
        "This conversation is not stored. The limit of 3 conversations is reached; delete one first."
    )
    assert "messages" not in stub.queries[0]
    assert stub.queries[1]["messages"] == [
        {"role": "user", "content": "Question 0?"},
        {"role": "assistant", "content": "Answer 0."},
    ]
    sent = stub.queries[7]["messages"]  # the last five answered ones, without the failed one
    assert [m["content"] for m in sent[::2]] == [f"Question {n}?" for n in (1, 2, 3, 4, 5)]
    assert stub.queries[7]["collection"] == "c1"
    await page.get_by_role("button", name="New conversation").click()
    await expect(page.locator(".turn")).to_have_count(0)
    await expect(page.get_by_label("Your question")).to_be_focused()
    await ask(page, "Anew?")
    await ended(page)
    assert "messages" not in stub.queries[8]


async def test_extractive_answer_shows_quote_badge(stub: StubApi, visit: Visit) -> None:
    cited = [source(1, stub.add_document("A quote.", file="a.md"), 0, 8)]
    stub.scripts = [
        answer("“A quote.” [Context 1]", sources=cited, extractive=True),
        answer("I don't have enough information.", sources=cited, extractive=True),
        answer("Words of a model [Context 1].", sources=cited),
    ]
    page = await visit(stub.url)
    badges = ("Quoted from your documents, no model wrote this", "No model wrote this")
    for turn in range(3):
        await ask(page)
        await ended(page, turn=turn)
        await expect(page.locator(".badge:visible")).to_have_text(badges[: turn + 1])


async def test_sources_show_their_relevance_or_similarity_score(stub: StubApi, visit: Visit) -> None:
    document = stub.add_document("A quote.", file="a.md")
    ranked = [source(n, document, 0, 8, score=0.1, relevance=r) for n, r in ((1, 0.93), (2, None))]
    stub.scripts = [answer("Both [Context 1] [Context 2].", sources=ranked)]
    page = await visit(stub.url)
    await ask(page)
    await ended(page)
    rows = page.locator(".score")
    await expect(rows).to_have_text(["relevance 0.93", "similarity 0.10"])
    await expect(rows.first).to_have_attribute("title", "Relevance to the question")


async def test_truncated_answer_shows_the_reason(stub: StubApi, visit: Visit) -> None:
    stub.scripts = [answer("Long", finish_reason="length"), answer("Late", finish_reason="deadline")]
    page = await visit(stub.url)
    for turn, reason in enumerate(("reached its length limit", "Time ran out")):
        await ask(page)
        await expect(page.locator(".turn").nth(turn)).to_contain_text(reason)


async def test_scroll_position_is_stable_while_a_long_answer_grows(stub: StubApi, visit: Visit) -> None:
    gate = asyncio.Event()
    long = "A paragraph of a long answer.\n\n" * 60
    stub.scripts = [answer("Short."), answer(long, Hold(gate), long, "The end.")]
    page = await visit(stub.url)
    await ask(page)
    await ended(page)
    await ask(page, "A second question?")
    await expect(page.get_by_role("button", name="Latest")).to_be_visible()
    heading = page.get_by_role("heading", name="A second question?")
    await expect(heading).to_be_in_viewport()
    await page.get_by_role("button", name="Latest").click()
    gate.set()
    await ended(page, turn=1)
    await expect(page.get_by_text("The end.")).to_be_in_viewport()
