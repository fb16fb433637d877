"""PPTX: titles, text, tables and speaker notes of slides, by lxml; the order in which shapes are read."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import permutations
from typing import Any, Final, TypeAlias
from zipfile import ZipFile

from vectorforge.errors import ExtractionError
from vectorforge.ingestion.extract.blocks import (
    Block,
    Reading,
    Row,
    heading,
    is_from_right,
    item,
    paragraph,
    table,
)
from vectorforge.ingestion.extract.decode import open_archive, read_member
from vectorforge.ingestion.extract.readers.charts import GRAPHICS, graphic_blocks, part_id
from vectorforge.ingestion.extract.readers.xml import local_name, parse_xml, relations
from vectorforge.types import Location

_A: Final = "{http://schemas.openxmlformats.org/drawingml/2006/main}"
_P: Final = "{http://schemas.openxmlformats.org/presentationml/2006/main}"
_R: Final = "{http://schemas.openxmlformats.org/officeDocument/2006/relationships}"
_SHAPES: Final = ("sp", "graphicFrame", "grpSp", "AlternateContent", "Choice")  # no Fallback for old programs
_TITLES: Final = ("title", "ctrTitle")
_OMITTED: Final = ("sldNum", "ftr", "dt", "sldImg", "hdr")
"""Placeholders that repeat on every slide."""
_MAX_OVERLAP: Final = 91_440  # EMU: a tenth of an inch, the usual margin within a text box
_MAX_ORDERED: Final = 100  # more shapes are read in drawing order
_RIGHT_TO_LEFT_MARK: Final = "\u200f"
Box: TypeAlias = tuple[int, int, int, int] | None  # left, top, right and bottom


def read_pptx(content: bytes) -> Reading:
    """Read the slides in their order, each under its title; notes follow the slide they belong to.

    Shapes are read as shown, hidden slides, too; charts as tables, diagrams (SmartArt) as lists, no pictures.

    Returns:
        ``title``: the document's property, else the first slide's title.

    Raises:
        ExtractionError: ``unreadable`` or ``too_large``.
    """
    with open_archive(content) as archive:
        main = "ppt/presentation.xml"
        targets = relations(archive, main)
        root = parse_xml(read_member(archive, main))
        ids = [slide.get(f"{_R}id", "") for slide in root.iter(f"{_P}sldId")]
        blocks: list[Block] = []
        for number, path in enumerate((targets[one][1] for one in ids if one in targets), start=1):
            blocks += _slide(archive, path, {"slide": number})
        title = _property(archive)
    return Reading(blocks, title or next((block.text for block in blocks if block.level == 1), None))


def _slide(archive: ZipFile, path: str, location: Location) -> Iterator[Block]:
    root = parse_xml(read_member(archive, path))
    targets = relations(archive, path)
    from_right = is_from_right(
        (_RIGHT_TO_LEFT_MARK if found.find(f"{_A}pPr[@rtl='1']") is not None else "")
        + "".join(part.text or "" for part in found.iter(f"{_A}t"))
        for found in root.iter(f"{_A}p")
    )
    shapes = [shape for tree in root.iter(f"{_P}spTree") for shape in _shapes(tree, from_right)]
    titles = [shape for shape in shapes if _placeholder(shape) in _TITLES]
    title = " ".join(" ".join(text for text, _ in _paragraphs(shape)) for shape in titles).strip()
    yield heading(title or f"Slide {location['slide']}", 1, location)
    for shape in shapes:
        if shape not in titles and _placeholder(shape) not in _OMITTED:
            yield from _shape(shape, location)
        for found in shape.iter(*GRAPHICS):
            with suppress(ExtractionError):
                _, target = targets.get(part_id(found), ("", ""))
                yield from graphic_blocks(parse_xml(read_member(archive, target)), location)
    for kind, target in targets.values():
        if kind.endswith("/notesSlide"):
            notes = parse_xml(read_member(archive, target))
            bodies = [shape for shape in notes.iter(f"{_P}sp") if _placeholder(shape) == "body"]
            text = "\n".join(text for shape in bodies for text, _ in _paragraphs(shape))
            if text.strip():
                yield paragraph(f"Notes: {text}", location)


def _box(shape: Any) -> Box:
    """Return the box of a shape; None if it has that of its layout."""
    found = next(shape.iter(f"{_A}xfrm", f"{_P}xfrm"), shape)
    try:
        x, y, width, height = (int(found.xpath(f"string(*/@{name})")) for name in ("x", "y", "cx", "cy"))
    except ValueError:
        return None
    return x, y, x + width, y + height


def _shapes(parent: Any, from_right: bool) -> Iterator[Any]:
    """Yield the shapes of a slide in reading order, those of a group together."""
    children = [child for child in parent if local_name(child) in _SHAPES]
    for at in reading_order([*map(_box, children)], from_right):
        is_shape = local_name(children[at]) in ("sp", "graphicFrame")
        yield from [children[at]] if is_shape else _shapes(children[at], from_right)


def reading_order(boxes: Sequence[Box], from_right: bool) -> Iterator[int]:
    """Yield the indexes of boxes, each after those above and before it, with what was drawn next to it."""
    left, last = [*range(len(boxes))], -1
    if len(boxes) > _MAX_ORDERED:
        yield from left
        return
    placed = [(at, _without_margin(box, from_right)) for at, box in enumerate(boxes) if box]
    waits: list[set[int]] = [set() for _ in boxes]
    for (a, (x0, y0, x1, y1)), (b, box) in permutations(placed, 2):
        if (y1 <= box[1] and x0 < box[2]) or (x1 <= box[0] and y0 < box[3]):  # above it, or before it
            waits[b].add(a)
    while left:
        ready = [at for at in left if waits[at].isdisjoint(left)] or left[:1]  # none is ready in a circle
        last = next((at for at in ready if abs(at - last) == 1), ready[0])
        left.remove(last)
        yield last


def _without_margin(box: tuple[int, int, int, int], from_right: bool) -> tuple[int, int, int, int]:
    """Return a box, mirrored if shapes are read from the right, smaller by what may overlap others."""
    left, top, right, bottom = (-box[2], box[1], -box[0], box[3]) if from_right else box
    across, down = min((right - left) // 8, _MAX_OVERLAP), min((bottom - top) // 8, _MAX_OVERLAP)
    return left + across, top + down, right - across, bottom - down


def _shape(shape: Any, location: Location) -> Iterator[Block]:
    if local_name(shape) == "graphicFrame":
        for found in shape.iter(f"{_A}tbl"):
            properties = found.find(f"{_A}tblPr")
            marked = properties is not None and properties.get("firstRow") in ("1", "true")
            rows: list[Row] = []
            for row in found.iter(f"{_A}tr"):
                rows.append(Row([*_cells(row, rows[-1].cells if rows else ())], location))
            yield from table(rows, has_header=True if marked else None)
        return
    is_list = _placeholder(shape) in ("body", "obj", "")
    for text, level in _paragraphs(shape):
        yield item(text, level, location) if is_list else paragraph(text, location)


def _placeholder(shape: Any) -> str | None:
    """Return the type of a placeholder, "" for one of content, or None for another shape."""
    found = shape.find(f"{_P}nvSpPr/{_P}nvPr/{_P}ph")
    return None if found is None else str(found.get("type", ""))


def _cells(row: Any, above: Sequence[str]) -> Iterator[str]:
    """Yield the texts of a row; a cell that continues the one above has its text."""
    for at, cell in enumerate(row.iter(f"{_A}tc")):
        continues = cell.get("vMerge") in ("1", "true") and at < len(above)
        yield above[at] if continues else " ".join(text for text, _ in _paragraphs(cell))


def _paragraphs(shape: Any) -> Iterator[tuple[str, int]]:
    for found in shape.iter(f"{_A}p"):
        text = "".join(
            "\n" if local_name(part) == "br" else part.text or "" for part in found.iter(f"{_A}t", f"{_A}br")
        )
        properties = found.find(f"{_A}pPr")
        level = "" if properties is None else properties.get("lvl", "")
        if text.strip():
            yield text.strip(), min(int(level), 8) if level.isdecimal() and len(level) == 1 else 0


def _property(archive: ZipFile) -> str:
    try:
        root = parse_xml(read_member(archive, "docProps/core.xml"))
    except ExtractionError:
        return ""
    return next((found.text or "" for found in root if local_name(found) == "title"), "").strip()
