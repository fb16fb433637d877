"""PDF, by pdfium: headings, paragraphs, lists and tables with their pages and rectangles.

Sizes of fonts tell headings from text, positions tell columns and tables: see ``pdf_layout``. What repeats at
the top or bottom of pages is left out, with page numbers.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from statistics import median
from typing import Any, Final

from vectorforge.errors import ExtractionError
from vectorforge.ingestion.extract.blocks import (
    Block,
    BlockKind,
    Reading,
    Row,
    paragraph,
    table,
    usable_title,
)
from vectorforge.ingestion.extract.readers.ocr import SWITCH_ON, engine_of, recognized
from vectorforge.ingestion.extract.readers.pdf_layout import Line, Table, arranged
from vectorforge.ingestion.extract.readers.pdf_outline import Outline
from vectorforge.ingestion.extract.readers.pdf_words import HYPHEN, Box, Page, Segment, read_page
from vectorforge.ingestion.types import OcrOptions
from vectorforge.types import Location

_WRONG_PASSWORD: Final = 4  # FPDF_ERR_PASSWORD
_EDGE: Final = 0.12
"""Share of the page's height, at the top and at the bottom, where running heads are looked for."""
_EDGE_LINES: Final = 2
_PAGE_NUMBER: Final = re.compile(
    r"(?:(?:page|seite|p\.)\s*)?[-–—|]?\s*(?:\d{1,4}|[ivxlc]{1,7})\s*(?:(?:of|/|von)\s*\d{1,5})?\s*[-–—|]?",
    re.IGNORECASE,
)
_BULLET: Final = re.compile("[•▪◦‣●○■□➢✓\uf0b7\uf0a7*–—-]\\s+(?=\\S)")
_NUMBERED: Final = re.compile(r"(?:\(?(?:\d{1,3}|[a-z])[.)]|\d+(?:\.\d+)+\.?)\s+\S")
_CAPTION: Final = re.compile(r"(?:figure|fig\.|table|listing|abbildung|tabelle)\s+\d", re.IGNORECASE)
_LEADER: Final = re.compile(r"(?:\s?[.·…]){4,}")
"""Dots from an entry of a table of contents to its page."""
_LARGER: Final = 1.12
"""Height of a heading's letters, at least, in those of the text."""
_MAX_HEADING_CHARS: Final = 200
_MAX_HEADING_LINES: Final = 3


def read_pdf(content: bytes, *, ocr: OcrOptions = OcrOptions()) -> Reading:  # noqa: B008 - immutable
    """Read the text layer of a PDF in reading order, and recognize the pages without one.

    Args:
        content: The PDF.
        ocr: Engine and limits; not enabled: pages without a text layer are left out.

    Returns:
        ``title``: the document's property, else the largest heading of the first page.

    Raises:
        ExtractionError: ``encrypted``, ``unreadable``, ``empty`` when no page has text, ``too_large`` when
            too many pages must be recognized, or ``not_deployed`` without an engine.
    """
    import pypdfium2

    try:
        pdf = pypdfium2.PdfDocument(content)
        pages = [*_read_pages(pdf)]
        outline = Outline(pdf)
        pictures = [number for number, page in enumerate(pages) if page and page.is_picture]
        if ocr.enabled and pictures:
            _recognize(pdf, pages, pictures, ocr)
        title = usable_title(pdf.get_metadata_value("Title"))
    except pypdfium2.PdfiumError as exc:
        if getattr(exc, "err_code", None) == _WRONG_PASSWORD:
            raise ExtractionError("The PDF is protected by a password.", reason="encrypted") from exc
        raise ExtractionError("The PDF is damaged and cannot be read.") from exc
    broken = sum(page is None for page in pages)
    if broken and broken == len(pages):
        raise ExtractionError("The PDF is damaged and cannot be read.")
    if not any(page and (page.segments or page.plain) for page in pages):
        raise ExtractionError(
            "OCR found no text in the PDF." if ocr.enabled else f"The PDF has no text layer. {SWITCH_ON}",
            reason="empty",
        )
    warnings = [f"{broken} damaged pages were left out."] if broken else []
    if pictures and not ocr.enabled:
        warnings.append(f"{len(pictures)} pages without a text layer were left out. {SWITCH_ON}")
    blocks = [*_blocks(pages, outline)]
    return Reading(blocks, title or _first_heading(blocks), warnings)


def _read_pages(pdf: Any) -> Iterator[Page | None]:
    import pypdfium2

    for index in range(len(pdf)):
        try:
            page = pdf[index]
            yield read_page(page)
            page.close()
        except pypdfium2.PdfiumError:
            yield None


def _recognize(pdf: Any, pages: list[Page | None], pictures: Sequence[int], ocr: OcrOptions) -> None:
    """Replace pages that are pictures by their text."""
    if len(pictures) > ocr.max_pages:
        raise ExtractionError(
            f"{len(pictures):,} pages have no text layer; OCR reads at most {ocr.max_pages:,}. Split the "
            "document, or raise VECTORFORGE_OCR_MAX_PAGES.",
            reason="too_large",
        )
    read = engine_of(ocr)
    for number in pictures:
        page = pdf[number]
        pages[number] = recognized(page, read)
        page.close()


def _first_heading(blocks: Sequence[Block]) -> str | None:
    return next(
        (block.text for block in blocks[:20] if block.kind is BlockKind.HEADING and block.level == 1), None
    )


def _blocks(pages: Sequence[Page | None], outline: Outline) -> Iterator[Block]:
    repeated = {id(one) for one in _repeated({n: page for n, page in enumerate(pages, start=1) if page})}
    sizes = [
        _Sizes([one for page in pages if page and page.is_recognized is by_ocr for one in page.segments])
        for by_ocr in (False, True)
    ]
    header: Sequence[str] = ()
    last: Block | None = None
    for number, page in enumerate(pages, start=1):
        if page is None:
            continue
        page.segments = [one for one in page.segments if id(one) not in repeated]
        parts = arranged(page) if not page.plain else iter(())
        found = [paragraph(page.plain, {"page": number})] if page.plain else []
        for part in parts:
            if isinstance(part, Table):
                made = _table(part, page, number, header)
                header = made[-1].header if made else header
                found += made
            else:
                found += _Paragraphs(page, number, sizes[page.is_recognized], outline).of(part)
        for block in found:
            joined = _joined(last, block) if last is not None else None
            if joined is None and last is not None:
                yield last
            last = joined or block
    if last is not None:
        yield last


def _edge_lines(page: Page) -> Iterator[tuple[str, list[Segment]]]:
    """Yield the outermost lines at top and bottom, each with its segments."""
    ordered = sorted(page.segments, key=lambda one: one.middle)
    for zone, segments in (("top", ordered), ("bottom", ordered[::-1])):
        lines: list[list[Segment]] = []
        for one in segments:
            share = one.y1 / page.height if zone == "top" else 1 - one.y0 / page.height
            if share > _EDGE:
                break
            if lines and abs(one.middle - lines[-1][0].middle) < 3:
                lines[-1].append(one)
            elif len(lines) == _EDGE_LINES:
                break
            else:
                lines.append([one])
        yield from ((zone, line) for line in lines)


def _repeated(pages: Mapping[int, Page]) -> Iterator[Segment]:
    """Yield running heads and page numbers, given the pages by number.

    These are lines alone with a page number; lines with a number that grows with the page; and words at the
    same edge of three pages, or of two in a document of up to four pages.
    """
    lines = [(number, zone, line) for number, page in pages.items() for zone, line in _edge_lines(page)]
    texts = {(number, zone, _words_of(one)) for number, zone, line in lines for one in line}
    counts = Counter((zone, words) for _, zone, words in texts if words)
    offsets = Counter((zone, offset) for n, zone, line in lines for offset in _offsets(line, n))
    least = 2 if len(pages) <= 4 else 3
    for number, zone, line in lines:
        is_numbered = any(offsets[zone, offset] >= least for offset in _offsets(line, number))
        is_number = (
            len(line) == 1 and _PAGE_NUMBER.fullmatch(line[0].text) and len(pages[number].segments) > 1
        )
        for one in line:
            if is_numbered or is_number or counts[zone, _words_of(one)] >= least:
                yield one


def _offsets(line: Sequence[Segment], page: int) -> list[int]:
    """Return the distances of numbers at the ends of a line from the page's number."""
    ends = {line[0].text, line[-1].text}
    return [int(text) - page for text in ends if text.isdecimal() and len(text) < 5]


def _words_of(one: Segment) -> str:
    """Return a text without its numbers; empty if it has no letters."""
    words = re.sub("[0-9]+", "#", one.text)
    return words if re.search(r"[^\W\d_]", words) else ""


class _Sizes:
    """Heights of the document's fonts: the text's, and those of headings with their levels.

    Args:
        segments: All text.
    """

    def __init__(self, segments: Sequence[Segment]) -> None:
        chars: Counter[float] = Counter()
        for one in segments:
            chars[_rounded(one.height)] += len(one.text)
        self.body = chars.most_common(1)[0][0] if chars else 1.0
        larger = sorted((size for size in chars if size >= _LARGER * self.body), reverse=True)
        self._levels = {size: min(level, 5) for level, size in enumerate(larger, start=1)}
        self.below = min(len(larger) + 1, 6)
        """Level of bold headings in the size of the text."""

    def level(self, height: float) -> int | None:
        """Return the level of a heading in a font of a height, None if it is not larger than the text."""
        return self._levels.get(_rounded(height))


def _rounded(height: float) -> float:
    return round(height * 2) / 2


class _Paragraphs:
    """Joins the lines of a column to blocks.

    Args:
        page: Page of the lines.
        number: Its number, from 1.
        sizes: Heights of the document's fonts.
        outline: Headings named by the author.
    """

    def __init__(self, page: Page, number: int, sizes: _Sizes, outline: Outline) -> None:
        self._page = page
        self._number = number
        self._sizes = sizes
        self._outline = outline

    def of(self, lines: Sequence[Line]) -> Iterator[Block]:
        gaps = [(b.box.y1 - a.box.y1, b.height) for a, b in pairwise(lines)]
        usual = [gap for gap, height in gaps if 0.7 * height < gap < 1.45 * height]
        self._leading = median(usual) if usual else 0.0
        run: list[Line] = []
        for line in lines:
            if run and self._begins(run, line):
                yield self._block(run)
                run = []
            run.append(line)
        if run:
            yield self._block(run)

    def _begins(self, run: Sequence[Line], line: Line) -> bool:
        before = run[-1]
        height = line.height
        is_other_font = abs(height - before.height) > 0.08 * height or before.bold != line.bold
        distance = line.box.y1 - before.box.y1
        if (
            is_other_font
            or distance > max(1.25 * self._leading + 1, 1.1 * height)
            or distance < 0
            or self._starts_item(line, run)
        ):
            return True
        is_short = before.box.x1 < before.right - 0.2 * (before.right - before.box.x0)
        is_indented = line.box.x0 > before.box.x0 + 0.6 * height and len(run) > 1
        return before.text[-1:] in ".!?:" and (is_short or is_indented)

    def _starts_item(self, line: Line, run: Sequence[Line]) -> bool:
        if _BULLET.match(line.text):
            return True
        return bool(_NUMBERED.match(line.text)) and line.box.x0 <= run[0].box.x0 + 2

    def _block(self, run: Sequence[Line]) -> Block:
        text, places = "", list[tuple[int, Location]]()
        for line in run:
            shown = _LEADER.sub(" …", line.text)
            text = _with_line(text, shown)
            offset = len(text) - len(shown)
            places.append((offset if places else 0, location(line.box, self._page, self._number)))
        text = text.replace(HYPHEN, "-")
        bullet = _BULLET.match(text)
        level = None if bullet else self._heading_level(run, text)
        if level is not None:
            return Block(BlockKind.HEADING, text, level, places[0][1])
        if bullet:
            rest = text[bullet.end() :]
            moved = [(max(0, offset - bullet.end()), place) for offset, place in places]
            return Block(BlockKind.ITEM, rest, places=moved)
        return Block(BlockKind.CAPTION if _CAPTION.match(text) else BlockKind.PARAGRAPH, text, places=places)

    def _heading_level(self, run: Sequence[Line], text: str) -> int | None:
        if len(run) > _MAX_HEADING_LINES or len(text) > _MAX_HEADING_CHARS or " … " in text:
            return None
        if not re.search(r"[^\W\d_]", text):
            return None
        return self._outline.level(self._number, text, self._level_by_font(run, text))

    def _level_by_font(self, run: Sequence[Line], text: str) -> int | None:
        level = self._sizes.level(run[0].height)
        if level is not None:
            return level
        is_title = run[0].bold and len(run) == 1 and len(text) <= 100 and text[-1] not in ".,;:"
        is_body = _rounded(run[0].height) >= self._sizes.body
        return self._sizes.below if is_title and is_body else None


def _with_line(text: str, line: str) -> str:
    """Join a line with the text before it; a hyphen at the line's end is dropped within a word."""
    if not text:
        return line
    if text[-1] in ("-", HYPHEN) and line[:1].islower() and text[-2:-1].isalpha():
        return text[:-1] + line
    return f"{text} {line}"


def location(box: Box, page: Page, number: int) -> Location:
    """Return page and rectangle of a box, as shares of the page between 0 and 1."""
    box = page.as_shown(box)
    shares = (box.x0 / page.width, box.y0 / page.height, box.x1 / page.width, box.y1 / page.height)
    return {"page": number, "rect": [round(min(max(share, 0.0), 1.0), 4) for share in shares]}


def _table(found: Table, page: Page, number: int, above: Sequence[str]) -> list[Block]:
    """Return a table; one without a header, as after a page break, has that of the table above if it fits."""
    rows = [
        Row([cell.replace(HYPHEN, "-") for cell in row.cells], location(row.box, page, number))
        for row in found.rows
    ]
    made = table(rows, has_header=True if found.rows[0].bold and not found.rows[1].bold else None)
    if made and not made[0].header and len(above) == len(rows[0].cells):
        made = [replace(made[0], header=above)]
    return made


def _joined(before: Block, block: Block) -> Block | None:
    """Return two paragraphs as one if a page or column break divides a sentence, else None."""
    if before.kind is not BlockKind.PARAGRAPH or block.kind is not BlockKind.PARAGRAPH:
        return None
    if not before.places or not block.places or not block.text[:1].islower() or before.text[-1] in ".!?:;":
        return None
    if before.places[-1][1]["rect"][3] < block.places[0][1]["rect"][1]:  # further down: no break
        return None
    text = _with_line(before.text, block.text)
    shift = len(text) - len(block.text)
    return replace(
        before, text=text, places=[*before.places, *((shift + at, place) for at, place in block.places)]
    )
