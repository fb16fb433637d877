"""Mail (.eml) by the standard library; runs in the child process only (``isolation``)."""

import email
import email.policy
from email.message import EmailMessage
from typing import Any

from vectorforge.errors import ExtractionError
from vectorforge.ingestion.extract.decode import clean, decode
from vectorforge.ingestion.extract.html import extract_html
from vectorforge.ingestion.types import ReadText

_HEADERS = ("Subject", "From", "To", "Cc", "Date")
_MAX_HEADER_CHARS = 1_000
_MAX_NAMED_ATTACHMENTS = 10


def extract_mail(content: bytes) -> ReadText:
    """Read subject, sender, recipients, date and body of a mail.

    The plain text is the body, or the HTML where there is none. Attachments are named in a warning.

    Returns:
        The subject as ``title``; ``from`` and ``date`` (ISO 8601) as ``metadata``.

    Raises:
        ExtractionError: ``unreadable``, or ``empty`` when there is no body.
    """
    try:
        message = email.message_from_bytes(content, policy=email.policy.default)
        headers = {name: value for name in _HEADERS if (value := _header(message, name))}
        body, warnings = _body(message)
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


def _header(message: EmailMessage, name: str) -> str:
    value = " ".join(str(message[name] or "").split())
    return clean(value)[0][:_MAX_HEADER_CHARS]


def _body(message: EmailMessage) -> tuple[str, list[str]]:
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
