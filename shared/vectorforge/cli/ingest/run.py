"""Ingestion of files, with progress."""

import asyncio
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from vectorforge.cli.ingest.display import IngestDisplay
from vectorforge.cli.ingest.files import SkippedFile, SourceFile
from vectorforge.cli.options import shown_source
from vectorforge.cli.session import Session
from vectorforge.cli.terminal import Terminal
from vectorforge.errors import (
    ConfigurationError,
    DatabaseUnavailableError,
    EmbeddingAuthenticationError,
    ExtractionError,
    VectorForgeError,
)
from vectorforge.ingestion.group import DocumentItem, may_join
from vectorforge.ingestion.types import DocumentPart, DocumentResult, DocumentStatus, IngestionError
from vectorforge.types import Collection

PARALLEL_DOCUMENTS = 4
"""Documents in flight, enough to hide the latency of an embedding service."""
_MAX_REPORTED_FAILURES = 1_000
_MAX_WARNINGS = 100
_MAX_FAILED_IN_A_ROW = 8
_HOPELESS = frozenset(
    {ConfigurationError.code, DatabaseUnavailableError.code, EmbeddingAuthenticationError.code}
)


@dataclass(slots=True)
class IngestSummary:
    """Results of all documents of one run."""

    collection: Collection
    counts: Counter[DocumentStatus] = field(default_factory=Counter)
    chunks_added: int = 0
    chunks_kept: int = 0
    chunks_removed: int = 0
    failures: list[DocumentResult] = field(default_factory=list)
    """The first thousand; ``counts`` has them all."""
    stopped_by: IngestionError | None = None
    """Error that stopped the run before the remaining documents."""
    failed_in_a_row: int = 0
    """Consecutive documents that failed because a service was unavailable."""
    skipped_files: list[SkippedFile] = field(default_factory=list)
    """Files of the folders that were not read."""
    languages: set[str | None] = field(default_factory=set)
    """Languages of the documents, ISO 639-1; None: unknown."""
    language_note: str | None = None
    """Note on languages that the collection's embedding model hardly understands."""
    warnings: list[str] = field(default_factory=list)
    """The first hundred, each with its document."""
    missing_documents: int | None = None
    """Documents below the folders whose files no longer existed after the run; None without ``--prune``."""
    pruned_documents: int = 0
    """Those that were deleted."""

    @property
    def failed(self) -> int:
        """Number of failed documents."""
        return self.counts[DocumentStatus.FAILED]

    def add(self, result: DocumentResult) -> None:
        """Count one document."""
        self.counts[result.status] += 1
        self.chunks_added += result.chunks_added
        self.chunks_kept += result.chunks_kept
        self.chunks_removed += result.chunks_removed
        self.languages.add(result.language)
        room = _MAX_WARNINGS - len(self.warnings)
        self.warnings += [f"{shown_source(result.source)}: {warning}" for warning in result.warnings[:room]]
        if result.status is DocumentStatus.FAILED and len(self.failures) < _MAX_REPORTED_FAILURES:
            self.failures.append(result)

    def stop_if_useless(self, error: IngestionError | None) -> None:
        """Stop the run if the remaining documents would fail, too."""
        if error is None or not error.retryable:
            self.failed_in_a_row = 0
        else:
            self.failed_in_a_row += 1
        if error and (error.code in _HOPELESS or self.failed_in_a_row >= _MAX_FAILED_IN_A_ROW):
            self.stopped_by = self.stopped_by or error

    def row(self) -> tuple[str | int, ...]:
        """Collection, documents, stored, unchanged, failed, chunks added, kept and removed."""
        return (self.collection.name, *self._numbers().values())

    def _numbers(self) -> dict[str, int]:
        return {
            "documents": self.counts.total(),
            "succeeded": self.counts[DocumentStatus.SUCCEEDED],
            "unchanged": self.counts[DocumentStatus.UNCHANGED],
            "failed": self.failed,
            "chunks_added": self.chunks_added,
            "chunks_kept": self.chunks_kept,
            "chunks_removed": self.chunks_removed,
        }

    def notes(self) -> Iterator[str]:
        """Yield remarks on what was ingested."""
        if self.language_note is not None:
            yield self.language_note
        if self.pruned_documents:
            yield f"Deleted documents of files that no longer exist: {self.pruned_documents:,}."

    def as_json(self) -> dict[str, Any]:
        """Return the summary for programs, with the failures."""
        return {
            "collection": self.collection.name,
            "collection_id": self.collection.id,
            **self._numbers(),
            "stopped_by": self.stopped_by,
            "language_note": self.language_note,
            "failures": [{"source": f.source, "error": f.error} for f in self.failures],
            "skipped_files": [file._asdict() for file in self.skipped_files],
            "warnings": self.warnings,
            "missing_documents": self.missing_documents,
            "pruned_documents": self.pruned_documents,
        }


@dataclass(frozen=True, slots=True)
class _File:
    """A file and what has become of its documents so far."""

    parts: Sequence[DocumentPart]
    results: list[DocumentResult] = field(default_factory=list)


@dataclass(slots=True)
class _Run:
    """The state that the workers of one run share."""

    session: Session
    collection: Collection
    metadata: Mapping[str, Any]
    summary: IngestSummary
    display: IngestDisplay
    queue: asyncio.Queue["list[tuple[DocumentPart, _File]] | None"] = field(
        default_factory=lambda: asyncio.Queue(PARALLEL_DOCUMENTS)
    )
    """Documents that are embedded together: several small ones, or one larger one."""

    async def read(self, files: Sequence[SourceFile]) -> None:
        """Put the documents of every file into the queue, and at its end a None for each worker."""
        group: list[tuple[DocumentPart, _File]] = []
        for file in files:
            if self.summary.stopped_by:
                break
            try:
                parts = await read_parts(self.session, file)
            except VectorForgeError as exc:
                self.summary.add(DocumentResult.of_failure(file.source, exc))
                parts = []
            self.display.read(file.source, len(parts))
            opened = _File(parts)
            for part in parts:
                if group and not may_join(part, [one for one, _ in group]):
                    await self.queue.put(group)
                    group = []
                group.append((part, opened))
        if group:
            await self.queue.put(group)
        for _ in range(PARALLEL_DOCUMENTS):
            await self.queue.put(None)

    async def work(self) -> None:
        """Ingest documents from the queue until it ends; after a stop, only drain the queue."""
        ingestion = self.session.services.ingestion
        while (group := await self.queue.get()) is not None:
            if self.summary.stopped_by:
                continue
            items = [DocumentItem(part, None, self.metadata) for part, _ in group]
            ingested = ingestion.ingest_parts(self.collection, items, on_progress=self.display.embedding())
            async with aclosing(ingested) as batches:
                async for results in batches:
                    for place, result in results:
                        self.summary.add(result)
                        self.display.done()
                        self.summary.stop_if_useless(result.error)
                        await self._finish(group[place][1], result)
                    if self.summary.stopped_by:
                        break

    async def _finish(self, file: "_File", result: DocumentResult) -> None:
        """After the last document of a file, delete the documents that the file no longer contains."""
        file.results.append(result)
        if len(file.results) == len(file.parts):
            try:
                await self.session.services.ingestion.delete_left_out(
                    self.collection, file.parts, file.results
                )
            except VectorForgeError as exc:
                self.summary.add(DocumentResult.of_failure(file.parts[0].parent_source or result.source, exc))


async def ingest_files(
    terminal: Terminal,
    session: Session,
    collection: Collection,
    files: Sequence[SourceFile],
    *,
    metadata: Mapping[str, Any] | None = None,
) -> IngestSummary:
    """Ingest files, several documents at a time. One that fails does not stop the others.

    When the database is gone, the embedding provider refuses the key, or documents keep failing for want of
    a service, the run stops: see ``IngestSummary.stopped_by``. Stored documents stay.
    """
    summary = IngestSummary(collection)
    with IngestDisplay(terminal, len(files)) as display:
        run = _Run(session, collection, metadata or {}, summary, display)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(run.read(files))
                for _ in range(PARALLEL_DOCUMENTS):
                    group.create_task(run.work())
        except asyncio.CancelledError:
            stored = summary.counts[DocumentStatus.SUCCEEDED] + summary.counts[DocumentStatus.UNCHANGED]
            terminal.note(f"Documents stored: {stored}. The same command ingests the rest.")
            raise
    summary.language_note = session.services.embeddings.language_note(collection, summary.languages)
    return summary


async def read_parts(session: Session, file: SourceFile) -> list[DocumentPart]:
    """Read the documents of a file; raises ExtractionError or InvalidInputError if it cannot be read."""
    content = _read(file.path, session.config.ingestion.max_document_bytes)
    parts = await session.services.ingestion.split(content, file.source, None)
    if parts[0].parent_source is None:  # a line of JSONL has an id, the title of its own
        return [replace(part, fallback_title=file.name) for part in parts]
    return parts


def _read(file: Path, max_bytes: int) -> bytes:
    try:
        if file.stat().st_size > max_bytes:
            raise ExtractionError(
                f"The file is larger than {max_bytes:,} bytes (VECTORFORGE_MAX_DOCUMENT_BYTES).",
                reason="too_large",
            )
        return file.read_bytes()
    except OSError as exc:
        raise ExtractionError(f"The file cannot be read ({type(exc).__name__}).") from exc


def print_summary(terminal: Terminal, summary: IngestSummary) -> None:
    """Print the counts, the skipped files and the failures."""
    if terminal.json_output:
        terminal.json(summary.as_json())
        return
    columns = ["Collection", "Documents", "Stored", "Unchanged", "Failed", "Chunks added", "Kept", "Removed"]
    terminal.table([columns[0], *(f"{name}#" for name in columns[1:])], [summary.row()])
    for skipped in summary.skipped_files:
        terminal.note(f"skipped {shown_source(skipped.source)}: {skipped.reason}")
    for warning in summary.warnings:
        terminal.note(warning)
    for result in summary.failures:
        terminal.error(f"{shown_source(result.source)}: {result.error.message if result.error else 'failed'}")
    unreported = summary.failed - len(summary.failures)
    if unreported:
        terminal.error(f"... and {unreported} more.")
    for note in summary.notes():
        terminal.note(note)
