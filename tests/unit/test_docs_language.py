"""Docs use the project's words: none of the glossary's left column occurs in prose."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
GLOSSARY = dict(
    line.split("\t") for line in (ROOT / "tests" / "support" / "glossary.tsv").read_text().splitlines()
)
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").glob("*/README.md")])

_NOT_PROSE = re.compile(
    r"^```.*?^```"  # fenced code
    r"|<!-- (?:bench|campaign|costs|make fuzz)\b.*?<!-- (?:end\b|/campaign|to here)"  # written by programs
    r"|^ {4}(?! *[-*|]).*?$"  # indented code
    r"|`[^`\n]*`"
    r"|\]\([^)\s]*\)"
    r"|https?://\S+",
    re.MULTILINE | re.DOTALL,
)
_WORDS = "|".join(sorted(map(re.escape, GLOSSARY), key=len, reverse=True))
_FORBIDDEN = re.compile(
    rf"(?<![\w-])(?<!front\s)(?<!front\n  )(?:{_WORDS})(?![\w-])",
    re.IGNORECASE,
)


def forbidden_words(text: str) -> list[str]:
    """Return the glossary's findings in Markdown, each with its line and replacement."""
    prose = _NOT_PROSE.sub(lambda match: "\n" * match[0].count("\n"), text)
    return [
        f"{1 + prose[: found.start()].count(chr(10))}: “{found[0]}”, use “{GLOSSARY[found[0].lower()]}”"
        for found in _FORBIDDEN.finditer(prose)
    ]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_page_uses_words_of_the_glossary(page: Path) -> None:
    assert forbidden_words(page.read_text(encoding="utf-8")) == []


def test_forbidden_word_in_prose_is_reported_with_its_replacement() -> None:
    assert forbidden_words("Fine.\nNobody asks. Front doors are fine.\n") == [
        "2: “Nobody”, use “no caller, no process, not”"
    ]


@pytest.mark.parametrize(
    "text", ["`passages`", "```\nanew\n```", "    rings", "[page](doors.md)", "door-to-door"]
)
def test_forbidden_word_in_code_or_link_is_ignored(text: str) -> None:
    assert forbidden_words(text) == []
