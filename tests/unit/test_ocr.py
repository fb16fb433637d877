"""OCR: scans made here with known lines, read by the real engines where they are installed."""

import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pypdfium2
import pytest

from tests.support.documents import one, pdf
from tests.support.formats.scans import Drawn, Sheet, file_of, pdf_of, prose
from vectorforge.errors import ExtractionError
from vectorforge.ingestion.chunk import ChunkingConfig
from vectorforge.ingestion.drafts import draft_chunks
from vectorforge.ingestion.extract import extract
from vectorforge.ingestion.extract.readers.ocr import MAX_PIXELS, Found, _lines, recognized
from vectorforge.ingestion.types import ExtractedDocument, ExtractionLimits, OcrOptions

HEADING = Drawn("Harbour rules of Aldervale", 72, 90, 22)
TERMS = [
    "The mooring fee at the northern quay is 48 crowns a night, and",
    "boats longer than twelve metres pay twice as much. The office is",
    "open from April to October, and closed on public holidays.",
]
TEXT = "Dredging of the basin starts in Elsingby on 3 March."
WATCH = [
    "The night watch begins at 21:40 and ends when the ferry from",
    "Kestwick has landed. Lights are switched off at midnight.",
]
SKEW = 2.5
PRICES = [
    Drawn(cell, x, 300 + 24 * row)
    for row, cells in enumerate([("Berth", "Length", "Price"), ("A1", "8", "310"), ("B7", "12", "465")])
    for x, cell in zip((72, 220, 360), cells, strict=True)
]
SHEETS = [
    Sheet([HEADING, *prose(TERMS)]),
    Sheet(prose([TEXT]), scanned=False),
    Sheet([*prose(WATCH), *PRICES], skew=SKEW, ink=120, paper=205),
]
TESSERACT = """level\tpage_num\tblock_num\tpar_num\tline_num\tword_num\tleft\ttop\twidth\theight\tconf\ttext
4\t1\t1\t1\t1\t0\t100\t200\t400\t20\t-1\t
5\t1\t1\t1\t1\t1\t100\t200\t50\t20\t96.1\tBerth
5\t1\t1\t1\t1\t2\t160\t204\t30\t16\t95.9\tB7
5\t1\t1\t1\t1\t3\t210\t180\t4\t60\t91.0\t|
5\t1\t1\t1\t1\t4\t400\t202\t40\t16\t92.5\t465
5\t1\t1\t1\t1\t5\t446\t206\t54\t12\t88.0\tcrowns
5\t1\t2\t1\t1\t1\t10\t900\t300\t90\t11.3\t~;.
"""
ENABLED = OcrOptions(enabled=True)


def read(content: bytes, source: str = "scan.pdf", **limits: object) -> ExtractedDocument:
    given = ExtractionLimits(**{"ocr": ENABLED, **limits})  # type: ignore[arg-type]
    [document] = extract(content, source=source, limits=given)
    return document


def failure_of(content: bytes, source: str = "scan.pdf", **limits: object) -> ExtractionError:
    with pytest.raises(ExtractionError) as failure:
        read(content, source, **limits)
    return failure.value


def rects_of(document: ExtractedDocument, text: str, page: int) -> Iterator[list[float]]:
    """Yield the rectangles of the spans that have a text."""
    for span in document.spans:
        if text in document.text[span.start : span.end] and span.location:
            assert span.location["page"] == page
            yield span.location["rect"]


@pytest.fixture(scope="module")
def mixed() -> ExtractedDocument:
    """Read a PDF with a scan, a page of text, and a scan that is turned and faded."""
    return read(pdf_of(SHEETS))


def test_scanned_pages_of_mixed_pdf_are_read_in_order(mixed: ExtractedDocument) -> None:
    assert mixed.title == HEADING.text
    assert mixed.text.startswith(f"# {HEADING.text}\n\n{' '.join(TERMS)}\n\n{TEXT}\n\n{' '.join(WATCH)}")
    assert "Berth: A1; Length: 8; Price: 310\n\nBerth: B7; Length: 12; Price: 465" in mixed.text


@pytest.mark.parametrize(
    ("fact", "page", "line"),
    [
        ("48 crowns", 1, SHEETS[0].lines[1]),
        ("3 March", 2, SHEETS[1].lines[0]),
        ("21:40", 3, SHEETS[2].lines[0]),
    ],
)
def test_fact_of_scan_has_page_and_place(mixed: ExtractedDocument, fact: str, page: int, line: Drawn) -> None:
    [chunk] = [
        c for c in draft_chunks(mixed, ChunkingConfig(chunk_size=200, chunk_overlap=50)) if fact in c.text
    ]
    assert page in [location["page"] for location in chunk.locations]
    x, y = line.middle(SKEW if page == 3 else 0)
    [(x0, y0, x1, y1)] = rects_of(mixed, fact, page)
    assert x0 < x < x1
    assert y0 < y < y1
    assert y1 - y0 < 0.06


def test_scan_without_ocr_is_rejected_with_advice() -> None:
    with pytest.raises(
        ExtractionError, match=r"no text layer.*ingest --ocr.*`ocr` of the collection"
    ) as failure:
        extract(pdf_of(SHEETS[:1]), source="scan.pdf")
    assert failure.value.reason == "empty"


def test_mixed_pdf_without_ocr_keeps_its_text_and_warns() -> None:
    document = one(pdf_of(SHEETS), "mixed.pdf")
    assert document.text == TEXT
    [warning] = document.warnings
    assert warning.startswith("2 pages without a text layer were left out. OCR can read")
    assert one(pdf("x", ""), "blank.pdf").warnings == ()


@pytest.mark.skipif(shutil.which("tesseract") is None, reason="tesseract is not installed")
def test_tesseract_reads_the_same_lines() -> None:
    document = read(pdf_of(SHEETS[:1]), ocr=OcrOptions(enabled=True, engine="tesseract"))
    assert document.text == f"# {HEADING.text}\n\n{' '.join(TERMS)}"
    [(x0, y0, x1, y1)] = rects_of(document, "48 crowns", 1)
    x, y = SHEETS[0].lines[1].middle()
    assert x0 < x < x1
    assert y0 < y < y1


def test_output_of_tesseract_becomes_lines_cut_at_wide_gaps() -> None:
    lines = [*_lines(TESSERACT)]
    assert [one.text for one in lines] == ["Berth B7", "465 crowns"]
    assert lines[0] == Found("Berth B7", (100, 210), (190, 212), 25)


def test_blank_pages_are_not_recognized() -> None:
    failure = failure_of(pdf("", ""), ocr=OcrOptions(enabled=True, max_pages=1))
    assert (failure.reason, failure.message) == ("empty", "OCR found no text in the PDF.")


def test_more_scanned_pages_than_the_limit_are_rejected() -> None:
    failure = failure_of(pdf_of(SHEETS), ocr=OcrOptions(enabled=True, max_pages=1))
    assert failure.reason == "too_large"
    assert "at most 1" in failure.message
    assert "VECTORFORGE_OCR_MAX_PAGES" in failure.message


def test_large_page_is_recognized_with_limited_pixels() -> None:
    page = pypdfium2.PdfDocument(pdf_of(SHEETS[:1]))[0]
    page.set_mediabox(0, 0, 14_000, 14_000)
    seen = []

    def engine(pixels: bytes, width: int, height: int) -> list[Found]:
        seen.append((len(pixels), width * height))
        return [Found("Text", (0, height), (width, height), 10)]

    [segment] = recognized(page, engine).segments
    [(count, area)] = seen
    assert count == area
    assert 0.9 * MAX_PIXELS < area < 1.01 * MAX_PIXELS
    assert (round(segment.x1), round(segment.y0 + segment.y1)) == (14_000, 28_000)


def test_recognition_stops_at_the_time_limit() -> None:
    started = time.monotonic()
    failure = failure_of(pdf_of(SHEETS[:1] * 20), timeout_s=1)
    assert (failure.reason, "VECTORFORGE_EXTRACTION_TIMEOUT_S" in failure.message) == ("too_large", True)
    assert time.monotonic() - started < 10


def test_missing_engine_is_named_with_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    failure = failure_of(pdf_of(SHEETS[:1]), ocr=OcrOptions(enabled=True, engine="tesseract"))
    assert failure.reason == "not_deployed"
    assert "VECTORFORGE_OCR_ENGINE is tesseract" in failure.message
    assert "not installed here: install tesseract (tesseract-ocr on Debian)." in failure.message
    assert "vectorforge[ocr]" not in failure.message


@pytest.mark.parametrize(("kind", "source"), [("PNG", "a.png"), ("JPEG", "a.jpeg"), ("TIFF", "a.tif")])
def test_image_without_ocr_is_rejected_with_advice(kind: str, source: str) -> None:
    with pytest.raises(ExtractionError) as failure:
        extract(file_of(SHEETS[0], kind), source=source)
    assert (failure.value.reason, "--ocr" in failure.value.message) == ("unsupported_type", True)
