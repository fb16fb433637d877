"""Word documents: DOCX."""

import io
import re
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from vectorforge.errors import ExtractionError
from vectorforge.ingestion.extract.blocks import Block, BlockKind, Reading, Row, comment, heading, item, table
from vectorforge.ingestion.extract.decode import open_archive
from vectorforge.ingestion.extract.readers.charts import GRAPHICS, graphic_blocks, part_id
from vectorforge.ingestion.extract.readers.word_numbering import Numbering
from vectorforge.ingestion.extract.readers.xml import local_name, parse_xml

_TITLE_IS_WITHIN: Final = 50
"""Paragraphs from the start: a later one is no title of the document."""
_HEADING_STYLE: Final = re.compile(r"heading ([1-6])", re.IGNORECASE)
_LIST_LEVEL: Final = re.compile(r"List.*? ([2-5])$")
_CONTENTS_STYLE: Final = re.compile(r"toc (\d|heading)", re.IGNORECASE)
_CHARACTERS: Final = {"tab": "\t", "br": "\n", "cr": "\n", "noBreakHyphen": "-", "ptab": "\t"}
_SYMBOLS: Final = {"F0FE": "\u2612", "F0FD": "\u2612", "F0FC": "\u2713", "F0A8": "\u2610", "F06F": "\u2610"}
"""Check boxes and check marks of the font Wingdings."""
_OMITTED: Final = ("pPr", "rPr", "del", "moveFrom", "txbxContent", "AlternateContent", "pict", "drawing")
_NOTES: Final = ("footnote", "endnote", "comment")
_FALLBACK: Final = "{http://schemas.openxmlformats.org/markup-compatibility/2006}Fallback"
"""A text box again, for older programs."""
_W: Final = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_RAISED: Final = f"{_W}rPr/{_W}vertAlign[@{_W}val='superscript']"
_CONTROLS: Final = tuple(f"{_W}{name}" for name in ("sdt", "sdtContent", "customXml", "ins", "moveTo"))


def read_docx(content: bytes) -> Reading:
    """Read paragraphs, headings, lists, tables, charts and notes in the order of the document.

    Footnotes, endnotes, comments and charts follow their paragraph or table.

    Returns:
        ``title``: the first paragraph in the style Title, else the document's property.

    Raises:
        ExtractionError: ``unreadable`` or ``too_large``.
    """
    open_archive(content).close()
    from docx import Document

    try:
        document = Document(io.BytesIO(content))
        body = document.element.body
        _unwrap_rows(body)
        source = _Source(document, _notes(document), Numbering(_part(document, "numbering")))
        return Reading([*_blocks(body, source)], _title(document))
    except (ExtractionError, MemoryError):
        raise
    except Exception as exc:  # python-docx, lxml, zipfile and zlib raise many kinds
        raise ExtractionError("The DOCX file is damaged and cannot be read.") from exc


def _unwrap_rows(body: Any) -> None:
    """Replace controls around rows and cells of tables, which python-docx skips, by their content."""
    for control in [*body.iter(f"{_W}sdt")]:
        content, parent = control.find(f"{_W}sdtContent"), control.getparent()
        if content is not None and parent.tag in (f"{_W}tbl", f"{_W}tr"):
            for child in [*content]:
                control.addprevious(child)
            parent.remove(control)


def _title(document: Any) -> str:
    for paragraph_ in document.paragraphs[:_TITLE_IS_WITHIN]:
        if paragraph_.style is not None and paragraph_.style.name == "Title" and paragraph_.text.strip():
            return " ".join(paragraph_.text.split())
    return str(document.core_properties.title or "").strip()


class _Source(NamedTuple):
    document: Any
    notes: dict[str, Block]
    """By kind and id."""
    numbering: Numbering


def _blocks(element: Any, source: _Source) -> Iterator[Block]:
    """Yield the blocks of a body, a content control or a text box; python-docx skips both of the latter."""
    from docx.table import Table
    from docx.text.paragraph import Paragraph

    for child in element:
        if child.tag == f"{_W}tbl":
            yield from _table(Table(child, source.document))
            yield from _references(child, source)
        elif child.tag == f"{_W}p":
            yield from _paragraph(child, Paragraph(child, source.document).style, source)
            for box in child.iter(f"{_W}txbxContent"):
                if next(box.iterancestors(_FALLBACK), None) is None:
                    yield from _blocks(box, source)
        elif child.tag in _CONTROLS:
            yield from _blocks(child, source)


def _paragraph(element: Any, style: Any, source: _Source) -> Iterator[Block]:
    text, name = _text(element).strip(), (style.name or "") if style is not None else ""
    if _CONTENTS_STYLE.match(name):
        return
    level, mark = source.numbering.next_mark(element, style) or (-1, "")
    mark = mark if text else ""
    if found := _HEADING_STYLE.match(name):
        yield heading(f"{mark} {text}".strip(), int(found[1]))
    elif name == "Title":
        yield heading(text, 1)
    elif name.startswith("List") or level >= 0:
        named = _LIST_LEVEL.search(name)
        yield item(text, max(level, int(named[1]) - 1 if named else 0), mark=mark or "-")
    else:
        yield Block(BlockKind.CAPTION if name == "Caption" else BlockKind.PARAGRAPH, text)
    yield from _references(element, source)


def _references(element: Any, source: _Source) -> Iterator[Block]:
    """Yield the notes, comments, charts and diagrams that an element refers to."""
    for reference in element.iter(*(f"{_W}{kind}Reference" for kind in _NOTES)):
        if note := source.notes.get(local_name(reference)[:-9] + reference.get(f"{_W}id", "")):
            yield note
    for found in element.iter(*GRAPHICS):
        part = source.document.part.related_parts.get(part_id(found))
        yield from graphic_blocks(parse_xml(part.blob)) if part is not None else ()


def _text(element: Any) -> str:
    """Return a paragraph's text with insertions, fields, controls and formulas, without its text boxes."""
    parts: list[str] = []
    for child in element:
        name = local_name(child)
        if name == "t":
            parts.append(child.text or "")
        elif name in _CHARACTERS:
            parts.append(_CHARACTERS[name])
        elif name == "sym":
            parts.append(_SYMBOLS.get(child.get(f"{_W}char", "").upper(), ""))
        elif name not in _OMITTED and not _is_hidden(child):
            text = _text(child)
            is_raised = text[:1].isdigit() and child.find(_RAISED) is not None
            parts.append(f"^{text}" if is_raised and "".join(parts)[-1:].isdigit() else text)
    return "".join(parts)


def _is_hidden(run: Any) -> bool:
    found = run.find(f"{_W}rPr/{_W}vanish")
    return found is not None and found.get(f"{_W}val") not in ("0", "false", "off")


def _notes(document: Any) -> dict[str, Block]:
    return {
        kind + note.get(f"{_W}id", ""): _note(note)
        for kind in _NOTES
        if (root := _part(document, f"{kind}s")) is not None
        for note in root.iter(f"{_W}{kind}")
    }


def _note(note: Any) -> Block:
    text = " ".join(" ".join(map(_text, note.iter(f"{_W}p"))).split())
    is_comment = local_name(note) == "comment"
    return comment(text, note.get(f"{_W}author", "")) if is_comment else Block(BlockKind.PARAGRAPH, text)


def _part(document: Any, kind: str) -> Any:
    """Return the root of a part that the document is related to, or None."""
    for relation in document.part.rels.values():
        if relation.reltype.endswith(f"/{kind}") and not relation.is_external:
            return parse_xml(relation.target_part.blob)
    return None


def _table(found: Any) -> list[Block]:
    rows = []
    for row in found.rows:
        cells: list[str] = []
        previous = None
        for cell in row.cells:  # a merged cell is listed once for each column it covers
            element = cell._tc  # noqa: SLF001 - python-docx has no public identity of a cell
            texts = [] if element is previous else map(_text, element.iter(f"{_W}p"))
            cells.append(" ".join(" ".join(texts).split()))
            previous = element
        rows.append(Row(cells))
    return table(rows, has_header=_has_header(found))


def _has_header(found: Any) -> bool | None:
    """Return True if the first row is marked as header or bold; None if that is open."""
    first = found.rows[0] if found.rows else None
    if first is None:
        return None
    if first._tr.find(f"{_W}trPr/{_W}tblHeader") is not None:  # noqa: SLF001 - no public way
        return True
    runs = [run for cell in first.cells for one in cell.paragraphs for run in one.runs if run.text.strip()]
    return True if runs and all(run.bold for run in runs) else None
