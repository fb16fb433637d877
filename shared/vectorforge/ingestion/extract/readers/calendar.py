"""Calendars (iCalendar, RFC 5545) and contacts (vCard, RFC 6350): a paragraph for each event or person."""

import io
import re
from collections.abc import Iterator
from contextlib import suppress
from datetime import date, timedelta
from itertools import chain
from quopri import decodestring

from vectorforge.ingestion.extract.blocks import Reading, paragraph
from vectorforge.ingestion.extract.decode import decode

_LINE = re.compile(r'(?:[\w-]+\.)?([\w-]+)((?:;(?:[^":;]|"[^"]*")*+)*+):(.*)')
_NAME = re.compile(r';(?:CN|TZID)="?([^";]*)', re.IGNORECASE)
_KIND = re.compile(r'[;=,"](cell|fax|home|work|accepted|declined|tentative)\b', re.IGNORECASE)
_CALENDAR_NAME = re.compile(r"^X-WR-CALNAME(?:;[^:\n]*)?:(.*)", re.MULTILINE)
_COMPONENTS = frozenset({"VCALENDAR", "VEVENT", "VTODO", "VJOURNAL", "VCARD"})
_FIELDS = {  # property -> name in the text, in this order
    "FN": "name", "N": "name", "SUMMARY": "summary", "DTSTART": "start", "DTEND": "end", "DUE": "due",
    "DURATION": "duration", "RRULE": "repeats", "RECURRENCE-ID": "instead of", "STATUS": "status",
    "LOCATION": "location", "ORGANIZER": "organizer", "ATTENDEE": "attendees", "ORG": "organization",
    "TITLE": "title", "ROLE": "role", "EMAIL": "email", "TEL": "phone", "ADR": "address", "BDAY": "birthday",
    "CATEGORIES": "categories", "URL": "url", "NOTE": "note", "DESCRIPTION": "description",
}  # fmt: skip


def read_calendar(content: bytes, *, charset: str | None = None) -> Reading:
    """Read events, tasks and contacts as ``summary: value; start: value``; the calendar's name is the title.

    Raises:
        ExtractionError: ``undecodable``.
    """
    text, warnings = decode(re.sub(rb"\r?\n[ \t]", b"", content), charset)  # folds may be in a character
    name = _CALENDAR_NAME.search(text)
    return Reading(map(paragraph, _paragraphs(text)), _unescape(name[1]) if name else None, warnings)


def _paragraphs(text: str) -> Iterator[str]:
    fields, is_skipped = dict[str, list[str]](), False
    lines = chain(io.StringIO(text, newline=None), ["", "END:VCARD"])
    for found in filter(None, map(_LINE.match, lines)):
        name, parameters, value = found[1].upper(), found[2], found[3].strip()
        if name in ("BEGIN", "END"):
            is_skipped = name == "BEGIN" and value.upper() not in _COMPONENTS  # an alarm, a time zone
            if value.upper() in _COMPONENTS:
                fields.pop("N" if "FN" in fields else "", None)
                shown = {key: ", ".join(filter(None, values)) for key, values in fields.items()}
                yield "; ".join(f"{label}: {shown[key]}" for key, label in _FIELDS.items() if shown.get(key))
                fields = {}
        elif name in _FIELDS and not is_skipped:
            if "QUOTED-PRINTABLE" in parameters.upper():  # vCard 2.1
                parts = [value]
                while parts[-1].endswith("="):
                    parts.append(next(lines, "").rstrip("\n"))
                value = decode(decodestring("\n".join(parts).encode()))[0]
            fields.setdefault(name, []).append(_shown(name, parameters, value))


def _shown(name: str, parameters: str, value: str) -> str:
    named = _NAME.search(parameters)
    if name in ("DTSTART", "DTEND", "DUE", "RECURRENCE-ID", "BDAY", "RRULE"):
        with suppress(ValueError, OverflowError):  # a date; the end is the day after the last one
            value = str(date.fromisoformat(value) - timedelta(days=name == "DTEND"))
        value = re.sub(r"([0-9]{4})([0-9]{2})([0-9]{2})", r"\1-\2-\3", value.replace(";", ", "))
        value = re.sub(r"(?<=[0-9])Z\b", " UTC", re.sub(r"T([0-9]{2})([0-9]{2})[0-9]{2}", r" \1:\2", value))
        return f"{value} {named[1]}" if named else value
    parts = re.split(r"(?<!\\);", value) if name in ("N", "ADR", "ORG") else [value]
    text = re.sub("^(?:mailto|tel):", "", ", ".join(filter(None, map(_unescape, parts))), flags=re.IGNORECASE)
    kinds = ", ".join(_KIND.findall(parameters)).lower()
    return (f"{named[1]} <{text}>" if named and named[1] not in ("", text) else text) + (
        f" ({kinds})" if kinds else ""
    )


def _unescape(value: str) -> str:
    text = re.sub(r"\\(.)", lambda found: "\n" if found[1] in "nN" else found[1], value)
    return "\n".join(line.strip() for line in text.splitlines() if line.strip())
