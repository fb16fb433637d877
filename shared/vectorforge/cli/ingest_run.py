"""Ingesting files one after the other, with progress for whoever watches."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)

from vectorforge.cli.session import Session
from vectorforge.cli.terminal import Terminal, printable
from vectorforge.errors import ExtractionError, VectorForgeError
from vectorforge.ingestion.types import DocumentResult, DocumentStatus, IngestionError, IngestionStage
from vectorforge.types import Collection

_STAGE_NAMES = {
    IngestionStage.EXTRACT: "Reading",
    IngestionStage.CHUNK: "Chunking",
    IngestionStage.EMBED: "Embedding",
    IngestionStage.STORE: "Storing",
}
_MAX_REPORTED_FAILURES = 1_000


@dataclass(slots=True)
class IngestSummary:
    """What became of all documents of one run."""

    collection: Collection
    counts: Counter[DocumentStatus] = field(default_factory=Counter)
    chunks_added: int = 0
    chunks_kept: int = 0
    chunks_removed: int = 0
    failures: list[DocumentResult] = field(default_factory=list)
    """The first thousand; ``counts`` has them all."""

    @property
    def failed(self) -> int:
        """How many documents failed."""
        return self.counts[DocumentStatus.FAILED]

    def add(self, result: DocumentResult) -> None:
        """Count one document."""
        self.counts[result.status] += 1
        self.chunks_added += result.chunks_added
        self.chunks_kept += result.chunks_kept
        self.chunks_removed += result.chunks_removed
        if result.status is DocumentStatus.FAILED and len(self.failures) < _MAX_REPORTED_FAILURES:
            self.failures.append(result)

    def row(self) -> tuple[str | int, ...]:
        """Collection, documents, stored, unchanged, failed, chunks added, kept and removed."""
        return (
            self.collection.name,
            self.counts.total(),
            self.counts[DocumentStatus.SUCCEEDED],
            self.counts[DocumentStatus.UNCHANGED],
            self.failed,
            self.chunks_added,
            self.chunks_kept,
            self.chunks_removed,
        )

    def as_json(self) -> dict[str, Any]:
        """The same for programs, with the failures."""
        names = (
            "documents",
            "succeeded",
            "unchanged",
            "failed",
            "chunks_added",
            "chunks_kept",
            "chunks_removed",
        )
        return {
            "collection": self.collection.name,
            "collection_id": self.collection.id,
            **dict(zip(names, self.row()[1:], strict=True)),
            "failures": [{"source": f.source, "error": f.error} for f in self.failures],
        }


class _Display:
    """Two bars on stderr: files done, and passages embedded of the file at hand. Silent off a terminal."""

    def __init__(self, terminal: Terminal, files: int) -> None:
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=terminal.err,
            transient=True,
            disable=terminal.json_output or not terminal.err.is_terminal,
        )
        self._files = self._progress.add_task("Files", total=files)
        self._stage = self._progress.add_task("", total=None, visible=False)

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def start_file(self, source: str) -> None:
        self._progress.update(self._files, description=f"Files  {printable(source)[-50:]}")

    def finish_file(self) -> None:
        self._progress.advance(self._files)
        self._progress.update(self._stage, visible=False)

    def stage(self, stage: IngestionStage) -> None:
        self._progress.reset(self._stage, description=_STAGE_NAMES[stage], total=None, visible=True)

    def progress(self, done: int, total: int) -> None:
        self._progress.update(self._stage, completed=done, total=total)


async def ingest_files(
    terminal: Terminal,
    session: Session,
    collection: Collection,
    files: Sequence[tuple[str, Path]],
    *,
    metadata: Mapping[str, Any] | None = None,
) -> IngestSummary:
    """Ingest (source, file) pairs in order. A document that fails does not stop the others.

    Raises:
        DatabaseError: The database is gone; what was stored stays.
        EmbeddingAuthenticationError: The embedding provider refuses the key, so every document would fail.
    """
    summary = IngestSummary(collection)
    with _Display(terminal, len(files)) as display:
        for source, file in files:
            display.start_file(source)
            for result in await _ingest_file(session, collection, source, file, metadata or {}, display):
                summary.add(result)
            display.finish_file()
    return summary


async def _ingest_file(
    session: Session,
    collection: Collection,
    source: str,
    file: Path,
    metadata: Mapping[str, Any],
    display: _Display,
) -> list[DocumentResult]:
    try:
        content = _read(file, session.config.ingestion.max_document_bytes)
    except VectorForgeError as exc:
        error = IngestionError(exc.code, exc.message)
        return [DocumentResult(source, DocumentStatus.FAILED, error=error)]
    return await session.services.ingestion.ingest_bytes(
        collection,
        content,
        source=source,
        metadata=metadata,
        on_stage=display.stage,
        on_progress=display.progress,
    )


def _read(file: Path, max_bytes: int) -> bytes:
    try:
        if file.stat().st_size > max_bytes:
            raise ExtractionError(f"The file is larger than {max_bytes:,} bytes.", reason="too_large")
        return file.read_bytes()
    except OSError as exc:
        raise ExtractionError(f"The file cannot be read ({type(exc).__name__}).") from exc


def print_summary(terminal: Terminal, summary: IngestSummary) -> None:
    """Print what was ingested, and why what failed did."""
    if terminal.json_output:
        terminal.json(summary.as_json())
        return
    terminal.table(
        [
            "Collection",
            "Documents#",
            "Stored#",
            "Unchanged#",
            "Failed#",
            "Chunks added#",
            "Kept#",
            "Removed#",
        ],
        [summary.row()],
    )
    for result in summary.failures:
        terminal.error(f"{result.source}: {result.error.message if result.error else 'failed'}")
