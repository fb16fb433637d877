"""Ingesting files, such as CVs, into one profile."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from vectorforge.cli.files import SourceFile
from vectorforge.cli.ingest_run import IngestSummary, read_file
from vectorforge.cli.session import Session
from vectorforge.errors import VectorForgeError
from vectorforge.ingestion.part_reader import PartReader
from vectorforge.ingestion.pipeline import failed
from vectorforge.ingestion.profile import RAGIngestionPipeline
from vectorforge.ingestion.types import (
    DocumentPart,
    DocumentResult,
    DocumentStatus,
    ExtractionLimits,
)
from vectorforge.profile_types import SourceType


async def ingest_profile_files(
    session: Session,
    profile_id: int,
    files: Sequence[SourceFile],
    source_type: SourceType,
    *,
    metadata: Mapping[str, Any] | None = None,
) -> IngestSummary:
    """Add files to a profile, one after the other; one that fails does not stop the others.

    Args:
        session: Of the profile's tenant.
        profile_id: The profile.
        files: A source is the ``source_id``, so the same file again replaces its document.
        source_type: What all of them are.
        metadata: For every document.
    """
    services, reader = session.services, PartReader(ExtractionLimits.from_settings(session.config.ingestion))
    pipeline = await services.profiles.ingestion()
    summary = IngestSummary(await services.profiles.collection())
    for source, file, name in files:
        try:
            parts = await services.ingestion.split(read_file(file, reader.limits.max_bytes), source, None)
        except VectorForgeError as exc:
            summary.add(failed(source, exc))
            continue
        for part in parts:
            if summary.stopped_by:
                return summary
            named = part if part.parent_source else replace(part, fallback_title=name)
            result = await _ingest(pipeline, profile_id, named, source_type, reader, metadata or {})
            summary.add(result)
            summary.stop_if_useless(result.error)
    return summary


async def _ingest(
    pipeline: RAGIngestionPipeline,
    profile_id: int,
    part: DocumentPart,
    source_type: SourceType,
    reader: PartReader,
    metadata: Mapping[str, Any],
) -> DocumentResult:
    try:
        document = await reader.read(part, None, metadata)
        done = await pipeline.ingest_document(
            profile_id,
            document.text,
            source_type,
            source_id=part.source,
            title=document.title or Path(part.source).name,
            media_type=document.media_type,
            metadata=document.metadata,
            page_starts=document.page_starts,
        )
    except VectorForgeError as exc:
        return failed(part.source, exc)
    return DocumentResult(
        source=part.source,
        status=DocumentStatus.UNCHANGED if done.documents_unchanged else DocumentStatus.SUCCEEDED,
        chunks_added=done.chunks_added,
        chunks_kept=done.chunks_kept,
        chunks_removed=done.chunks_removed,
        warnings=document.warnings,
    )
