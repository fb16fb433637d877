"""Conversion of HTML to blocks."""

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, TypeAlias

from vectorforge.ingestion.extract import blocks
from vectorforge.ingestion.extract.blocks import Block, Reading
from vectorforge.ingestion.extract.decode import decode
from vectorforge.ingestion.extract.readers.html_table import BLOCKS, HtmlTable, integer

if TYPE_CHECKING:
    from selectolax.lexbor import LexborHTMLParser, LexborNode


_Dropped: TypeAlias = frozenset[str | int]
"""Tags, and ids of hidden elements, that are left out with all they contain."""
_DROPPED: _Dropped = frozenset({
    "script", "style", "noscript", "template", "nav", "header", "footer", "aside", "form", "iframe", "svg",
    "canvas", "head", "dialog", "video", "audio", "datalist", "rt", "rp",
})  # fmt: skip
_PARAGRAPHS = frozenset({"article", "blockquote", "dl", "figure", "ol", "p", "section", "table", "ul"})
_LISTS = frozenset({"ul", "ol"})
_MAX_INDENTED = 9
"""Levels of lists."""
_HEADING = re.compile(r"h[1-6]")
_DECLARED = re.compile(rb"<meta[^>]+charset\s*=\s*[\"']?\s*([\w-]+)", re.IGNORECASE)
_XHTML = 'xmlns="http://www.w3.org/1999/xhtml"'
_EMPTY = re.compile(r"<((title|script|style|iframe|textarea|noscript|a|i|b|p|div|span|td|th|li)\b[^<>]*)/>")
"""Elements that XHTML may write as one tag, which HTML takes for a start without an end."""
_SMALLEST_MAIN_SHARE = 0.3
_UNSHOWN = re.compile(r"(?:^|;)\s*(?:display\s*:\s*none|visibility\s*:\s*hidden)\b", re.IGNORECASE)
_AGAIN = (
    ".katex-html[aria-hidden=true],"
    "semantics:has(> annotation[encoding='application/x-tex']) > :not(annotation)"
)
"""Formulas that are also there as TeX."""
_STRUCTURE = frozenset({"table", "h1", "h2", "h3", "h4", "h5", "h6", "pre", "ul", "ol"})
"""Elements that no cell of a table of data has: a table with them is layout."""


def read_html(content: bytes, *, charset: str | None = None) -> Reading:
    """Read an HTML page.

    Scripts, styles, navigation, page headers and footers, asides, forms and hidden elements are left out,
    except those that a click shows: tabs, and what a button controls. When the page
    has one ``<main>`` or ``<article>`` that holds a good share of its text, only that is taken, with its
    own header; a form that holds most of the text is read, too. Tables with headings, lists or tables in
    their cells are layout, and read as text.

    Args:
        content: The page; its encoding is that of a byte order mark, ``charset`` or ``<meta charset>``.
        charset: From the Content-Type header.

    Returns:
        The title is ``<title>``, else the first ``<h1>``.

    Raises:
        ExtractionError: ``undecodable``.
    """
    tree, warnings = _parse(content, charset)
    title_node = tree.css_first("head title") or tree.css_first("h1")
    title = " ".join(title_node.text().split()) if title_node else ""
    return Reading(_main_blocks(tree), title, warnings)


def chapter_blocks(content: bytes) -> list[Block]:
    """Return the blocks of a chapter of a book, with its header and its asides."""
    tree, _ = _parse(content)
    return [] if tree.body is None else _render(tree.body, _DROPPED - {"header", "aside"} | _hidden(tree))


def _parse(content: bytes, charset: str | None = None) -> "tuple[LexborHTMLParser, list[str]]":
    from selectolax.lexbor import LexborHTMLParser

    declared = _DECLARED.search(content[:4096])
    markup, warnings = decode(content, charset or (declared[1].decode("ascii") if declared else None))
    if _XHTML in markup[:2048]:
        markup = _EMPTY.sub(r"<\1></\2>", markup)
    return LexborHTMLParser(markup), warnings


def _main_blocks(tree: "LexborHTMLParser") -> list[Block]:
    if tree.body is None:
        return []
    hidden = _hidden(tree)
    whole = _render(tree.body, _DROPPED | hidden)
    for is_used, dropped in ((tree.css_first("form"), _DROPPED - {"form"} | hidden), (hidden, _DROPPED)):
        more = _render(tree.body, dropped) if is_used else []
        if _size(whole) < _SMALLEST_MAIN_SHARE * _size(more):
            whole = more
    for selector in ("main", "[role=main]", "article"):
        nodes = tree.css(selector)
        if len(nodes) == 1:
            found = _render(nodes[0], _DROPPED - {"header"} | hidden)
            if _size(found) >= _SMALLEST_MAIN_SHARE * _size(whole):
                return found
    return whole


def _size(found: list[Block]) -> int:
    return sum(len(b.text) + sum(len(cell) for row in b.rows for cell in row.cells) for b in found)


def _hidden(tree: "LexborHTMLParser") -> frozenset[int]:
    """Return the ids of what no click shows, but for formulas with a picture, and of other forms of TeX."""
    controls = " ".join(one.attributes["aria-controls"] or "" for one in tree.css("[aria-controls]")).split()
    opened = frozenset(controls)
    return frozenset(
        node.mem_id
        for node in tree.css("[hidden], [style]")
        if _is_unshown(node.attributes)
        and node.attributes.get("role") != "tabpanel"
        and node.attributes.get("id") not in opened
        and (node.child is None or node.child.tag != "math")
    ).union(node.mem_id for node in tree.css(_AGAIN))


def _is_unshown(attributes: Mapping[str, str | None]) -> bool:
    is_hidden = "hidden" in attributes and attributes["hidden"] != "until-found"
    return is_hidden or _UNSHOWN.search(attributes.get("style") or "") is not None


def _render(root: "LexborNode", dropped: _Dropped) -> list[Block]:
    writer = _Writer(_layout_tables(root, dropped))
    for node, entered in _walk(root, dropped):
        (writer.enter if entered else writer.leave)(node)
    return writer.finish()


def _layout_tables(root: "LexborNode", dropped: _Dropped) -> frozenset[int]:
    """Return the ids of the tables that hold what no cell of a table of data does."""
    found: set[int] = set()
    open_tables: list[int] = []
    for node, entered in _walk(root, dropped):
        if node.tag == "table" and not entered:
            inner = open_tables.pop()
            if open_tables and inner in found:
                found.add(open_tables[-1])
        elif entered and open_tables and node.tag in _STRUCTURE:
            found.add(open_tables[-1])
        if node.tag == "table" and entered:
            open_tables.append(node.mem_id)
    return frozenset(found)


def _walk(root: "LexborNode", dropped: _Dropped) -> Iterator[tuple["LexborNode", bool]]:
    """Yield each node when it is entered (True) and left; not recursive: pages nest thousands of elements."""
    node, end = root, root.mem_id
    while True:
        entered = node.tag not in dropped and node.mem_id not in dropped and not _is_reference(node)
        if entered:
            yield node, True
            if node.child is not None:
                node = node.child
                continue
            yield node, False
        while node.mem_id != end and node.next is None and node.parent is not None:
            node = node.parent
            yield node, False
        if node.mem_id == end or node.next is None:
            return
        node = node.next


def _is_reference(node: "LexborNode") -> bool:
    """Return True for the raised number of a note, which would be read as part of the number before it."""
    link = node.css_first("a") if node.tag == "sup" else None
    return link is not None and (link.attributes.get("href") or "").startswith("#")


class _Writer:
    """Collects blocks; a heading or list item is one line.

    Args:
        layout: Ids of tables that are read as text.
    """

    def __init__(self, layout: frozenset[int]) -> None:
        self._layout = layout
        self._blocks: list[Block] = []
        self._lines: list[str] = []
        self._line: list[str] = []
        self._prefix = ""
        self._lists: list[int | None] = []
        """Open lists: the number of the next item, None for bullets."""
        self._pre_depth = 0
        self._table: HtmlTable | None = None

    def enter(self, node: "LexborNode") -> None:
        tag = node.tag or ""
        if tag == "-text":
            self._line.append(node.text_content or "")
        elif tag == "sup" and node.text(deep=False)[:1].isdigit() and "".join(self._line[-1:])[-1:].isdigit():
            self._line.append("^")
        elif self._table is not None:
            self._table.enter(node, self._line)
        elif tag == "table" and node.mem_id not in self._layout:
            self._end_line(blank=True)
            self._table = HtmlTable(node.mem_id)
        elif tag == "pre":
            self._end_line(blank=True)
            self._pre_depth += 1
        elif tag == "br":
            self._line.append("\n") if self._pre_depth else self._end_line()
        elif _HEADING.fullmatch(tag):
            self._end_line(blank=True)
            self._prefix = "#" * int(tag[1])
        elif tag in BLOCKS and not self._pre_depth:
            self._begin_block(node, tag)
        elif tag in ("td", "th") and "".join(self._line).strip():
            self._line.append(" | ")

    def leave(self, node: "LexborNode") -> None:
        tag = node.tag or ""
        if self._table is not None:
            if node.mem_id == self._table.id:
                self._blocks += self._table.finish(self._line)
                self._table = None
        elif tag == "pre":
            self._pre_depth -= 1
            self._end_code()
        elif _HEADING.fullmatch(tag) or (tag in BLOCKS and not self._pre_depth):
            if tag in _LISTS and self._lists:
                self._end_line()
                self._lists.pop()
            self._end_line(blank=(tag in _PARAGRAPHS and not self._lists) or tag not in BLOCKS)

    def finish(self) -> list[Block]:
        self._end_line(blank=True)
        return self._blocks

    def _begin_block(self, node: "LexborNode", tag: str) -> None:
        self._end_line(blank=tag in _PARAGRAPHS and not self._lists)
        if tag in _LISTS:
            self._lists.append(integer(node, "start") if tag == "ol" else None)
        elif tag == "li":
            self._prefix = self._next_mark()

    def _next_mark(self) -> str:
        number = self._lists[-1] if self._lists else None
        if number is None:
            return "- "
        self._lists[-1] = number + 1
        return f"{number}. "

    def _end_line(self, *, blank: bool = False) -> None:
        if self._pre_depth:
            return
        line = " ".join("".join(self._line).split())
        self._line.clear()
        if line and self._prefix.startswith("#"):
            self._end_paragraph()
            self._blocks.append(blocks.heading(line.rstrip(" \N{PILCROW SIGN}"), len(self._prefix)))
        elif line:
            depth = min(len(self._lists), _MAX_INDENTED) - bool(self._prefix)
            self._lines.append("  " * depth + self._prefix + line)
        if line:
            self._prefix = ""
        if blank:
            self._end_paragraph()

    def _end_paragraph(self) -> None:
        if self._lines:
            self._blocks.append(blocks.paragraph("\n".join(self._lines)))
            self._lines = []

    def _end_code(self) -> None:
        if self._pre_depth:
            return
        code = "".join(self._line).strip("\r\n")
        self._line.clear()
        if code.strip():
            self._end_paragraph()
            self._blocks.append(blocks.code(code))
