"""Rows of a profile to text: what a person would write about them, as Markdown under a heading.

Rows are what a database gives: any columns, of which those with usual names get their usual place. Other
columns become ``Name: value``; keys, foreign keys and times of change are left out.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import Any

from vectorforge.errors import InvalidInputError
from vectorforge.ingestion.extract import media
from vectorforge.profile_types import SourceType

Row = Mapping[str, Any]

_TITLES = ("title", "role", "position", "job_title", "name", "degree")
_PLACES = ("company", "organization", "organisation", "employer", "institution", "school", "university")
_BEGINS = ("start_date", "started_on", "start", "from_date")
_ENDS = ("end_date", "ended_on", "end", "to_date")
_CURRENT = ("is_current", "current")
_PROSE = ("description", "summary", "text", "content")
_BOOKKEEPING = frozenset(
    {"id", "uuid", "created_at", "updated_at", "deleted_at", "position_index", "sort_order"}
)


@dataclass(frozen=True, slots=True)
class ProfileDocument:
    """A text of a profile."""

    source_type: SourceType
    source_id: str
    """Unique among the profile's documents of this type; the same id again replaces the document."""
    text: str
    title: str | None = None
    media_type: str = media.PLAIN
    metadata: Mapping[str, Any] = field(default_factory=dict)
    page_starts: tuple[int, ...] = ()
    """As ``ExtractedDocument.page_starts``: its passages then know their page."""


def profile_documents(
    summary: str,
    experiences: Sequence[Row],
    projects: Sequence[Row],
    skills: Sequence[Row | str],
    education: Sequence[Row],
) -> list[ProfileDocument]:
    """What the rows of a profile say; arguments as ``RAGIngestionPipeline.ingest_profile_data``."""
    return [
        *summary_document(summary),
        *row_documents(SourceType.EXPERIENCE, experiences, "experiences"),
        *row_documents(SourceType.PROJECT, projects, "projects"),
        *skills_document(skills),
        *row_documents(SourceType.EDUCATION, education, "education"),
    ]


def summary_document(summary: str) -> list[ProfileDocument]:
    """The profile's summary, if there is one."""
    if not summary.strip():
        return []
    return [ProfileDocument(SourceType.SUMMARY, "1", summary)]


def row_documents(kind: SourceType, rows: Sequence[Row], field_name: str) -> list[ProfileDocument]:
    """One document for each row that has anything to say.

    Args:
        kind: What the rows are.
        rows: With or without a key in the column ``id``; without one, the text itself tells rows apart.
        field_name: What to call the rows in an error.

    Raises:
        InvalidInputError: Two rows have the same key.
    """
    documents: dict[str, ProfileDocument] = {}
    for position, row in enumerate(rows):
        document = _row_document(kind, row)
        if document is None:
            continue
        if document.source_id in documents and row.get("id") is not None:
            raise InvalidInputError(
                f"{field_name}[{position}].id comes twice.", field=f"{field_name}[{position}].id"
            )
        documents[document.source_id] = document
    return list(documents.values())


def skills_document(skills: Sequence[Row | str]) -> list[ProfileDocument]:
    """All skills as one document, a line for each category: alone they are too short to be found."""
    lines: dict[str, list[str]] = {}
    for skill in skills:
        row: Row = {"name": skill} if isinstance(skill, str) else skill
        name = _first(row, ("name", "skill", "title"))
        if not name:
            continue
        category = _first(row, ("category", "group", "type")) or ""
        details = [
            f"{_label(key)} {value}" if _is_number(row[key]) else value
            for key in row
            if key not in ("name", "skill", "title", "category", "group", "type") and _is_told(key)
            if (value := _plain(row[key]))
        ]
        lines.setdefault(category, []).append(f"{name} ({', '.join(details)})" if details else name)
    if not lines:
        return []
    text = "\n\n".join(
        f"{category}: {', '.join(names)}" if category else ", ".join(names)
        for category, names in lines.items()
    )
    return [ProfileDocument(SourceType.SKILL, "all", f"# Skills\n\n{text}", "Skills", media.MARKDOWN)]


def _row_document(kind: SourceType, row: Row) -> ProfileDocument | None:
    told = {key: value for key, value in row.items() if _is_told(key)}
    title = _first(told, _TITLES)
    place = _first(told, _PLACES)
    heading = ", ".join(part for part in (title, place) if part)
    parts = [_period(told), *(_plain(told[key]) for key in _PROSE if key in told)]
    used = {_key(told, _TITLES), _key(told, _PLACES), *_BEGINS, *_ENDS, *_CURRENT, *_PROSE}
    parts += [_named(key, value) for key, value in told.items() if key not in used]
    body = "\n\n".join(part for part in parts if part)
    if not heading and not body:
        return None
    text = "\n\n".join(part for part in (f"# {heading}" if heading else "", body) if part)
    key = row.get("id")
    source_id = str(key) if key is not None else f"text-{hashlib.sha256(text.encode()).hexdigest()[:16]}"
    return ProfileDocument(kind, source_id, text, heading or None, media.MARKDOWN)


def _is_told(key: str) -> bool:
    return key not in _BOOKKEEPING and not key.endswith("_id")


def _key(row: Row, names: Sequence[str]) -> str | None:
    return next((name for name in names if _plain(row.get(name))), None)


def _first(row: Row, names: Sequence[str]) -> str:
    key = _key(row, names)
    return " ".join(_plain(row[key]).split()) if key else ""


def _period(row: Row) -> str:
    begin, end = _first(row, _BEGINS), _first(row, _ENDS)
    if not end and begin and any(row.get(name) for name in _CURRENT):
        end = "today"
    if begin and end:
        return f"{begin} to {end}"
    return f"Since {begin}" if begin else f"Until {end}" if end else ""


def _named(key: str, value: Any) -> str:
    if isinstance(value, list | tuple) and any(len(_plain(item)) > 40 for item in value):
        return "\n".join([f"{_label(key)}:", *(f"- {text}" for item in value if (text := _plain(item)))])
    text = _plain(value)
    return f"{_label(key)}: {text}" if text else ""


def _label(key: str) -> str:
    return key.replace("_", " ").strip().capitalize()


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _plain(value: Any) -> str:
    """A value as text; empty when there is nothing to say."""
    if value is None or value is False:
        return ""
    if value is True:
        return "yes"
    if isinstance(value, datetime | date):
        return value.isoformat()
    if isinstance(value, Mapping):
        return ", ".join(
            f"{_label(str(key))} {text}" for key, item in value.items() if (text := _plain(item))
        )
    if isinstance(value, list | tuple | set | frozenset):
        return ", ".join(text for item in value if (text := _plain(item)))
    return str(value).strip()
