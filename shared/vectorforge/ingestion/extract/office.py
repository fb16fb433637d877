"""Office documents and mail, by pdfium, python-docx, striprtf and the standard library.

Runs in the child process only (see ``isolation``).
"""

import email
import email.policy
import io
import re
import zipfile
from collections.abc import Iterator
from email.message import EmailMessage
from typing import Any

from vectorforge.errors import ExtractionError
from vectorforge.ingestion.extract.decode import clean, decode
from vectorforge.ingestion.extract.html import extract_html
from vectorforge.ingestion.types import ReadText

_WRONG_PASSWORD = 4  # FPDF_ERR_PASSWORD
_LINE_END_HYPHEN = re.compile("[\x02\ufffe]\r?\n?")
_CONTROLS = re.compile("[\x01-\x08\x0b\x0c\x0e-\x1f\x7f]")
_PAGE_BREAK = "\n\n"
_MAX_UNCOMPRESSED_BYTES = 200 * 1024 * 1024
_MAX_MEMBERS = 10_000
_TITLE_IS_WITHIN = 50
"""Paragraphs from the start: a later one is no title of the document."""
_HEADING_STYLE = re.compile(r"heading ([1-6])", re.IGNORECASE)
_HEADERS = ("Subject", "From", "To", "Cc", "Date")
_MAX_HEADER_CHARS = 1_000
_MAX_NAMED_ATTACHMENTS = 10


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
            page = _clean_page(pdf[index].get_textpage().get_text_range())
        except pypdfium2.PdfiumError:
            page, broken = "", broken + 1
        pages.append(page)
        total += len(page) + len(_PAGE_BREAK)
        if total > max_chars:
            raise ExtractionError(f"The text is longer than {max_chars:,} characters.", reason="too_large")
    if broken and broken == len(pages):
        raise ExtractionError("The PDF is damaged and cannot be read.")
    return pages, broken


def _clean_page(text: str) -> str:
    text = _LINE_END_HYPHEN.sub("", text).replace("\r\n", "\n")
    return _CONTROLS.sub("", clean(text)[0]).strip()


def extract_rtf(content: bytes) -> ReadText:
    """Read the text of a rich text file, without its pictures and its formatting.

    Raises:
        ExtractionError: ``unreadable``.
    """
    from striprtf.striprtf import rtf_to_text

    try:
        text = str(rtf_to_text(content.decode("latin-1"), errors="replace"))  # type: ignore[no-untyped-call]
    except MemoryError:
        raise
    except Exception as exc:  # invalid control words raise many kinds
        raise ExtractionError("The rich text is damaged and cannot be read.") from exc
    return {"text": clean(text)[0].strip(), "title": None, "page_starts": [], "warnings": []}


def extract_docx(content: bytes, *, max_chars: int) -> ReadText:
    """Read paragraphs, headings and tables in the order of the document.

    Headings become Markdown headings, list paragraphs ``- `` lines, table rows lines of cells joined
    by " | ".

    Args:
        content: The file.
        max_chars: Reading stops when the text is longer.

    Returns:
        ``text``; ``title``: the first paragraph in the style Title, else the document's property, or None.

    Raises:
        ExtractionError: ``unreadable``, ``too_large`` or ``empty``.
    """
    _check_archive(content)
    from docx import Document

    try:
        document = Document(io.BytesIO(content))
        blocks = list(_docx_blocks(document, max_chars))
        title = clean(_docx_title(document))[0]
    except (ExtractionError, MemoryError):
        raise
    except Exception as exc:  # python-docx, lxml, zipfile and zlib raise many kinds
        raise ExtractionError("The DOCX file is damaged and cannot be read.") from exc
    if not blocks:
        raise ExtractionError("The document contains no text.", reason="empty")
    return {"text": "\n\n".join(blocks), "title": title or None, "page_starts": [], "warnings": []}


def _docx_title(document: Any) -> str:
    for paragraph in document.paragraphs[:_TITLE_IS_WITHIN]:
        if paragraph.style is not None and paragraph.style.name == "Title" and paragraph.text.strip():
            return " ".join(paragraph.text.split())
    return str(document.core_properties.title or "").strip()


def _check_archive(content: bytes) -> None:
    """Against zip bombs: zipfile never inflates a member beyond the size its directory declares."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            members = archive.infolist()
    except (zipfile.BadZipFile, ValueError, NotImplementedError) as exc:
        raise ExtractionError("The DOCX file is damaged and cannot be read.") from exc
    if len(members) > _MAX_MEMBERS or sum(member.file_size for member in members) > _MAX_UNCOMPRESSED_BYTES:
        limit = _MAX_UNCOMPRESSED_BYTES // 1024 // 1024
        raise ExtractionError(
            f"Unpacked, the document is larger than {limit} MB or has over {_MAX_MEMBERS:,} parts.",
            reason="too_large",
        )


def _docx_blocks(document: Any, max_chars: int) -> Iterator[str]:
    total = 0
    for item in document.iter_inner_content():
        block = clean(_docx_table(item) if hasattr(item, "rows") else _docx_paragraph(item))[0]
        if not block.strip():
            continue
        total += len(block) + 2
        if total > max_chars:
            raise ExtractionError(f"The text is longer than {max_chars:,} characters.", reason="too_large")
        yield block


def _docx_paragraph(paragraph: Any) -> str:
    text: str = paragraph.text.strip()
    style = (paragraph.style.name or "") if paragraph.style is not None else ""
    if heading := _HEADING_STYLE.match(style):
        return "#" * int(heading[1]) + " " + " ".join(text.split()) if text else ""
    if style == "Title":
        return f"# {' '.join(text.split())}" if text else ""
    return f"- {text}" if text and style.startswith("List") else text


def _docx_table(table: Any) -> str:
    lines = []
    for row in table.rows:
        cells: list[str] = []
        previous = None
        for cell in row.cells:  # a merged cell is listed once for each column it covers
            if cell._tc is not previous:  # noqa: SLF001 - python-docx has no public identity of a cell
                cells.append(" ".join(cell.text.split()))
            previous = cell._tc  # noqa: SLF001 - see above
        if any(cells):
            lines.append(" | ".join(cells))
    return "\n".join(lines)


def extract_mail(content: bytes) -> ReadText:
    """Read subject, sender, recipients, date and body of a mail.

    The body is the plain text, otherwise the HTML. Attachments are listed in a warning.

    Returns:
        The subject as ``title``; ``from`` and ``date`` (ISO 8601) as ``metadata``.

    Raises:
        ExtractionError: ``unreadable``, or ``empty`` when there is no body.
    """
    try:
        message = email.message_from_bytes(content, policy=email.policy.default)
        headers = {name: value for name in _HEADERS if (value := _mail_header(message, name))}
        body, warnings = _mail_body(message)
        warnings += _attachments(message)
        date = getattr(message["Date"], "datetime", None)
    except (ExtractionError, MemoryError):
        raise
    except Exception as exc:  # the parser of headers raises many kinds for broken ones
        raise ExtractionError("The mail is damaged and cannot be read.") from exc
    if not body:
        raise ExtractionError("The mail has no text.", reason="empty")
    lines = "\n".join(f"{name}: {value}" for name, value in headers.items())
    sent = {"from": headers.get("From"), "date": date.isoformat() if date else None}
    return {
        "text": f"{lines}\n\n{body}" if lines else body,
        "title": headers.get("Subject"),
        "page_starts": [],
        "warnings": warnings,
        "metadata": {name: value for name, value in sent.items() if value},
    }


def _mail_header(message: EmailMessage, name: str) -> str:
    value = " ".join(str(message[name] or "").split())
    return clean(value)[0][:_MAX_HEADER_CHARS]


def _mail_body(message: EmailMessage) -> tuple[str, list[str]]:
    for kind in ("plain", "html"):
        part: Any = message.get_body((kind,))
        payload = part.get_payload(decode=True) if part is not None else None
        if not payload:
            continue
        charset = part.get_content_charset()
        if kind == "html":
            read = extract_html(payload, charset=charset)
            text, warnings = read["text"], read["warnings"]
        else:
            text, warnings = decode(payload, charset)
        if text.strip():
            return text.replace("\r\n", "\n").strip(), warnings
    return "", []


def _attachments(message: EmailMessage) -> list[str]:
    names = [clean(str(part.get_filename() or "unnamed"))[0][:100] for part in message.iter_attachments()]
    if not names:
        return []
    rest = len(names) - _MAX_NAMED_ATTACHMENTS
    listed = ", ".join(names[:_MAX_NAMED_ATTACHMENTS]) + (f" and {rest} more" if rest > 0 else "")
    return [f"Attachments are not read: {listed}."]
