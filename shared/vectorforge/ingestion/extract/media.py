"""Detection of a document's format: from the media type, then its name, then its first bytes."""

from pathlib import PurePosixPath

from vectorforge.errors import ExtractionError

PLAIN = "text/plain"
MARKDOWN = "text/markdown"
RST = "text/x-rst"
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
PPTX = "application/vnd.openxmlformats-officedocument.presentationml.presentation"
XLSX = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"
XLS = "application/vnd.ms-excel"
XLSB = "application/vnd.ms-excel.sheet.binary.macroenabled.12"
ODT = "application/vnd.oasis.opendocument.text"
ODS = "application/vnd.oasis.opendocument.spreadsheet"
ODP = "application/vnd.oasis.opendocument.presentation"
EPUB = "application/epub+zip"
OUTLOOK = "application/vnd.ms-outlook"
XML = "application/xml"
ZIP = "application/zip"
WORKBOOKS = (XLSX, XLS, XLSB, ODS)
PNG = "image/png"
JPEG = "image/jpeg"
TIFF = "image/tiff"
IMAGES = (PNG, JPEG, TIFF)
"""Read by OCR only."""
VTT = "text/vtt"
SRT = "application/x-subrip"
TRANSCRIPTS = (VTT, SRT)
CALENDAR = "text/calendar"
CONTACTS = "text/vcard"
RECORD = "application/vnd.vectorforge.record+json"
"""One line of a JSONL file."""

_READ_AS_DECLARED = (
    PLAIN, MARKDOWN, RST, HTML, PDF, DOCX, PPTX, *WORKBOOKS, ODT, ODP, EPUB, CSV, TSV, JSONL, RECORD,
    NOTEBOOK, MAIL, OUTLOOK, RTF, ZIP, *IMAGES, *TRANSCRIPTS, CALENDAR, CONTACTS,
)  # fmt: skip
"""Without JSON: browsers send it for .ipynb and .jsonl too; and without XML, which may be HTML."""
_BY_MEDIA_TYPE = {
    **{kind: kind for kind in _READ_AS_DECLARED},
    "text/x-markdown": MARKDOWN,
    "text/prs.fallenstein.rst": RST,
    "application/xhtml+xml": HTML,
    "application/x-pdf": PDF,
    "application/csv": CSV,
    "application/jsonl": JSONL,
    "application/jsonlines": JSONL,
    "application/x-jsonlines": JSONL,
    "application/ndjson": JSONL,
    "application/vnd.ms-excel.sheet.macroenabled.12": XLSX,
    "application/vnd.ms-powerpoint.presentation.macroenabled.12": PPTX,
    "application/vnd.ms-word.document.macroenabled.12": DOCX,
    "application/x-zip-compressed": ZIP,
    "text/rtf": RTF,
}
EXTENSIONS = {
    ".txt": PLAIN,
    ".text": PLAIN,
    ".md": MARKDOWN,
    ".markdown": MARKDOWN,
    ".mdx": MARKDOWN,
    ".rst": RST,
    ".html": HTML,
    ".htm": HTML,
    ".xhtml": HTML,
    ".pdf": PDF,
    ".docx": DOCX,
    ".docm": DOCX,
    ".pptx": PPTX,
    ".pptm": PPTX,
    ".xlsx": XLSX,
    ".xlsm": XLSX,
    ".xlsb": XLSB,
    ".xls": XLS,
    ".ods": ODS,
    ".odt": ODT,
    ".odp": ODP,
    ".epub": EPUB,
    ".csv": CSV,
    ".tsv": TSV,
    ".jsonl": JSONL,
    ".ndjson": JSONL,
    ".json": JSON,
    ".xml": XML,
    ".ipynb": NOTEBOOK,
    ".eml": MAIL,
    ".mht": MAIL,
    ".mhtml": MAIL,
    ".msg": OUTLOOK,
    ".vtt": VTT,
    ".srt": SRT,
    ".ics": CALENDAR,
    ".vcf": CONTACTS,
    ".rtf": RTF,
    ".zip": ZIP,
    ".png": PNG,
    ".jpg": JPEG,
    ".jpeg": JPEG,
    ".tif": TIFF,
    ".tiff": TIFF,
    **dict.fromkeys(
        (
            ".log", ".yaml", ".yml", ".toml", ".ini", ".sql", ".sh", ".py", ".js", ".ts", ".tsx",
            ".jsx", ".java", ".kt", ".go", ".rs", ".c", ".h", ".cc", ".cpp", ".hpp", ".cs", ".rb", ".php",
            ".swift", ".scala", ".r", ".lua", ".pl", ".css", ".tf",
        ),
        PLAIN,
    ),
}  # fmt: skip
"""Extensions of known types; any other text is read as plain text."""
REFUSED = {
    ".ppt": "Save it as .pptx.",
    ".doc": "Save it as .docx.",
}
"""Extensions of unsupported documents, and the way to convert them."""
UNREADABLE = frozenset({
    ".7z", ".a", ".avi", ".bin", ".bmp", ".bz2", ".class", ".db", ".dll", ".dylib", ".ear", ".eot",
    ".exe", ".flac", ".gif", ".gz", ".ico", ".iso", ".jar", ".jpeg", ".jpg", ".lock", ".mkv", ".mo",
    ".mov", ".mp3", ".mp4", ".mpeg", ".npy", ".npz", ".o", ".obj", ".ogg",
    ".onnx", ".otf", ".parquet", ".pickle", ".pkl", ".png", ".pyc", ".pyd", ".rar",
    ".safetensors", ".so", ".sqlite", ".sqlite3", ".svg", ".tar", ".tgz", ".tif", ".tiff", ".ttf",
    ".wasm", ".wav", ".webm", ".webp", ".whl", ".woff", ".woff2", ".xz", ".zst",
})  # fmt: skip
"""Extensions of files without text; skipped in folders and archives, with those of ``REFUSED``. Images are
read in folders where OCR is on."""
_MAY_BE_TEXT = {"", "application/octet-stream", "binary/octet-stream", XML}
_OLE2 = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
_NOT_TEXT = (
    b"\x89PNG", b"\xff\xd8\xff", b"GIF8", b"RIFF", b"\x1f\x8b", b"PK\x03\x04", b"BZh", b"\x7fELF",
    b"7z\xbc\xaf",
)  # fmt: skip
_IN_ZIP = (
    (b"word/document.xml", DOCX),
    (b"ppt/presentation.xml", PPTX),
    (b"xl/workbook.xml", XLSX),
    (b"xl/workbook.bin", XLSB),
    *((b"mimetype" + kind.encode(), kind) for kind in (ODT, ODS, ODP, EPUB)),
)
"""Bytes in a ZIP file that name its type: a member, or a first member "mimetype" that is not compressed."""
_IN_OLE2 = (("__properties_version1.0", OUTLOOK), ("Workbook", XLS))
"""Names of streams in an Office file from before 2007."""
_READABLE = (
    "Markdown, text, HTML, PDF, DOCX, PPTX, XLSX, ODT, ODS, EPUB, RTF, EML, MSG, IPYNB, CSV, JSON or JSONL"
)


def detect(content: bytes, source: str, media_type: str | None) -> str:
    """Detect the format of a document, as one of this module's constants.

    Of ``source`` only the extension counts. ``application/octet-stream`` is ignored, and unknown ``text/``
    types are read as plain text.

    Raises:
        ExtractionError: ``unsupported_type``, or ``encrypted`` for a password-protected Office file.
    """
    declared = (media_type or "").partition(";")[0].strip().lower()
    extension = _extension(source)
    known = _BY_MEDIA_TYPE.get(declared) or EXTENSIONS.get(extension)
    if known is None and extension in REFUSED:
        raise ExtractionError(
            f"{extension} files cannot be read. {REFUSED[extension]}", reason="unsupported_type"
        )
    if content.startswith(_OLE2) and known not in (OUTLOOK, XLS):
        return _in_ole2(content)
    return known or _sniff(content, declared)


def _in_ole2(content: bytes) -> str:
    if "EncryptedPackage".encode("utf-16-le") in content:
        raise ExtractionError("The document is protected by a password.", reason="encrypted")
    for name, kind in _IN_OLE2:
        if name.encode("utf-16-le") in content:
            return kind
    raise ExtractionError(
        "Office files from before 2007 cannot be read; save it as .docx or .pptx.", reason="unsupported_type"
    )


def _extension(source: str) -> str:
    path = source.partition("?")[0].partition("#")[0] if "://" in source else source
    return PurePosixPath(path.replace("\\", "/")).suffix.lower()


def _sniff(content: bytes, declared: str) -> str:
    head = content[:2048].lstrip(b"\xef\xbb\xbf \t\r\n")
    if b"%PDF-" in content[:1024]:
        return PDF
    if head.startswith(b"PK\x03\x04"):
        return next((kind for name, kind in _IN_ZIP if name in content), ZIP)
    if head[:15].lower().startswith((b"<!doctype html", b"<html")):
        return HTML
    if head.startswith(b"{\\rtf"):
        return RTF
    if declared == JSON:
        return JSON
    if head.startswith(b"<?xml"):
        return HTML if b"<html" in head[:1000] else XML
    if head.startswith(_NOT_TEXT) or not (declared in _MAY_BE_TEXT or declared.startswith("text/")):
        raise ExtractionError(
            f"This type of document cannot be read; send {_READABLE}.", reason="unsupported_type"
        )
    return PLAIN
