"""Words, lines and rules of a PDF page, by pdfium, in points from the top left corner of the shown page."""

import ctypes
import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise
from typing import Any, Final, NamedTuple, TypeAlias
from unicodedata import normalize

from vectorforge.ingestion.extract.blocks import is_from_right
from vectorforge.ingestion.extract.readers.pdf_forms import field_values

_HYPHENS: Final = ("\x02", "\ufffe", "\xad")
"""Characters by which pdfium marks a hyphen at the end of a line."""
HYPHEN: Final = "\xad"
"""Mark of a hyphen that joins the line with the next one."""
_MAX_WORDS: Final = 20_000
"""A page with more is read without its layout; a page of dense text has about 1,500."""
_MAX_RULES: Final = 2_000
_MAX_OBJECTS: Final = 50_000
"""Objects of a page, or of a form on it, looked at for lines."""
_NAME_BYTES: Final = 128
_MANY_SHAPES: Final = 50
_FROM_RIGHT: Final = re.compile("[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc]+")

_THICK: Final = 3.0
"""Points up to which a rectangle is a line."""
BULLETS: Final = frozenset("•▪◦‣●○■□➢✓·\uf0b7\uf0a7")


class Box(NamedTuple):
    """Rectangle in points, y downwards."""

    x0: float
    y0: float
    x1: float
    y1: float


_Transformation: TypeAlias = Callable[[float, float, float, float], Box]


@dataclass(slots=True)
class Segment:
    """Part of a line without wide gaps."""

    text: str
    x0: float
    y0: float
    x1: float
    y1: float
    bold: bool

    @property
    def height(self) -> float:
        """Height from descent to ascent of the font, about 1.2 times its size."""
        return self.y1 - self.y0

    @property
    def middle(self) -> float:
        """Vertical middle."""
        return (self.y0 + self.y1) / 2


@dataclass(slots=True)
class Page:
    """Text of a page."""

    width: float
    height: float
    segments: Sequence[Segment]
    horizontals: Sequence[Box] = ()
    """Straight lines, as of tables."""
    verticals: Sequence[Box] = ()
    plain: str = ""
    """The text without layout, if the page has too many words; then there are no segments."""
    is_picture: bool = False
    """True if no text but of form fields, and an image, or so many shapes that they may be letters."""
    is_recognized: bool = False
    """True if the text comes from OCR: the heights of letters are estimates."""
    skew: float = 0.0
    """Angle in radians by which a page was turned to make its lines level, around its middle."""
    is_mirrored: bool = False
    """True if the page is read from the right: left and right are exchanged."""

    def as_shown(self, box: Box) -> Box:
        """Return the rectangle around a box of the level page, on the page as shown."""
        box = _mirrored(box, self.width) if self.is_mirrored else box
        return _turned(box, self.width, self.height, self.skew) if self.skew else box


def rotated(x: float, y: float, width: float, height: float, angle: float) -> tuple[float, float]:
    """Return a point rotated around the middle of a page, clockwise for positive angles."""
    sine, cosine = math.sin(angle), math.cos(angle)
    from_x, from_y = x - width / 2, y - height / 2
    return width / 2 + from_x * cosine - from_y * sine, height / 2 + from_x * sine + from_y * cosine


def _turned(box: Box, width: float, height: float, angle: float) -> Box:
    corners = [rotated(x, y, width, height, angle) for x in (box.x0, box.x1) for y in (box.y0, box.y1)]
    xs, ys = zip(*corners, strict=True)
    return Box(min(xs), min(ys), max(xs), max(ys))


def _mirrored(box: Box, width: float) -> Box:
    return Box(width - box.x1, box.y0, width - box.x0, box.y1)


def read_page(page: Any) -> Page:
    """Return the text of a page of pypdfium2.

    Raises:
        pypdfium2.PdfiumError: The page is damaged.
    """
    text_page = page.get_textpage()
    width, height = page.get_size()
    shown = _transformation(page)
    words = [*_words(text_page, shown)]
    if len(words) > _MAX_WORDS:
        plain = normalize("NFC", text_page.get_text_range().replace("\r\n", "\n"))
        return Page(width, height, [], plain=plain)
    skew = _quarter_turn(words)
    is_mirrored = is_from_right(word.text for word in words)

    def level(*edges: float) -> Box:
        box = _turned(shown(*edges), width, height, -skew) if skew else shown(*edges)
        return _mirrored(box, width) if is_mirrored else box

    words = [*_words(text_page, level)] if skew or is_mirrored else words
    for before, word in pairwise(words if is_mirrored else ()):
        if before.y0 <= word.y0 and word.y1 < before.y1 + 1:  # ligatures have no room above and below
            word.y0, word.y1 = before.y0, before.y1
    rules = [*_rules(page, level)]
    horizontals = [rule for rule in rules if rule.y0 == rule.y1]
    verticals = [rule for rule in rules if rule.x0 == rule.x1]
    fields = (Segment(text, *level(*edges), False) for text, edges in field_values(page))
    segments = [*_segments(words, verticals), *fields]
    is_picture = not words and _is_picture(page)
    return Page(
        *(width, height, segments, horizontals, verticals),
        is_picture=is_picture,
        skew=skew,
        is_mirrored=is_mirrored,
    )


def _quarter_turn(words: Sequence[Segment]) -> float:
    """Return the angle of text that runs down or up the page, as of a wide table; 0 if most is level."""
    sideways = sum(word.height > word.x1 - word.x0 for word in words if len(word.text) > 2)
    if 2 * sideways <= sum(len(word.text) > 2 for word in words):
        return 0.0
    steps = (b.middle - a.middle for a, b in pairwise(words) if a.x0 < (b.x0 + b.x1) / 2 < a.x1)
    return math.copysign(math.pi / 2, sum(1 if step > 0 else -1 for step in steps))


def _is_picture(page: Any) -> bool:
    from pypdfium2 import raw

    shapes = page.get_objects(filter=[raw.FPDF_PAGEOBJ_IMAGE, raw.FPDF_PAGEOBJ_PATH], max_depth=3)
    kinds = [one.type for one in islice(shapes, _MANY_SHAPES)]
    return raw.FPDF_PAGEOBJ_IMAGE in kinds or len(kinds) == _MANY_SHAPES


def words_of_page(page: Any) -> list[Segment]:
    """Return the words of a page of pypdfium2 in the order of the file; at most about 20,000."""
    return [*_words(page.get_textpage(), _transformation(page))]


def _transformation(page: Any) -> _Transformation:
    """Return the function from a rectangle of PDF (left, bottom, right, top) to one of the page as shown."""
    left, bottom, right, top = page.get_cropbox()
    rotation = page.get_rotation()

    def shown(x0: float, y0: float, x1: float, y1: float) -> Box:
        if rotation == 90:
            return Box(y0 - bottom, x0 - left, y1 - bottom, x1 - left)
        if rotation == 180:
            return Box(right - x1, y0 - bottom, right - x0, y1 - bottom)
        if rotation == 270:
            return Box(top - y1, right - x1, top - y0, right - x0)
        return Box(x0 - left, top - y1, x1 - left, top - y0)

    return shown


def _words(text_page: Any, shown: _Transformation) -> Iterator[Segment]:
    from pypdfium2 import raw

    count = text_page.count_chars()
    start, letters = 0, list[str]()
    found = 0
    for index in range(count + 1):
        code = raw.FPDFText_GetUnicode(text_page, index) if index < count else 0x20
        letter = HYPHEN if chr(code) in _HYPHENS else chr(code)
        if letter == HYPHEN or (code > 0x20 and not letter.isspace()):
            start = index if not letters else start
            letters.append(letter)
        if letters and (letter == HYPHEN or code <= 0x20 or letter.isspace()):
            yield _word(text_page, shown, start, start + len(letters) - 1, "".join(letters))
            letters, found = [], found + 1
            if found > _MAX_WORDS:
                return


def _word(text_page: Any, shown: _Transformation, first: int, last: int, text: str) -> Segment:
    from pypdfium2 import raw

    box, edges = raw.FS_RECTF(), list[float]()
    ends = (first + at for run in _FROM_RIGHT.finditer(text) for at in (run.start(), run.end() - 1))
    for at in (first, last, *ends):
        raw.FPDFText_GetLooseCharBox(text_page, at, box)
        edges += (box.left, box.bottom, box.right, box.top)
    place = shown(min(edges[0::4]), min(edges[1::4]), max(edges[2::4]), max(edges[3::4]))
    text = _FROM_RIGHT.sub(lambda run: _in_order(text_page, first, run), text)
    name = ctypes.create_string_buffer(_NAME_BYTES)
    raw.FPDFText_GetFontInfo(text_page, first, name, _NAME_BYTES, ctypes.c_int())
    bold = b"bold" in name.value.lower() or raw.FPDFText_GetFontWeight(text_page, first) >= 600
    return Segment(normalize("NFC", text), *place, bold)


def _in_order(text_page: Any, first: int, run: re.Match[str]) -> str:
    """Return letters of a script written from the right, which some programs write as they are shown."""
    left, right = (text_page.get_charbox(first + at)[0] for at in (run.start(), run.end() - 1))
    return run[0][::-1] if left < right else run[0]


def _segments(words: Sequence[Segment], verticals: Sequence[Box]) -> Iterator[Segment]:
    """Join the words that follow each other on a line, up to a wide gap, a vertical rule or a bullet."""
    current: Segment | None = None
    for word in words:
        height = max(word.height, 1.0)
        if (
            current is not None
            and abs(word.middle - current.middle) < 0.4 * height
            and -0.3 * height < word.x0 - current.x1 < 0.9 * height
            and current.text not in BULLETS
            and word.text not in BULLETS
            and not any(
                current.x1 - 1 < rule.x0 < word.x0 + 1 and rule.y0 < word.middle < rule.y1
                for rule in verticals
            )
        ):
            current.text = (
                current.text[:-1] + word.text if current.text[-1] == HYPHEN else f"{current.text} {word.text}"
            )
            current.x1 = max(current.x1, word.x1)
            if 0.8 * current.height < height < 1.5 * current.height:  # not of superscripts
                current.y0, current.y1 = min(current.y0, word.y0), max(current.y1, word.y1)
            current.bold = current.bold and word.bold
            continue
        if current is not None:
            yield current
        current = word
    if current is not None:
        yield current


def _rules(page: Any, shown: _Transformation) -> Iterator[Box]:
    """Yield the straight lines of a page, and the sides of its rectangles."""
    for bounds in islice(_path_bounds(page), _MAX_RULES):
        box = shown(*bounds)
        wide, high = box.x1 - box.x0 > _THICK, box.y1 - box.y0 > _THICK
        if wide:
            yield Box(box.x0, box.y0, box.x1, box.y0)
        if high:
            yield Box(box.x0, box.y0, box.x0, box.y1)
        if wide and high:
            yield Box(box.x0, box.y1, box.x1, box.y1)
            yield Box(box.x1, box.y0, box.x1, box.y1)


def _path_bounds(page: Any) -> Iterator[tuple[float, float, float, float]]:
    """Yield left, bottom, right and top of the paths on a page and in its forms.

    Without pypdfium2's objects, which took 40 % of the time of a manual with 3,700 objects on a page.
    """
    from pypdfium2 import raw

    edges = [ctypes.c_float() for _ in range(4)]
    for item in _objects(page, raw.FPDFPage_CountObjects, raw.FPDFPage_GetObject):
        kind = raw.FPDFPageObj_GetType(item)
        in_form = (
            _objects(item, raw.FPDFFormObj_CountObjects, raw.FPDFFormObj_GetObject)
            if kind == raw.FPDF_PAGEOBJ_FORM
            else ()
        )
        for one in (item, *in_form):
            is_path = raw.FPDFPageObj_GetType(one) == raw.FPDF_PAGEOBJ_PATH
            if is_path and raw.FPDFPageObj_GetBounds(one, *edges):
                left, bottom, right, top = (edge.value for edge in edges)
                yield left, bottom, right, top


def _objects(parent: Any, count: Callable[[Any], int], get: Callable[[Any, int], Any]) -> Iterator[Any]:
    for number in range(min(count(parent), _MAX_OBJECTS)):
        if item := get(parent, number):
            yield item
