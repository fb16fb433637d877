"""The web page: documents, reading on every screen, keyboard, keys and hostile text."""

import re
from pathlib import Path

import pytest
from playwright.async_api import Page, expect

from tests.browser.answer_script import answer, source
from tests.browser.conftest import Visit
from tests.browser.page_actions import ask, ended, file
from tests.browser.stub_api import StubApi
from vectorforge.api.native.pages import page_response

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]
HOSTILE = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>"


async def drop_file(page: Page, name: str) -> None:
    transfer = await page.evaluate_handle(
        "(name) => { const t = new DataTransfer(); t.items.add(new File(['dropped'], name)); return t; }",
        name,
    )
    await page.dispatch_event("body", "dragenter", {"dataTransfer": transfer})
    await expect(page.locator("#over")).to_contain_text("Add to")
    await page.dispatch_event("body", "drop", {"dataTransfer": transfer})


async def test_empty_page_shows_upload_prompt_and_disables_send(stub: StubApi, visit: Visit) -> None:
    page = await visit(stub.url)
    await expect(page.get_by_role("heading", level=1)).to_have_text("Ask your own documents")
    await expect(page.get_by_role("button", name="Drop documents here")).to_be_visible()
    await expect(page.get_by_role("button", name="Send question")).to_be_disabled()


async def test_suggestion_click_sends_query_about_document(stub: StubApi, visit: Visit) -> None:
    stub.add_document("text", file="travel.md", title="Travel policy")
    stub.scripts = [answer("Whole.")]
    page = await visit(stub.url)
    await page.get_by_role("button", name="What is “Travel policy” about?").click()
    await ended(page)
    await expect(page.locator(".turn h2")).to_have_text("What is “Travel policy” about?")
    assert [query["query"] for query in stub.queries] == ["What is “Travel policy” about?"]
    await expect(page.get_by_label("Your question")).to_have_value("")


async def test_sample_suggestions_appear_once_their_pages_are_ingested(stub: StubApi, visit: Visit) -> None:
    file = "vectorforge/docs/use/questions.md"
    stub.add_document("text", file=file, title="Common questions", sample=True)
    page = await visit(stub.url)
    questions = ["Which formats can I ingest?", "Is my data sent anywhere?", "What does it cost on AWS?"]
    await expect(page.locator(".try button")).to_have_text(questions)
    stub.add_document("text", file="notes.md", title="Notes")
    await page.reload()
    await expect(page.get_by_role("button", name="What is “Notes” about?")).to_be_visible()
    await expect(page.get_by_role("button", name=questions[0])).to_have_count(0)


async def test_note_on_languages_is_shown_once_above_the_documents(stub: StubApi, visit: Visit) -> None:
    stub.add_document("text", file="reise.md", title="Reise")
    stub.add_document("text", file="urlaub.md", title="Urlaub")
    stub.language_note = '"handbook" has documents in de, found by words.'
    page = await visit(stub.url)
    await page.locator("#toggle-documents").click()
    await expect(page.get_by_text(stub.language_note)).to_have_count(1)
    stub.language_note = None
    await page.reload()
    await page.locator("#toggle-documents").click()
    await expect(page.locator("#documents-list li")).to_have_count(2)
    await expect(page.locator("#language-note")).to_have_count(0)


async def test_new_documents_appear_without_reload(stub: StubApi, visit: Visit) -> None:
    page = await visit(stub.url)
    await page.clock.install()
    await page.reload()
    await expect(page.get_by_role("button", name="Drop documents here")).to_be_visible()
    stub.add_document("text", file="travel.md", title="Travel policy")
    await page.clock.fast_forward(3_000)
    await expect(page.get_by_role("button", name="What is “Travel policy” about?")).to_be_visible()


async def test_profile_collections_are_not_listed(stub: StubApi, visit: Visit) -> None:
    stub.add_collection("profiles")["by_profile"] = True
    stub.add_document("text", file="cv.md", collection="c2")
    page = await visit(stub.url)
    await expect(page.locator("#collection option")).to_have_text(["handbook"])
    await expect(page.locator("#collection")).to_have_value("c1")


async def test_new_browser_opens_default_collection_before_others(stub: StubApi, visit: Visit) -> None:
    stub.add_collection("default")
    stub.add_document("text", file="handbook.md")
    stub.add_document("text", file="guide.md", collection="c2")
    page = await visit(stub.url)
    await expect(page.locator("#collection")).to_have_value("c2")


async def test_collection_switch_continues_and_turns_name_the_other_collection(
    stub: StubApi, visit: Visit
) -> None:
    stub.add_collection("travel")
    stub.scripts = [answer("One."), answer("Two.")]
    page = await visit(stub.url)
    await ask(page)
    await ended(page)
    await page.get_by_label("Collection", exact=True).select_option("travel")
    await expect(page.locator(".where")).to_have_text("Asked in “handbook”")
    await ask(page, "Another?")
    await ended(page, turn=1)
    await expect(page.locator(".where:visible")).to_have_text(["Asked in “handbook”"])
    assert [query["collection"] for query in stub.queries] == ["c1", "c2"]
    assert stub.queries[0]["conversation_id"] == stub.queries[1]["conversation_id"]
    await page.get_by_label("Collection", exact=True).select_option("handbook")
    await expect(page.locator(".where:visible")).to_have_text(["Asked in “travel”"])


async def test_upload_is_polled_until_each_file_completes_or_fails(stub: StubApi, visit: Visit) -> None:
    stub.ingestion_gate.clear()
    stub.ingestion_errors["scan.pdf"] = "The document contains no text."
    page = await visit(stub.url)
    await page.set_input_files("#files", [file("a.md"), file("scan.pdf")])
    rows = page.locator("#uploads li")
    await expect(rows.nth(0)).to_contain_text("Embedding")
    await expect(page.get_by_role("progressbar", name="a.md")).to_be_visible()
    stub.ingestion_gate.set()
    await expect(rows.nth(0)).to_contain_text("Added, 3 passages")
    await expect(rows.nth(1)).to_contain_text("The document contains no text.")
    await expect(page.locator("#documents-list li")).to_have_count(1)
    question = stub.requests.count(f"GET /v1/jobs/{next(iter(stub.jobs))}")
    await page.wait_for_timeout(700)
    assert stub.requests.count(f"GET /v1/jobs/{next(iter(stub.jobs))}") == question  # polling has ended


async def test_upload_without_a_response_yet_is_shown_once(stub: StubApi, visit: Visit) -> None:
    stub.add_collection("travel")
    stub.upload_gate.clear()
    page = await visit(stub.url)
    await page.set_input_files("#files", [file("a.md")])
    rows, picker = page.locator("#uploads li"), page.get_by_label("Collection", exact=True)
    await expect(rows).to_have_count(1)
    await picker.select_option("travel")
    async with page.expect_response(lambda response: "/v1/jobs?collection_id=c1" in response.url):
        await picker.select_option("handbook")  # looks for running jobs, and finds that of the upload
    stub.upload_gate.set()
    await expect(rows).to_have_text(["a.mdAdded, 3 passages"])


async def test_running_job_is_shown_again_after_reload(stub: StubApi, visit: Visit) -> None:
    stub.ingestion_gate.clear()
    page = await visit(stub.url)
    await page.set_input_files("#files", [file("slow.md")])
    await expect(page.locator("#uploads")).to_contain_text("Embedding")
    await page.reload()
    await page.locator("#toggle-documents").click()
    await expect(page.locator("#uploads")).to_contain_text("slow.md")
    stub.ingestion_gate.set()
    await expect(page.locator("#uploads")).to_contain_text("Added, 3 passages")


async def test_dropped_file_without_collection_creates_default_collection(
    stub: StubApi, visit: Visit
) -> None:
    stub.collections.clear()
    page = await visit(stub.url)
    await expect(page.get_by_label("Collection", exact=True)).to_be_disabled()
    await drop_file(page, "dropped.md")
    await expect(page.locator("#uploads")).to_contain_text("Added")
    assert [c["name"] for c in stub.collections] == ["default"]
    await expect(page.locator("#over")).to_be_hidden()


async def test_dropped_folder_adds_its_visible_files_by_name(
    stub: StubApi, visit: Visit, tmp_path: Path
) -> None:
    for name in ("a.md", "one/b.md", "two/b.md", ".hidden/c.md"):
        (tmp_path / "notes" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "notes" / name).write_text("some text")
    page = await visit(stub.url)
    devtools = await page.context.new_cdp_session(page)
    data = {"items": [], "files": [str(tmp_path / "notes")], "dragOperationsMask": 1}
    for kind in ("dragEnter", "dragOver", "drop"):
        await devtools.send("Input.dispatchDragEvent", {"type": kind, "x": 300, "y": 300, "data": data})
        await expect(page.locator("#over")).to_be_visible(visible=kind != "drop")
    rows = page.locator("#uploads .title")
    await expect(rows).to_have_count(3)
    assert sorted(await rows.all_text_contents()) == ["a.md", "notes - one - b.md", "notes - two - b.md"]
    await expect(page.locator("#uploads [data-state='done']")).to_have_count(3)


async def test_new_collection_is_selected_and_duplicate_name_is_rejected(stub: StubApi, visit: Visit) -> None:
    page = await visit(stub.url, failed_requests=True)
    await page.get_by_role("button", name="New collection").click()
    await page.get_by_label("Name").fill("handbook")
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("dialog")).to_contain_text("A collection named 'handbook' already exists.")
    await page.get_by_label("Name").fill("contracts")
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("dialog")).to_be_hidden()
    await expect(page.get_by_label("Collection", exact=True)).to_have_value(stub.collections[1]["id"])


async def test_document_deletion_requires_confirmation(stub: StubApi, visit: Visit) -> None:
    stub.add_document("text", file="old.md")
    page = await visit(stub.url)
    await page.locator("#toggle-documents").click()
    await page.get_by_role("button", name="Delete old.md").click()
    await expect(page.get_by_role("alertdialog")).to_contain_text("Delete “old.md”?")
    await page.keyboard.press("Escape")
    assert len(stub.documents) == 1
    await page.get_by_role("button", name="Delete old.md").click()
    await page.get_by_role("button", name="Delete", exact=True).click()
    await expect(page.locator("#documents-list")).to_be_hidden()
    assert stub.documents == []


async def test_document_list_is_paginated(stub: StubApi, visit: Visit) -> None:
    for number in range(60):
        stub.add_document("text", file=f"{number}.md")
    page = await visit(stub.url)
    await page.locator("#toggle-documents").click()
    await expect(page.locator("#documents-list li")).to_have_count(50)
    await page.get_by_role("button", name="Show more").click()
    await expect(page.locator("#documents-list li")).to_have_count(60)


async def test_missing_api_key_opens_prompt_and_is_sent_afterwards(stub: StubApi, visit: Visit) -> None:
    stub.api_key = "correct-horse"
    stub.add_document("text", file="a.md", title="Secret plan")
    page = await visit(stub.url, failed_requests=True)
    await page.get_by_role("textbox", name="API key").fill("wrong")
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("dialog")).to_contain_text("did not accept that key")
    await page.get_by_role("textbox", name="API key").fill("correct-horse")
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("heading", level=1)).to_have_text("Ask “handbook”")
    await page.reload()  # stored for this tab
    await expect(page.get_by_role("heading", level=1)).to_have_text("Ask “handbook”")
    assert await page.evaluate("[localStorage.length, sessionStorage.length]") == [0, 1]
    assert "correct-horse" not in await page.content()


async def test_declined_api_key_prompt_can_be_retried(stub: StubApi, visit: Visit) -> None:
    stub.api_key = "correct-horse"
    page = await visit(stub.url, failed_requests=True)
    await expect(page.get_by_role("dialog")).to_be_visible()
    await page.keyboard.press("Escape")
    await expect(page.get_by_role("alert")).to_contain_text("could not be loaded")
    stub.api_key = None
    await page.get_by_role("button", name="Enter the key").click()
    await expect(page.get_by_role("heading", level=1)).to_have_text("Ask your own documents")


async def test_hostile_text_is_shown_as_plain_text(stub: StubApi, visit: Visit) -> None:
    stub.collections[0]["name"] = HOSTILE
    document = stub.add_document(f"before {HOSTILE} after", file=f"{HOSTILE}.md", title=HOSTILE)
    cited = source(1, document, 0, len(document["text"]), heading=HOSTILE)
    text = (
        f"**{HOSTILE}** `{HOSTILE}` [Context 1] ![x](http://evil.test/?q=1) [a](http://evil.test/) {HOSTILE}"
    )
    stub.scripts = [answer(text, f"\n\n- {HOSTILE}\n\n```\n{HOSTILE}\n```", sources=[cited])]
    page = await visit(stub.url)
    await ask(page, HOSTILE)
    await expect(page.locator(".foot")).to_contain_text("answered in")
    await page.locator(".cite").first.click()
    await expect(page.locator("#passage")).to_have_text(f"before {HOSTILE} after")
    await page.get_by_role("button", name="All documents").click()
    await page.get_by_role("button", name="Delete").first.click()
    await expect(page.locator("#confirm-title")).to_contain_text("<img")
    assert await page.title() == "VectorForge"
    assert (
        await page.locator(
            "img, a:not(.skip, #open-statistics, #open-source), iframe, [onerror], script:not(body > script)"
        ).count()
        == 0
    )


async def test_page_is_one_file_without_html_parsing() -> None:
    sent = page_response("index.html")
    html, policy = bytes(sent.body).decode(), sent.headers["Content-Security-Policy"]
    assert not re.search(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function|DOMParser", html
    )
    texts = html.count('<script type="application/json" lang="')
    assert (texts, html.count("<script") - texts) == (2, html.count("<script>"))
    assert html.count("<script") == html.count("</script>")
    assert (html.count("<script>") + html.count("<style>"), html.count("<style>")) == (
        policy.count("'sha256-"),
        2,
    )
    assert '<link rel="stylesheet"' not in html
    assert re.findall(r"""(?:src|href|url)\s*[=(]\s*["']?(https?:)?//""", html) == []
    assert not re.search(
        r"""\son\w+=["']|\sstyle=["']""", html.split("<script>")[0]
    )  # the policy forbids them
