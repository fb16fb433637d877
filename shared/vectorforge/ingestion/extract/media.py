"""Detection of a document's format: from the media type, then its name, then its first bytes."""

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
JSON = "application/json"
NOTEBOOK = "application/x-ipynb+json"
MAIL = "message/rfc822"
RTF = "application/rtf"
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
    NOTEBOOK: NOTEBOOK,
    MAIL: MAIL,
    RTF: RTF,
    "text/rtf": RTF,
}
EXTENSIONS = {
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
    ".json": JSON,
    ".ipynb": NOTEBOOK,
    ".eml": MAIL,
    ".rtf": RTF,
}
"""Extensions of known types; any other text is read as plain text."""
_AS_PDF = "Export it as PDF."
_AS_CSV = "Export each sheet as CSV."
_AS_DOCX = "Save it as DOCX or PDF."
REFUSED = {
    ".ppt": _AS_PDF,
    ".pptx": _AS_PDF,
    ".odp": _AS_PDF,
    ".xls": _AS_CSV,
    ".xlsx": _AS_CSV,
    ".ods": _AS_CSV,
    ".doc": "Save it as .docx.",
    ".odt": _AS_DOCX,
    ".epub": "Convert it to PDF or HTML.",
    ".msg": "Save it as .eml.",
}
"""Extensions of unsupported documents, and the way to convert them."""
_MAY_BE_TEXT = {"", "application/octet-stream", "binary/octet-stream", "application/xml"}
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
_READABLE = "Markdown, plain text, HTML, PDF, DOCX, RTF, EML, IPYNB, CSV, TSV, JSON or JSONL"


def detect(content: bytes, source: str, media_type: str | None) -> str:
    """Detect the format of a document, as one of this module's constants.

    Args:
        content: The whole document.
        source: Its path, URL or key; only the extension is looked at.
        media_type: Declared media type, with or without parameters; ``application/octet-stream`` is
            ignored. Unknown ``text/`` types are read as plain text.

    Raises:
        ExtractionError: ``unsupported_type``, or ``encrypted`` for a password-protected Office file.
    """
    declared = (media_type or "").partition(";")[0].strip().lower()
    extension = _extension(source)
    known = _BY_MEDIA_TYPE.get(declared) or EXTENSIONS.get(extension)
    if (
        known in (None, DOCX)
        and content.startswith(_OLE2)
        and "EncryptedPackage".encode("utf-16-le") in content
    ):
        raise ExtractionError("The document is protected by a password.", reason="encrypted")
    if known is None and extension in REFUSED:
        raise ExtractionError(
            f"{extension} files cannot be read. {REFUSED[extension]}", reason="unsupported_type"
        )
    if known in (None, DOCX) and content.startswith(_OLE2):
        raise ExtractionError(
            "Office files from before 2007 cannot be read; save it as .docx.", reason="unsupported_type"
        )
    return known or _sniff(content, declared)


def _extension(source: str) -> str:
    path = source.partition("?")[0].partition("#")[0] if "://" in source else source
    return PurePosixPath(path.replace("\\", "/")).suffix.lower()


def _sniff(content: bytes, declared: str) -> str:
    head = content[:2048].lstrip(b"\xef\xbb\xbf \t\r\n")
    if b"%PDF-" in content[:1024]:
        return PDF
    if head.startswith(b"PK\x03\x04") and b"word/document.xml" in content:
        return DOCX
    if head[:15].lower().startswith((b"<!doctype html", b"<html")):
        return HTML
    if head.startswith(b"{\\rtf"):
        return RTF
    if declared == JSON:  # after the extension: browsers send it for .ipynb and .jsonl too
        return JSON
    if head.startswith(_NOT_TEXT) or not (declared in _MAY_BE_TEXT or declared.startswith("text/")):
        raise ExtractionError(
            f"This type of document cannot be read; send {_READABLE}.", reason="unsupported_type"
        )
    return PLAIN
