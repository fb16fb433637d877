"""PDF text by pdfium; runs in the child process only (``isolation``)."""

import re
from typing import Any

from vectorforge.errors import ExtractionError
from vectorforge.ingestion.extract.decode import clean
from vectorforge.ingestion.types import ReadText

_WRONG_PASSWORD = 4  # FPDF_ERR_PASSWORD
_LINE_END_HYPHEN = re.compile("[\x02\ufffe]\r?\n?")
_CONTROLS = re.compile("[\x01-\x08\x0b\x0c\x0e-\x1f\x7f]")
_PAGE_BREAK = "\n\n"


def extract_pdf(content: bytes, *, max_chars: int) -> ReadText:
    """Read the text layer of a PDF, page by page.

    Args:
        content: The file.
        max_chars: Reading stops when the text is longer.

    Returns:
        ``text`` (pages joined by a blank line), ``title`` or None, ``page_starts`` (offset of each page's
        first character) and ``warnings``.

    Raises:
        ExtractionError: ``encrypted``, ``unreadable``, ``too_large``, or ``empty`` when no page has a
            text layer.
    """
    import pypdfium2

    try:
        pdf = pypdfium2.PdfDocument(content)
        pages, broken = _read_pages(pdf, max_chars)
    except pypdfium2.PdfiumError as exc:
        if getattr(exc, "err_code", None) == _WRONG_PASSWORD:
            raise ExtractionError("The PDF is protected by a password.", reason="encrypted") from exc
        raise ExtractionError("The PDF is damaged and cannot be read.") from exc
    if not any(page.strip() for page in pages):
        raise ExtractionError(
            "The PDF has no text layer: a scan holds pictures of text; run it through OCR first.",
            reason="empty",
        )
    starts, offset = [], 0
    for page in pages:
        starts.append(offset)
        offset += len(page) + len(_PAGE_BREAK)
    title = clean(pdf.get_metadata_value("Title") or "")[0].strip()
    warnings = [f"{broken} damaged pages were left out."] if broken else []
    return {
        "text": _PAGE_BREAK.join(pages),
        "title": title or None,
        "page_starts": starts,
        "warnings": warnings,
    }


def _read_pages(pdf: Any, max_chars: int) -> tuple[list[str], int]:
    import pypdfium2

    pages: list[str] = []
    broken = total = 0
    for index in range(len(pdf)):
        try:
            page = _tidy(pdf[index].get_textpage().get_text_range())
        except pypdfium2.PdfiumError:
            page, broken = "", broken + 1
        pages.append(page)
        total += len(page) + len(_PAGE_BREAK)
        if total > max_chars:
            raise ExtractionError(f"The text is longer than {max_chars:,} characters.", reason="too_large")
    if broken and broken == len(pages):
        raise ExtractionError("The PDF is damaged and cannot be read.")
    return pages, broken


def _tidy(text: str) -> str:
    text = _LINE_END_HYPHEN.sub("", text).replace("\r\n", "\n")
    return _CONTROLS.sub("", clean(text)[0]).strip()
