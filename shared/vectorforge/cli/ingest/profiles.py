"""Ingestion of profiles: files, such as CVs, or tables of your own PostgreSQL, profile by profile."""

import tomllib
from collections import defaultdict
from collections.abc import Awaitable, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from vectorforge.cli.ingest.display import RowBars
from vectorforge.cli.ingest.files import SourceFile
from vectorforge.cli.ingest.run import IngestSummary, read_parts
from vectorforge.cli.session import Session
from vectorforge.cli.terminal import Terminal
from vectorforge.db.source_rows import SourceRows
from vectorforge.errors import InvalidInputError, VectorForgeError
from vectorforge.ingestion.profile import IngestedProfile, RAGIngestionPipeline
from vectorforge.ingestion.types import DocumentPart, DocumentResult, DocumentStatus, ExtractedDocument
from vectorforge.profile_types import SourceType
from vectorforge.vectorstore.validation import checked_profile


async def ingest_profile_files(
    session: Session,
    profile_id: int,
    files: Sequence[SourceFile],
    source_type: SourceType,
    *,
    metadata: Mapping[str, Any] | None = None,
    ocr: bool | None = None,
) -> IngestSummary:
    """Add files to a profile, one after the other; one that fails does not stop the others.

    A file's source is the ``source_id``, so the same file again replaces its document.
    """
    services, reader = session.services, session.services.ingestion.reader
    pipeline = await services.profiles.ingestion()
    summary = IngestSummary(await session.with_ocr(await services.profiles.collection(), ocr))
    for file in files:
        try:
            parts = await read_parts(session, file)
        except VectorForgeError as exc:
            summary.add(DocumentResult.of_failure(file.source, exc))
            continue
        for part in parts:
            if summary.stopped_by:
                return summary
            reading = reader.read(part, metadata or {}, ocr=summary.collection.ocr)
            result = await _ingest(pipeline, profile_id, part, source_type, reading)
            summary.add(result)
            summary.stop_if_useless(result.error)
    return summary


async def _ingest(
    pipeline: RAGIngestionPipeline,
    profile_id: int,
    part: DocumentPart,
    source_type: SourceType,
    reading: Awaitable[ExtractedDocument],
) -> DocumentResult:
    try:
        document = await reading
        done = await pipeline.ingest_document(
            profile_id,
            document.text,
            source_type,
            source_id=part.source,
            title=document.title or Path(part.source).name,
            media_type=document.media_type,
            metadata=document.metadata,
            spans=document.spans,
        )
    except VectorForgeError as exc:
        return DocumentResult.of_failure(part.source, exc)
    return replace(_result(part.source, done), warnings=document.warnings)


_PROFILE = "profile_id"
_SUMMARY = "summary"
_ROWS = ("experiences", "projects", "skills", "education")
_BATCH = 50
"""Profiles read at a time."""

ProfileRows = dict[str, list[dict[str, Any]]]


@dataclass(frozen=True, slots=True)
class ProfileQueries:
    """The query of each part of a profile; every one has a column ``profile_id``.

    Args:
        summary: Which profiles there are, and the column ``summary``, which may be null.
        rows: Queries by ``experiences``, ``projects``, ``skills`` and ``education``, as far as there are any.
    """

    summary: str
    rows: Mapping[str, str]

    @classmethod
    def read(cls, file: Path) -> "ProfileQueries":
        """From a TOML file with one query a key.

        Raises:
            InvalidInputError: It cannot be read, has no ``summary``, or something that is no query.
        """
        try:
            queries = tomllib.loads(file.read_text("utf-8"))
        except (OSError, ValueError) as exc:
            raise InvalidInputError(
                f"The file cannot be read as TOML ({type(exc).__name__}).", field="--profiles"
            ) from exc
        allowed = (_SUMMARY, *_ROWS)
        wrong = [name for name, query in queries.items() if name not in allowed or not isinstance(query, str)]
        if wrong or _SUMMARY not in queries:
            raise InvalidInputError(
                f"The file must have the query {_SUMMARY!r}, may have {', '.join(_ROWS)}, and nothing else.",
                field="--profiles",
            )
        return cls(queries.pop(_SUMMARY), queries)


async def ingest_profile_rows(
    terminal: Terminal, session: Session, dsn: str, queries: ProfileQueries
) -> IngestSummary:
    """Replace every profile that the summary's query names; one that fails stops no other.

    What has not changed is read, but not embedded. CVs and other texts stay.

    Raises:
        InvalidInputError: A query is refused or lacks a column, or names a profile twice.
        DatabaseUnavailableError: One of the databases is gone.
    """
    pipeline = await session.services.profiles.ingestion()
    summary = IngestSummary(await session.services.profiles.collection())
    async with AsyncExitStack() as stack:
        summaries = await stack.enter_async_context(SourceRows.open(dsn, queries.summary))
        _require(summaries, _SUMMARY, [_PROFILE, _SUMMARY])
        parts: dict[str, SourceRows] = {}
        for name, query in queries.rows.items():
            parts[name] = await stack.enter_async_context(SourceRows.open(dsn, query))
            _require(parts[name], name, [_PROFILE])
        with RowBars(terminal) as bars:
            profile_ids = await _profile_ids(summaries, bars)
            bars.total(len(profile_ids))
            for start in range(0, len(profile_ids), _BATCH):
                batch = profile_ids[start : start + _BATCH]
                for profile_id, rows in (await _read(summaries, parts, batch)).items():
                    if summary.stopped_by:
                        return summary
                    result = await _ingest_rows(pipeline, profile_id, rows)
                    summary.add(result)
                    summary.stop_if_useless(result.error)
                    bars.done()
    return summary


def _require(rows: SourceRows, name: str, columns: Sequence[str]) -> None:
    for column in columns:
        if rows.columns.count(column) != 1:
            raise InvalidInputError(f"The query {name!r} needs one column {column!r}.", field="--profiles")


async def _profile_ids(summaries: SourceRows, bars: RowBars) -> list[int]:
    seen: set[int] = set()
    async with aclosing(summaries.keys(_PROFILE, None)) as keys:
        async for row in keys:
            if checked_profile(row.key) in seen:
                raise InvalidInputError("The query 'summary' names a profile twice.", field="--profiles")
            seen.add(row.key)
            bars.compared()
    return sorted(seen)


async def _read(
    summaries: SourceRows, parts: Mapping[str, SourceRows], profile_ids: Sequence[int]
) -> dict[int, ProfileRows]:
    profiles: dict[int, ProfileRows] = {
        row[_PROFILE]: defaultdict(list, {_SUMMARY: [row]})
        for row in await summaries.rows(_PROFILE, profile_ids)
    }
    for name, rows in parts.items():
        for row in sorted(await rows.rows(_PROFILE, profile_ids), key=_order):
            if row[_PROFILE] in profiles:  # not deleted since
                profiles[row[_PROFILE]][name].append(row)
    return profiles


def _order(row: Mapping[str, Any]) -> tuple[int, str]:
    """Rows come in any order; the text of a list of skills should not change with it."""
    key = row.get("id")
    return (key, "") if isinstance(key, int) else (0, str(key))


async def _ingest_rows(pipeline: RAGIngestionPipeline, profile_id: int, rows: ProfileRows) -> DocumentResult:
    source = f"profiles/{profile_id}"
    try:
        done = await pipeline.reingest_profile(
            profile_id,
            str(rows[_SUMMARY][0][_SUMMARY] or ""),
            rows["experiences"],
            rows["projects"],
            rows["skills"],
            rows["education"],
        )
    except VectorForgeError as exc:
        return DocumentResult.of_failure(source, exc)
    return _result(source, done)


def _result(source: str, done: IngestedProfile) -> DocumentResult:
    unchanged = done.documents_unchanged == done.documents and not done.documents_removed
    return DocumentResult(
        source=source,
        status=DocumentStatus.UNCHANGED if unchanged else DocumentStatus.SUCCEEDED,
        chunks_added=done.chunks_added,
        chunks_kept=done.chunks_kept,
        chunks_removed=done.chunks_removed,
    )
