"""Conversion of HTML to text with Markdown headings, for the Markdown splitter."""

import re
from typing import TYPE_CHECKING

from vectorforge.ingestion.extract.decode import decode
from vectorforge.ingestion.extract.markdown import code_fence
from vectorforge.ingestion.types import ReadText

if TYPE_CHECKING:
    from selectolax.lexbor import LexborHTMLParser, LexborNode

_DROPPED = frozenset(
    {
        "script",
        "style",
        "noscript",
        "template",
        "nav",
        "header",
        "footer",
        "aside",
        "form",
        "iframe",
        "svg",
        "canvas",
        "head",
        "dialog",
    }
)
_BLOCKS = frozenset(
    {
        "address",
        "article",
        "blockquote",
        "body",
        "caption",
        "dd",
        "details",
        "div",
        "dl",
        "dt",
        "fieldset",
        "figcaption",
        "figure",
        "header",
        "hr",
        "html",
        "li",
        "main",
        "ol",
        "option",
        "p",
        "section",
        "summary",
        "table",
        "tbody",
        "tfoot",
        "thead",
        "tr",
        "ul",
    }
)
_PARAGRAPHS = frozenset({"article", "blockquote", "dl", "figure", "ol", "p", "section", "table", "ul"})
_HEADING = re.compile(r"h[1-6]")
_DECLARED = re.compile(rb"<meta[^>]+charset\s*=\s*[\"']?\s*([\w-]+)", re.IGNORECASE)
_SMALLEST_MAIN_SHARE = 0.3


def extract_html(content: bytes, *, charset: str | None) -> ReadText:
    """Read an HTML page.

    Scripts, styles, navigation, page headers and footers, asides and forms are left out. When the page
    has one ``<main>`` or ``<article>`` that holds a good share of its text, only that is taken, with its
    own header.

    Args:
        content: The page; its encoding is that of a byte order mark, ``charset`` or ``<meta charset>``.
        charset: From the Content-Type header.

    Returns:
        Headings are lines like ``## Install``; blocks end lines; ``<pre>``
        becomes a fenced code block with its line breaks.

    Raises:
        ExtractionError: ``undecodable``.
    """
    from selectolax.lexbor import LexborHTMLParser

    declared = _DECLARED.search(content[:4096])
    markup, warnings = decode(content, charset or (declared[1].decode("ascii") if declared else None))
    tree = LexborHTMLParser(markup)
    title_node = tree.css_first("head title") or tree.css_first("h1")
    title = " ".join(title_node.text().split()) if title_node else ""
    return {"text": _main_text(tree), "title": title or None, "page_starts": [], "warnings": warnings}


def _main_text(tree: "LexborHTMLParser") -> str:
    whole = _render(tree.body, _DROPPED) if tree.body is not None else ""
    for selector in ("main", "[role=main]", "article"):
        found = tree.css(selector)
        if len(found) == 1:
            text = _render(found[0], _DROPPED - {"header"})
            if len(text) >= _SMALLEST_MAIN_SHARE * len(whole):
                return text
    return whole


def _render(root: "LexborNode", dropped: frozenset[str]) -> str:
    """Walk without recursion: pages nest thousands of elements deep."""
    writer = _Writer()
    node, end = root, root.mem_id
    while True:
        entered = node.tag not in dropped
        if entered:
            writer.enter(node)
            if node.child is not None:
                node = node.child
                continue
            writer.leave(node)
        while node.mem_id != end and node.next is None and node.parent is not None:
            node = node.parent
            writer.leave(node)
        if node.mem_id == end or node.next is None:
            return writer.finish()
        node = node.next


class _Writer:
    """Collects lines; a heading, list item or table row is one line each."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._line: list[str] = []
        self._prefix = ""
        self._pre_depth = 0

    def enter(self, node: "LexborNode") -> None:
        tag = node.tag or ""
        if tag == "-text":
            self._line.append(node.text_content or "")
        elif tag == "pre":
            self._end_line(blank=True)
            self._pre_depth += 1
        elif tag == "br":
            self._line.append("\n") if self._pre_depth else self._end_line()
        elif _HEADING.fullmatch(tag):
            self._end_line(blank=True)
            self._prefix = "#" * int(tag[1]) + " "
        elif tag in _BLOCKS and not self._pre_depth:
            self._end_line(blank=tag in _PARAGRAPHS)
            if tag == "li":
                self._prefix = "- "
        elif tag in ("td", "th") and "".join(self._line).strip():
            self._line.append(" | ")

    def leave(self, node: "LexborNode") -> None:
        tag = node.tag or ""
        if tag == "pre":
            self._pre_depth -= 1
            self._end_code()
        elif _HEADING.fullmatch(tag) or (tag in _BLOCKS and not self._pre_depth):
            self._end_line(blank=tag in _PARAGRAPHS or tag not in _BLOCKS)

    def finish(self) -> str:
        self._end_line()
        return "\n".join(self._lines).strip("\n")

    def _end_line(self, *, blank: bool = False) -> None:
        if self._pre_depth:
            return
        line = " ".join("".join(self._line).split())
        self._line.clear()
        if line:
            self._lines.append(self._prefix + line)
            self._prefix = ""
        if blank and self._lines and self._lines[-1]:
            self._lines.append("")

    def _end_code(self) -> None:
        if self._pre_depth:
            return
        code = "".join(self._line).strip("\r\n")
        self._line.clear()
        if code.strip():
            self._lines += [*code_fence(code), ""]
