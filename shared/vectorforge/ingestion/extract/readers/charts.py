"""Charts of Office files as tables, with a row for each category, and diagrams (SmartArt) as lists."""

from collections.abc import Mapping
from typing import Any, Final

from vectorforge.ingestion.extract.blocks import Block, BlockKind, Row, item, table
from vectorforge.ingestion.extract.readers.number_formats import format_number
from vectorforge.types import Location

_A: Final = "{http://schemas.openxmlformats.org/drawingml/2006/main}"
_C: Final = "{http://schemas.openxmlformats.org/drawingml/2006/chart}"


_D: Final = "{http://schemas.openxmlformats.org/drawingml/2006/diagram}"
_R: Final = "{http://schemas.openxmlformats.org/officeDocument/2006/relationships}"
GRAPHICS: Final = (f"{_C}chart", f"{_D}relIds")
"""Elements of documents and slides that refer to charts and to the data of diagrams."""


def part_id(graphic: Any) -> str:
    """Return the relation of an element of ``GRAPHICS``."""
    return str(graphic.get(f"{_R}id") or graphic.get(f"{_R}dm", ""))


def graphic_blocks(root: Any, location: Location | None = None) -> list[Block]:
    """Return title and stored values of a chart, or the texts of a diagram."""
    if root.tag == f"{_D}dataModel":
        points = [one for one in root.iter(f"{_D}pt") if one.get("type", "node") in ("node", "asst")]
        texts = (" ".join(text.text or "" for text in one.iter(f"{_A}t")) for one in points)
        return [item(text, location=location) for text in texts]
    title = "".join(text.text or "" for text in root.iterfind(f"{_C}chart/{_C}title//{_A}t"))
    names, columns = ["Category"], list[Mapping[str, str]]()
    categories: dict[str, str] = {}
    for series in root.iter(f"{_C}ser"):
        categories = {**_points(series, "cat", "xVal"), **categories}
        names.append(" ".join(_points(series, "tx").values()) or f"Series {len(names)}")
        columns.append(_points(series, "val", "yVal"))
    rows = [
        Row([name, *(column.get(index, "") for column in columns)], location)
        for index, name in categories.items()
    ]
    caption = Block(BlockKind.CAPTION, title, location=location)
    return [caption, *table([Row(names), *rows], has_header=True)] if rows else [caption]


def _points(series: Any, *kinds: str) -> dict[str, str]:
    """Return the texts of the points of a series by their index; of several levels the innermost."""
    points: dict[str, str] = {}
    for kind in kinds:
        code = next((one.text or "" for one in series.iterfind(f"{_C}{kind}//{_C}formatCode")), "")
        for point in series.iterfind(f"{_C}{kind}//{_C}pt"):
            text = (point.findtext(f"{_C}v") or "").strip()
            points.setdefault(point.get("idx", ""), _formatted(text, code))
    return points


def _formatted(text: str, code: str) -> str:
    try:
        return (format_number(float(text), code) if code else None) or text
    except ValueError:
        return text
