"""Which format a document has: what the sender says, then its name, then its first bytes."""

from pathlib import PurePosixPath

from vectorforge.errors import ExtractionError

PLAIN = "text/plain"
MARKDOWN = "text/markdown"
HTML = "text/html"
PDF = "application/pdf"
DOCX = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"
CSV = "text/csv"
TSV = "text/tab-separated-values"
JSONL = "application/x-ndjson"
RECORD = "application/vnd.vectorforge.record+json"
"""One line of a JSONL file."""

_BY_MEDIA_TYPE = {
    PLAIN: PLAIN,
    MARKDOWN: MARKDOWN,
    "text/x-markdown": MARKDOWN,
    HTML: HTML,
    "application/xhtml+xml": HTML,
    PDF: PDF,
    "application/x-pdf": PDF,
    DOCX: DOCX,
    CSV: CSV,
    "application/csv": CSV,
    TSV: TSV,
    JSONL: JSONL,
    "application/jsonl": JSONL,
    "application/jsonlines": JSONL,
    "application/x-jsonlines": JSONL,
    "application/ndjson": JSONL,
    RECORD: RECORD,
}
_BY_EXTENSION = {
    ".txt": PLAIN,
    ".text": PLAIN,
    ".md": MARKDOWN,
    ".markdown": MARKDOWN,
    ".mdx": MARKDOWN,
    ".html": HTML,
    ".htm": HTML,
    ".xhtml": HTML,
    ".pdf": PDF,
    ".docx": DOCX,
    ".csv": CSV,
    ".tsv": TSV,
    ".jsonl": JSONL,
    ".ndjson": JSONL,
}
_MAY_BE_TEXT = {"", "application/octet-stream", "binary/octet-stream", "application/json", "application/xml"}
_OLE2 = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
_NOT_TEXT = (
    b"\x89PNG",
    b"\xff\xd8\xff",
    b"GIF8",
    b"RIFF",
    b"\x1f\x8b",
    b"PK\x03\x04",
    b"BZh",
    b"\x7fELF",
    b"7z\xbc\xaf",
)
_READABLE = "Markdown, plain text, HTML, PDF, DOCX, CSV, TSV or JSONL"


def detect(content: bytes, source: str, media_type: str | None) -> str:
    """The format of a document, as one of this module's constants.

    Args:
        content: The whole document.
        source: Its path, URL or key; only the extension is looked at.
        media_type: What the sender says, with or without parameters; ``application/octet-stream`` says
            nothing. A type of the ``text/`` family that is not known is read as plain text.

    Raises:
        ExtractionError: ``unsupported_type``, or ``encrypted`` for a password-protected Office file.
    """
    declared = (media_type or "").partition(";")[0].strip().lower()
    known = _BY_MEDIA_TYPE.get(declared) or _by_extension(source)
    if known in (None, DOCX) and content.startswith(_OLE2):
        raise _old_office_file(content)
    if known:
        return known
    return _sniff(content, declared)


def _by_extension(source: str) -> str | None:
    path = source.partition("?")[0].partition("#")[0] if "://" in source else source
    return _BY_EXTENSION.get(PurePosixPath(path.replace("\\", "/")).suffix.lower())


def _sniff(content: bytes, declared: str) -> str:
    head = content[:2048].lstrip(b"\xef\xbb\xbf \t\r\n")
    if b"%PDF-" in content[:1024]:
        return PDF
    if head.startswith(b"PK\x03\x04") and b"word/document.xml" in content:
        return DOCX
    if head[:15].lower().startswith((b"<!doctype html", b"<html")):
        return HTML
    if head.startswith(_NOT_TEXT) or not (declared in _MAY_BE_TEXT or declared.startswith("text/")):
        raise ExtractionError(
            f"This type of document cannot be read; send {_READABLE}.", reason="unsupported_type"
        )
    return PLAIN


def _old_office_file(content: bytes) -> ExtractionError:
    if "EncryptedPackage".encode("utf-16-le") in content:
        return ExtractionError("The document is protected by a password.", reason="encrypted")
    return ExtractionError(
        "Office files from before 2007 cannot be read; save it as .docx.", reason="unsupported_type"
    )
