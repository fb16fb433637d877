"""Ingestion of rows from another PostgreSQL database, with progress."""

import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, Self

from vectorforge.cli.ingest.display import RowBars
from vectorforge.cli.ingest.run import IngestSummary
from vectorforge.cli.options import RowOptions
from vectorforge.cli.session import Session
from vectorforge.cli.terminal import Terminal
from vectorforge.db.source_rows import SourceRows, table_query
from vectorforge.errors import InvalidInputError
from vectorforge.ingestion.rows import RowIngestion, RowMapping
from vectorforge.types import ROW_VERSION, Collection

_BATCH = 100
"""Rows read at a time, limited because their texts are in memory."""
_FROM_ENVIRONMENT = "env:"


@dataclass(frozen=True, slots=True)
class RowsToIngest:
    """Parsed options of ``vectorforge ingest --from-postgres``."""

    dsn: str = field(repr=False)
    query: str
    mapping: RowMapping
    delete: bool = False
    """Delete the documents of removed rows."""
    everything: bool = False
    """Also read rows that have not changed since the last run."""

    @classmethod
    def of_options(cls, dsn: str, options: RowOptions) -> Self:
        """Check the options of the command line.

        Raises:
            InvalidInputError: An option is missing, or two exclude each other.
        """
        query, table = options.query, options.table
        if (query is None) == (table is None):
            raise InvalidInputError("Name either --query or --table.", field="--query")
        statement = table_query(table) if table is not None else str(query)
        digest = hashlib.sha256(statement.encode()).hexdigest()[:8]
        mapping = RowMapping(
            options.source_name or table or f"query-{digest}",
            options.key,
            tuple(options.text or ()),
            options.updated,
            options.title,
            tuple(options.metadata_column or ()),
        )
        return cls(resolved_dsn(dsn), statement, mapping, options.delete, options.everything)


def resolved_dsn(dsn: str) -> str:
    """The connection string, or what the environment has under the name after ``env:``.

    Raises:
        InvalidInputError: It has nothing under this name.
    """
    if not dsn.startswith(_FROM_ENVIRONMENT):
        return dsn
    name = dsn.removeprefix(_FROM_ENVIRONMENT)
    try:
        return os.environ[name]
    except KeyError:
        raise InvalidInputError(
            f"The environment has no variable {name!r}.", field="--from-postgres"
        ) from None


@dataclass(slots=True)
class _ComparedRows:
    """Result of the first pass over the keys."""

    sources: set[str] = field(default_factory=set)
    changed: list[Any] = field(default_factory=list)
    """Keys of rows to read."""
    unchanged: int = 0


@dataclass(slots=True)
class RowsSummary(IngestSummary):
    """Results of all rows of one run."""

    skipped: int = 0
    """Rows whose time of change, and so whose document, is the same as before."""
    without_text: int = 0
    deleted: int = 0

    def notes(self) -> Iterator[str]:
        """Yield the counts that the table of documents does not show."""
        for count, text in (
            (self.skipped, "Unchanged rows, not read"),
            (self.without_text, "Rows without text"),
            (self.deleted, "Deleted documents of removed rows"),
        ):
            if count:
                yield f"{text}: {count:,}."
        yield from IngestSummary.notes(self)

    def as_json(self) -> dict[str, Any]:
        """Return the summary for programs, with the failures."""
        counts = {"skipped": self.skipped, "without_text": self.without_text, "deleted": self.deleted}
        return {**IngestSummary.as_json(self), **counts}


async def ingest_rows(
    terminal: Terminal,
    session: Session,
    collection: Collection,
    options: RowsToIngest,
    *,
    labels: Mapping[str, Any] | None = None,
) -> RowsSummary:
    """Ingest the rows that are new or have changed; several at a time, and one that fails stops no other.

    The first pass reads keys and times of change only, and compares them with what is stored: so a row that
    was committed late, or changed back to an older time, is found too, which a mark of the latest time seen
    would miss.

    Raises:
        InvalidInputError: A column is missing, or keys are not unique.
        ConfigurationError: The connection string is not one.
        DatabaseUnavailableError: One of the databases is gone.
    """
    summary = RowsSummary(collection)
    mapping = options.mapping
    async with SourceRows.open(options.dsn, options.query) as rows:
        mapping.check(rows.columns)
        ingestion = RowIngestion(session.services.ingestion, collection, mapping, labels)
        with RowBars(terminal) as bars:
            compared = await _changed_rows(session, collection, rows, ingestion, options, bars)
            summary.skipped = compared.unchanged
            bars.total(len(compared.changed))
            for start in range(0, len(compared.changed), _BATCH):
                if summary.stopped_by:
                    break
                batch = await rows.rows(mapping.key, compared.changed[start : start + _BATCH])
                await _ingest_batch(ingestion, batch, summary, compared, bars)
    if options.delete and not summary.stopped_by:
        sources = sorted(compared.sources)
        summary.deleted = await session.services.ingestion.keep_only(collection, mapping.name, sources)
    summary.language_note = session.services.embeddings.language_note(collection, summary.languages)
    return summary


async def _changed_rows(
    session: Session,
    collection: Collection,
    rows: SourceRows,
    ingestion: RowIngestion,
    options: RowsToIngest,
    bars: RowBars,
) -> _ComparedRows:
    mapping, compared = options.mapping, _ComparedRows()
    stored = await session.services.documents.metadata_of_parent(collection.id, mapping.name, ROW_VERSION)
    async with aclosing(rows.keys(mapping.key, mapping.updated)) as keys:
        async for row in keys:
            source = mapping.source_of(row.key)
            if source in compared.sources:
                raise InvalidInputError(
                    f"The column {mapping.key!r} is not unique: several rows have the same value.",
                    field="--key",
                )
            compared.sources.add(source)
            version = stored.get(source)
            known = version is not None and version == ingestion.version_of(row.updated)
            if known and not options.everything:
                compared.unchanged += 1
            else:
                compared.changed.append(row.key)
            bars.compared()
    return compared


async def _ingest_batch(
    ingestion: RowIngestion,
    batch: Sequence[Mapping[str, Any]],
    summary: RowsSummary,
    compared: _ComparedRows,
    bars: RowBars,
) -> None:
    """Ingest some rows; after a stop, leave the rest."""
    async with aclosing(ingestion.ingest(batch)) as ingested:
        async for results in ingested:
            for place, result in results:
                if result is None:
                    summary.without_text += 1
                    key = batch[place][ingestion.mapping.key]
                    compared.sources.discard(ingestion.mapping.source_of(key))
                else:
                    summary.add(result)
                    summary.stop_if_useless(result.error)
                bars.done()
            if summary.stopped_by:
                return
