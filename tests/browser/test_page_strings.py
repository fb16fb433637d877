"""The texts of the pages: a file for each language with the same keys and places, and none elsewhere."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import expect

from tests.browser.answer_script import answer, source
from tests.browser.conftest import Visit
from tests.browser.page_actions import ask, ended
from tests.browser.stub_api import StubApi
from tests.browser.stub_conversations import exchange
from vectorforge.llm.providers.extractive import NO_ANSWER

PAGE = Path(__file__).parents[2] / "shared" / "vectorforge" / "api" / "page"
SCRIPTS = [
    path
    for path in sorted(PAGE.rglob("*.js"))
    # The explorer shows openapi.json, which is in English, and so is the page around it.
    if path.parent.name != "explorer"
]
PAGES = ["index.html", "source.html", "statistics.html"]
LITERAL = re.compile(r'"((?:[^"\\\n]|\\.)*)"|`((?:[^`\\]|\\.)*)`')
NO_LITERAL = re.compile(
    r"/\*.*?\*/|String\.raw`(?:[^`\\]|\\.)*`|(?<=[(,=:!&|?\s])/(?![/*\s])(?:[^/\\\n]|\\.)+/\w*"
    r'|(?<![:"])//[^\n]*|\b(?:class|rel): "[^"]*"',
    re.DOTALL,
)
"""Comments, patterns and classes."""
NOT_SHOWN = re.compile(
    r"use strict|VectorForge|Accept|Content-Type|X-[\w-]+|Last-Event-ID|GET|POST|PATCH|DELETE|Location"
    r"|Enter|Escape|Tab|Files|Arrow\w+|USD|[ –]+VectorForge|text code|[a-z-]+"
)


def shown_literals(script: str) -> list[str]:
    """Return the literals that hold words for people."""
    found = []
    for plain, template in LITERAL.findall(NO_LITERAL.sub("", script)):
        text = re.sub(r"\$\{(?:[^{}]|\{[^{}]*\})*\}", "", plain or template).strip()
        has_words = re.search(r"(?<![\w/.#:-])[A-Z][a-z]+|[a-z]{2,} [a-z]{2,}", text)
        if has_words and not NOT_SHOWN.fullmatch(text) and not text.startswith(("/v1/", "[", "^", ".")):
            found.append(text)
    return found


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_script_holds_no_visible_text(script: Path) -> None:
    assert shown_literals(script.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    ("literal", "shown"),
    [
        ('"Delete"', ["Delete"]),
        ("`Searched in ${ms} ms`", ["Searched in  ms"]),
        ("a ? 'b' : \"no text\"", ["no text"]),
    ],
)
def test_visible_text_in_a_script_is_found(literal: str, shown: list[str]) -> None:
    assert shown_literals(f"const a = {literal};") == shown


@pytest.mark.parametrize("page", PAGES)
def test_page_holds_no_visible_text_but_its_name(page: str) -> None:
    html = re.sub(
        r"<(noscript|title|style)>.*?</\1>|<[^>]+>", " ", (PAGE / page).read_text(), flags=re.DOTALL
    )
    assert set(re.findall(r"\w+", html)) <= {"VectorForge"}
    named = re.findall(r'(?:aria-label|placeholder|title)="([^"]+)"', (PAGE / page).read_text())
    assert set(named) <= {"VectorForge"}


def shape(value: Any) -> Any:
    """Return the keys of texts, with the places of each: what is filled in, and the noun that is counted."""
    if isinstance(value, dict):
        return {key: shape(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [shape(inner) for inner in value]
    assert value.strip()
    return sorted(re.findall(r"\{(.*?)\}", value))


def test_languages_have_the_same_texts_and_pages_use_only_those() -> None:
    english, german = [
        json.loads((PAGE / "strings" / f"{name}.json").read_text(encoding="utf-8")) for name in ("en", "de")
    ]
    assert shape(english) == shape(german)
    nouns = set(re.findall(r"\{\d (\w+)\}", json.dumps(english)))
    assert nouns <= set(english["nouns"])
    used = {
        key
        for path in [*SCRIPTS, *(PAGE / name for name in PAGES)]
        for keys in re.findall(r'\bT\.(\w+)|data-(?:t|name)="(\w+)[\w.]*"', path.read_text(encoding="utf-8"))
        for key in keys
        if key
    } | {"send", "stop", "queue"}  # the modes of one button
    assert used == set(english)
    statistics = "".join(path.read_text(encoding="utf-8") for path in (PAGE / "statistics").glob("*.js"))
    assert set(re.findall(r"\bS\.(\w+)", statistics)) == set(english["stats"])


@pytest.mark.browser
@pytest.mark.asyncio(loop_scope="session")
async def test_refusal_without_a_model_is_in_the_language_of_the_page(stub: StubApi, visit: Visit) -> None:
    stub.scripts = [answer(NO_ANSWER)]
    page = await visit(stub.url, locale="de-DE")
    await ask(page, "Wie hoch ist der Eiffelturm?")
    await ended(page)
    await expect(page.locator(".turn").last).to_contain_text("Ich habe nicht genug Informationen")
    await expect(page.locator(".turn").last).not_to_contain_text(NO_ANSWER)


@pytest.mark.browser
@pytest.mark.asyncio(loop_scope="session")
async def test_language_follows_the_browser_and_can_be_switched(stub: StubApi, visit: Visit) -> None:
    stored = stub.conversations.add("Kept", exchange("Frage?", "Antwort.", []))
    page = await visit(f"{stub.url}/?conversation={stored['id']}", locale="de-AT")
    await expect(page.locator("html")).to_have_attribute("lang", "de")
    await expect(page.get_by_label("Ihre Frage")).to_have_attribute(
        "placeholder", "Fragen Sie Ihre Dokumente"
    )
    document = stub.add_document("Eine Passage.", file="a.md")
    stub.scripts = [answer("Ja [1].", sources=[source(1, document, 0, 13), source(2, document, 0, 13)])]
    await ask(page, "Und?")
    await ended(page, turn=1)
    await expect(page.locator(".turn").last).to_contain_text("1 weitere Passage gelesen, nicht zitiert")
    await expect(page.get_by_role("status")).to_have_text("Antwort vollständig, aus 2 Passagen.")
    await page.get_by_role("button", name="English").click()
    await expect(page.locator("html")).to_have_attribute("lang", "en")
    await expect(page.get_by_label("Your question")).to_be_visible()
    await expect(page.locator(".turn h2")).to_have_text(["Frage?", "Und?"])  # of the same conversation
    await page.goto(f"{stub.url}/source")
    await expect(page.locator("#note")).to_have_text("This link names no passage.")
    await page.goto(stub.url)
    await page.get_by_role("button", name="Deutsch").click()
    await expect(page.get_by_label("Ihre Frage")).to_be_visible()
