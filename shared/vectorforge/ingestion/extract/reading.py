"""Readers by media type, imported when they are first used."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from typing import Any, Final

from vectorforge.errors import ExtractionError
from vectorforge.extras import not_installed
from vectorforge.ingestion.extract import media
from vectorforge.ingestion.extract.blocks import Reading, compose
from vectorforge.ingestion.types import OcrOptions, ReadText

_READERS: Final[Mapping[str, str]] = {
    media.HTML: "html:read_html",
    media.RST: "restructured_text:read_rst",
    media.PDF: "pdf:read_pdf",
    media.DOCX: "word:read_docx",
    media.PPTX: "slides:read_pptx",
    media.ODT: "opendocument:read_odt",
    media.ODP: "opendocument:read_odp",
    media.EPUB: "epub:read_epub",
    media.RTF: "rtf:read_rtf",
    media.MAIL: "mail:read_eml",
    media.OUTLOOK: "mail:read_msg",
    media.NOTEBOOK: "markdown:read_notebook",
    media.JSON: "records:read_json",
    media.XML: "xml:read_xml",
    media.CSV: "records:read_table",
    media.TSV: "records:read_tsv",
    **dict.fromkeys(media.TRANSCRIPTS, "transcript:read_transcript"),
    **dict.fromkeys((media.CALENDAR, media.CONTACTS), "calendar:read_calendar"),
    **dict.fromkeys(media.WORKBOOKS, "sheets:read_workbook"),
    **dict.fromkeys(media.IMAGES, "pdf_image:read_image"),
}
WITHOUT_CHILD: Final = frozenset({media.CSV, media.TSV, *media.TRANSCRIPTS, media.CALENDAR, media.CONTACTS})
"""Types that are read in time that grows with their size, without a child process."""
_WITH_CHARSET: Final = WITHOUT_CHILD | {media.HTML, media.RST}
_WITH_OCR: Final = frozenset({media.PDF, *media.IMAGES})
_NO_OCR: Final = OcrOptions()


def has_reader(kind: str) -> bool:
    """Return False for plain text, Markdown, archives and records, which are read elsewhere."""
    return kind in _READERS


@contextmanager
def packages() -> Iterator[None]:
    """Name the extra in the error of a package that is missing in the block.

    Raises:
        ExtractionError: ``not_deployed``.
    """
    try:
        yield
    except ModuleNotFoundError as exc:
        raise ExtractionError(not_installed(exc), reason="not_deployed") from exc


def read_blocks(
    kind: str, content: bytes, *, charset: str | None = None, ocr: OcrOptions = _NO_OCR
) -> Reading:
    """Read a file of a type with a reader, on this thread and without limits.

    Raises:
        ExtractionError: The reader's error; ``not_deployed`` if its package is missing.
    """
    module, name = _READERS[kind].split(":")
    arguments: dict[str, Any] = {"charset": charset} if kind in _WITH_CHARSET else {}
    if kind in _WITH_OCR:
        arguments["ocr"] = ocr
    with packages():
        reader: Callable[..., Reading] = getattr(import_module(f"{__package__}.readers.{module}"), name)
        return reader(content, **arguments)


def read_text(
    kind: str, content: bytes, *, max_chars: int, charset: str | None = None, ocr: OcrOptions = _NO_OCR
) -> ReadText:
    """Read a file as ``read_blocks`` does, and compose its text.

    Raises:
        ExtractionError: The reader's error, or ``too_large``.
    """
    return compose(read_blocks(kind, content, charset=charset, ocr=ocr), max_chars=max_chars)
