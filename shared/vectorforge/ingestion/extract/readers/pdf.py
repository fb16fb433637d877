"""PDF, by pdfium: headings, paragraphs, lists and tables with their pages and rectangles.

Sizes of fonts tell headings from text (``pdf_paragraphs``), positions tell columns (``pdf_layout``)
and tables (``pdf_tables``). What repeats at the top or bottom of pages is left out, with page numbers.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
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
from vectorforge.ingestion.extract.readers.pdf_layout import arranged
from vectorforge.ingestion.extract.readers.pdf_paragraphs import (
    FontSizes,
    Outline,
    Paragraphs,
    location,
    with_line,
)
from vectorforge.ingestion.extract.readers.pdf_tables import Table
from vectorforge.ingestion.extract.readers.pdf_words import HYPHEN, Page, Segment, read_page
from vectorforge.ingestion.types import OcrOptions

_WRONG_PASSWORD: Final = 4  # FPDF_ERR_PASSWORD
_EDGE: Final = 0.12
"""Share of the page's height, at the top and at the bottom, where running heads are looked for."""
_EDGE_LINES: Final = 2
_PAGE_NUMBER: Final = re.compile(
    r"(?:(?:page|seite|p\.)\s*)?[-–—|]?\s*(?:\d{1,4}|[ivxlc]{1,7})\s*(?:(?:of|/|von)\s*\d{1,5})?\s*[-–—|]?",
    re.IGNORECASE,
)


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

    pdf.init_forms()
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
        FontSizes([one for page in pages if page and page.is_recognized is by_ocr for one in page.segments])
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
                found += Paragraphs(page, number, sizes[page.is_recognized], outline).of(part)
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
    text = with_line(before.text, block.text)
    shift = len(text) - len(block.text)
    return replace(
        before, text=text, places=[*before.places, *((shift + at, place) for at, place in block.places)]
    )
