"""Relative links of the docs lead to files and headings that exist."""

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    [
        *ROOT.glob("*.md"),
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / "examples").glob("*/README.md"),
        *(ROOT / ".github").glob("*.md"),
    ]
)
_FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


@cache
def anchors(page: Path) -> frozenset[str]:
    """Return the anchors of a page's headings, as GitHub derives them."""
    headings = re.findall(r"^#{1,6} (.+)$", _FENCED.sub("", page.read_text(encoding="utf-8")), re.MULTILINE)
    texts = (re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).strip().lower() for heading in headings)
    return frozenset(re.sub(r"[^\w\- ]", "", text).replace(" ", "-") for text in texts)


def broken_links(page: Path) -> Iterator[str]:
    """Yield the relative links of a page without a target."""
    for link in re.findall(r"\]\(([^)\s]+)\)", _FENCED.sub("", page.read_text(encoding="utf-8"))):
        path, _, anchor = link.partition("#")
        if re.match(r"[a-z]+:", link):
            continue
        target = page.parent / path if path else page
        if not target.exists() or (anchor and target.suffix == ".md" and anchor not in anchors(target)):
            yield link


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_relative_links_of_page_have_targets(page: Path) -> None:
    assert list(broken_links(page)) == []


def test_link_without_target_is_reported(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# A `b` c\n[here](#a-b-c) [no](#no) [gone](gone.md) [web](https://example.org)\n")
    assert list(broken_links(page)) == ["#no", "gone.md"]


def test_docs_index_lists_every_page() -> None:
    index = (ROOT / "docs" / "README.md").read_text(encoding="utf-8")
    pages = {page.relative_to(ROOT / "docs").as_posix() for page in (ROOT / "docs").rglob("*.md")}
    decisions = {page for page in pages if page.startswith("decisions/") and page != "decisions/README.md"}
    assert pages - decisions - {"README.md"} == set(re.findall(r"\]\(([\w/-]+\.md)\)", index))
    of_decisions = (ROOT / "docs" / "decisions" / "README.md").read_text(encoding="utf-8")
    assert decisions == {f"decisions/{name}" for name in re.findall(r"\]\(([\w-]+\.md)\)", of_decisions)}


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "AGENTS.md"])
def test_paths_in_newcomer_docs_exist(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    paths = re.findall(r"`((?:docs|events|examples|functions|infra|shared|tests)(?:/[\w.-]+)*/?)`", text)
    assert paths
    assert [path for path in paths if "NNNN" not in path and not (ROOT / path).exists()] == []
