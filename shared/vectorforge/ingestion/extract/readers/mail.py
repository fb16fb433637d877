"""Mail (EML by the standard library, MSG by python-oxmsg), with attachments as sections."""

import email
import email.policy
import io
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from email.message import EmailMessage
from typing import Any, Final, NamedTuple

from vectorforge.errors import ExtractionError
from vectorforge.ingestion.extract import media
from vectorforge.ingestion.extract.blocks import Block, BlockKind, Reading, Row, heading, paragraph
from vectorforge.ingestion.extract.decode import clean, decode, unread_warning
from vectorforge.ingestion.extract.readers.html import read_html
from vectorforge.ingestion.extract.readers.markdown import read_markdown
from vectorforge.ingestion.extract.reading import has_reader, read_blocks

_HEADERS: Final = ("Subject", "From", "To", "Cc", "Date")
_MAX_HEADER_CHARS: Final = 1_000
_MAX_ATTACHMENTS: Final = 20
"""Attachments that are read; pictures and others without text do not count."""
_ENCODED: Final = ("base64", "quoted-printable")
"""Encodings that RFC 2046 forbids for mails attached to mails; some programs use them."""
_DAMAGED: Final = "The mail is damaged and cannot be read."
_MAX_DEPTH: Final = 3
"""Levels of mails attached to mails that are read."""
_NOT_WITHIN: Final = frozenset({media.OUTLOOK, media.ZIP, media.RECORD})
"""Types of attachments that are not read: they have files themselves."""
_SIGNATURES: Final = ("application/pgp-signature", "application/pkcs7-signature")


class _Attachment(NamedTuple):
    name: str
    content: bytes | EmailMessage
    declared: str | None = None
    """Media type."""
    charset: str | None = None


def read_eml(content: bytes | EmailMessage, *, depth: int = 0) -> Reading:
    """Read headers, body and attachments of a mail.

    The body is the plain text, otherwise the HTML. An attachment of a supported type is a section under its
    name; others are listed in a warning.

    Returns:
        The subject as ``title``; ``from``, ``to`` and ``date`` (ISO 8601) as ``metadata``.

    Raises:
        ExtractionError: ``unreadable``, or ``empty`` when there is neither body nor attachment.
    """
    try:
        message = content
        if not isinstance(message, EmailMessage):
            message = email.message_from_bytes(message, policy=email.policy.default)
        headers = {name: str(message[name] or "") for name in _HEADERS}
        part, body, warnings = _eml_body(message)
        attachments = [*_eml_attachments(message, part)]
        date = getattr(message["Date"], "datetime", None)
    except (ExtractionError, MemoryError):
        raise
    except Exception as exc:  # the parser of headers raises many kinds
        raise ExtractionError(_DAMAGED) from exc
    return _mail(headers, date, body, attachments, warnings, depth)


def read_msg(content: bytes) -> Reading:
    """Read a mail that Outlook saved; see ``read_eml``.

    Raises:
        ExtractionError: ``unreadable``, or ``empty``.
    """
    from olefile import OleFileIO
    from oxmsg import Message

    try:
        with OleFileIO(io.BytesIO(content)) as file:
            if sum(map(file.get_size, file.listdir())) > len(content):  # it would be read to that size
                raise ExtractionError(_DAMAGED)
        message = Message.load(io.BytesIO(content))
        date = message.sent_date
        recipients = ", ".join(f"{one.name} <{one.email_address}>" for one in message.recipients)
        headers = {"Subject": message.subject, "From": message.sender or "", "To": recipients}
        text = (message.body or "").strip()
        body = [paragraph(text)] if text else []
        if not body and message.html_body:
            body = [*read_html(message.html_body.encode(), charset="utf-8").blocks]
        attachments = [_Attachment(one.file_name or "", one.file_bytes or b"") for one in message.attachments]
    except (ExtractionError, MemoryError):
        raise
    except Exception as exc:  # olefile and python-oxmsg raise many kinds
        raise ExtractionError(_DAMAGED) from exc
    return _mail({**headers, "Date": date.isoformat() if date else ""}, date, body, attachments, [])


def _mail(
    headers: Mapping[str, str],
    date: datetime | None,
    body: Iterable[Block],
    attachments: Iterable[_Attachment],
    warnings: list[str],
    depth: int = 0,
) -> Reading:
    shown = {name: clean(" ".join(value.split()))[0][:_MAX_HEADER_CHARS] for name, value in headers.items()}
    blocks, unread, count = [*body], list[str](), 0
    for one in attachments:
        read = _section(one, depth) if count < _MAX_ATTACHMENTS else Reading([])
        blocks += read.blocks
        count += bool(read.blocks)
        name = clean(one.name or one.declared or "unnamed")[0][:100]
        warnings += [f"{name}: {warning}" for warning in read.warnings]
        if not read.blocks and (one.name or isinstance(one.content, EmailMessage) or one.content.strip()):
            unread.append(name)
    if not blocks:
        raise ExtractionError("The mail has no text.", reason="empty")
    if unread:
        warnings = [*warnings, unread_warning("Attachments", [*dict.fromkeys(unread)])]
    lines = "\n".join(f"{name}: {value}" for name, value in shown.items() if value)
    metadata = {"from": shown["From"], "to": shown["To"], "date": date.isoformat() if date else ""}
    return Reading(
        [paragraph(lines), *blocks],
        shown["Subject"],
        warnings,
        {name: value for name, value in metadata.items() if value},
    )


def _section(one: _Attachment, depth: int) -> Reading:
    """Return a section of the attachment's blocks without their pages; without blocks if it is not read."""
    content = one.content
    try:
        if isinstance(content, EmailMessage):
            kind = media.MAIL
        else:
            kind = media.detect(content, one.name, None if one.name else one.declared)
        if kind == media.MAIL:
            read = read_eml(content, depth=depth + 1) if depth < _MAX_DEPTH else Reading([])
        elif isinstance(content, EmailMessage) or not content.strip() or kind in _NOT_WITHIN:
            return Reading([])
        else:
            read = _read(kind, content, one.charset)
        inner = [_inner(block) for block in read.blocks]
    except ExtractionError:
        return Reading([])
    title = [heading(f"Attachment: {' '.join(clean(one.name)[0].split())}")] if one.name else []
    return Reading([*title, *inner] if inner else [], warnings=read.warnings)


def _read(kind: str, content: bytes, charset: str | None) -> Reading:
    if has_reader(kind):
        read = read_blocks(kind, content, charset=charset)
        return replace(read, blocks=[*read.blocks])
    text, warnings = decode(content, charset)
    text = read_markdown(text, [])["text"] if kind == media.MARKDOWN else text
    text = text.replace("\r\n", "\n").strip()
    return Reading([paragraph(text)] if text else [], warnings=warnings)


def _inner(block: Block) -> Block:
    level = block.level + 1 if block.kind is BlockKind.HEADING else block.level
    rows = [Row(row.cells) for row in block.rows]
    return replace(block, level=min(level, 6), location=None, places=(), rows=rows)


def _eml_body(message: EmailMessage) -> tuple[EmailMessage | None, list[Block], list[str]]:
    """Return the part with the body, its blocks and its warnings."""
    for kind in ("plain", "html"):
        part: Any = message.get_body((kind,))
        payload = part.get_payload(decode=True) if part is not None else None
        if payload and (read := _read(f"text/{kind}", payload, part.get_content_charset())).blocks:
            return part, [*read.blocks], [*read.warnings]
    return None, [], []


def _eml_attachments(message: EmailMessage, body: EmailMessage | None) -> Iterator[_Attachment]:
    """Yield the parts other than the body and its other versions, in their order."""
    pending: list[tuple[Any, bool]] = [(message, False)]
    read = body
    while pending:
        part, is_version = pending.pop()
        kind = part.get_content_type()
        is_resource = part["Content-Location"] and not part.get_filename()  # of a saved page
        if part.get_content_maintype() == "multipart":
            if kind == "multipart/alternative" and not any(one is body for one in part.walk()):
                read = part.get_body(("plain", "html"))
            inner = is_version or kind == "multipart/alternative"
            pending += reversed([(one, inner) for one in part.iter_parts()])
        elif is_version and part is not read and _is_version_of_body(part, kind):
            continue
        elif part is not body and kind not in _SIGNATURES and not is_resource:
            yield _eml_attachment(part, kind)


def _is_version_of_body(part: Any, kind: str) -> bool:
    return kind.startswith("text/") and kind != "text/calendar" and part.get_filename() is None


def _eml_attachment(part: Any, kind: str) -> _Attachment:
    name = str(part.get_filename() or "")
    payload = part.get_payload(decode=True)
    inner = part.get_payload(0) if kind == media.MAIL and part.is_multipart() else None
    if inner is not None and str(part["Content-Transfer-Encoding"]).strip().lower() in _ENCODED:
        part.set_payload(inner.as_string())
        inner = email.message_from_bytes(part.get_payload(decode=True), policy=email.policy.default)
    if isinstance(inner, EmailMessage) and inner.keys():
        payload, name = inner, name or str(inner["Subject"] or "")
    elif payload is None:  # a report, for example
        name = name or kind
    content = payload if isinstance(payload, bytes | EmailMessage) else b""
    return _Attachment(name, content, kind, part.get_content_charset())
