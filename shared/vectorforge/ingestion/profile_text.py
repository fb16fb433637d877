"""Documents of a profile: rows rendered as Markdown, and drafts without vectors.

Rows may have any columns. Columns with common names are used for heading, period and description; other
columns become ``Name: value``; keys, foreign keys and timestamps are dropped.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import Any

from vectorforge.errors import InvalidInputError
from vectorforge.ingestion.chunk import ChunkingConfig
from vectorforge.ingestion.drafts import draft_chunks, draft_document
from vectorforge.ingestion.extract import media
from vectorforge.ingestion.extract.decode import clean, clean_json, composed, without_invisible
from vectorforge.ingestion.types import ExtractedDocument, ExtractionLimits, TextSpan
from vectorforge.names import one_line
from vectorforge.profile_types import ChunkMetadata, SourceType, VectorChunk
from vectorforge.types import DocumentDraft

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
    spans: tuple[TextSpan, ...] = ()
    """As in ``ExtractedDocument.spans``."""


def profile_documents(
    summary: str,
    experiences: Sequence[Row],
    projects: Sequence[Row],
    skills: Sequence[Row | str],
    education: Sequence[Row],
) -> list[ProfileDocument]:
    """Return the documents of a profile's rows; arguments as in ``ingest_profile_data``."""
    return [
        *summary_document(summary),
        *row_documents(SourceType.EXPERIENCE, experiences, "experiences"),
        *row_documents(SourceType.PROJECT, projects, "projects"),
        *skills_document(skills),
        *row_documents(SourceType.EDUCATION, education, "education"),
    ]


def summary_document(summary: str) -> list[ProfileDocument]:
    """Return the document of the summary; none if it is empty."""
    if not summary.strip():
        return []
    return [ProfileDocument(SourceType.SUMMARY, "1", summary)]


def row_documents(kind: SourceType, rows: Sequence[Row], field_name: str) -> list[ProfileDocument]:
    """Return one document for each row with text, whose key is the column ``id``, else its text.

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
                f"{field_name}[{position}].id is not unique.", field=f"{field_name}[{position}].id"
            )
        documents[document.source_id] = document
    return list(documents.values())


def skills_document(skills: Sequence[Row | str]) -> list[ProfileDocument]:
    """Return all skills as one document, a line for each category: single skills are too short."""
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
            if key not in ("name", "skill", "title", "category", "group", "type") and _is_shown(key)
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
    shown = {key: value for key, value in row.items() if _is_shown(key)}
    title = _first(shown, _TITLES)
    place = _first(shown, _PLACES)
    heading = ", ".join(part for part in (title, place) if part)
    parts = [_period(shown), *(_plain(shown[key]) for key in _PROSE if key in shown)]
    used = {_key(shown, _TITLES), _key(shown, _PLACES), *_BEGINS, *_ENDS, *_CURRENT, *_PROSE}
    parts += [_named(key, value) for key, value in shown.items() if key not in used]
    body = "\n\n".join(part for part in parts if part)
    if not heading and not body:
        return None
    text = "\n\n".join(part for part in (f"# {heading}" if heading else "", body) if part)
    key = row.get("id")
    source_id = str(key) if key is not None else f"text-{hashlib.sha256(text.encode()).hexdigest()[:16]}"
    return ProfileDocument(kind, source_id, text, heading or None, media.MARKDOWN)


def _is_shown(key: str) -> bool:
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
    """Return a value as text; empty for null and False."""
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


MAX_DOCUMENTS = 2_000
"""Rows and documents of one call, limited because one transaction writes them within a minute."""
MAX_ID_CHARS = 1_000
"""Enough for a path."""

_ROW_TYPES = frozenset(
    {SourceType.SUMMARY, SourceType.EXPERIENCE, SourceType.PROJECT, SourceType.SKILL, SourceType.EDUCATION}
)

Drafted = tuple[DocumentDraft, list[VectorChunk]]


def draft_profile(
    profile_id: int,
    documents: Sequence[ProfileDocument],
    chunking: ChunkingConfig,
    limits: ExtractionLimits,
) -> list[Drafted]:
    """Return the documents of one call as they are stored, with their chunks without vectors.

    Raises:
        ExtractionError: ``too_large``: a text is longer than the limit, or makes too many chunks.
        InvalidInputError: There are more than 2,000 documents, a ``source_id`` is empty or over 1,000
            characters, or all together make too many chunks.
    """
    if len(documents) > MAX_DOCUMENTS:
        raise InvalidInputError(
            f"A profile may have at most {MAX_DOCUMENTS:,} rows and documents at once.", field="documents"
        )
    for document in documents:
        if not document.source_id.strip() or len(document.source_id) > MAX_ID_CHARS:
            raise InvalidInputError(f"source_id must have 1 to {MAX_ID_CHARS} characters.", field="source_id")
    drafted, count = [], 0
    for document in documents:
        drafted.append(_draft(profile_id, document, chunking, limits))
        count += len(drafted[-1][1])
        if count > limits.max_request_chunks:
            raise InvalidInputError(
                f"The texts of one request may make at most {limits.max_request_chunks:,} chunks; "
                "send fewer, or use a larger chunk_size.",
                field="documents",
            )
    return drafted


def _draft(
    profile_id: int, document: ProfileDocument, chunking: ChunkingConfig, limits: ExtractionLimits
) -> Drafted:
    text = clean(document.text)[0] if document.spans else without_invisible(composed(document.text))
    limits.check_chars(len(text))
    title = one_line(clean(document.title)[0])[:500] if document.title else None
    source_id = clean(document.source_id)[0]
    extra, _ = clean_json(dict(document.metadata))
    metadata = ChunkMetadata(profile_id, document.source_type, source_id, title, extra)
    extracted = ExtractedDocument(
        source=f"profiles/{profile_id}/{document.source_type.value}/{source_id}",
        text=text,
        media_type=document.media_type,
        title=title,
        metadata=metadata.as_dict(),
        spans=document.spans,
        parent_source=parent_source(profile_id, of_rows=document.source_type in _ROW_TYPES),
    )
    chunks = draft_chunks(extracted, chunking)
    limits.check_chunks(len(chunks))
    return draft_document(extracted, chunking), [VectorChunk(chunk, metadata) for chunk in chunks]


def parent_source(profile_id: int, *, of_rows: bool) -> str:
    """Return the parent source that ``reingest_profile`` replaces as one: rows or documents."""
    return f"profiles/{profile_id}/{'rows' if of_rows else 'documents'}"
