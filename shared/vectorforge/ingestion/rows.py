"""Documents of database rows: roles of columns, and detection of changed rows."""

import hashlib
import json
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import asdict, dataclass, replace
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

from vectorforge.errors import InvalidInputError, VectorForgeError
from vectorforge.ingestion.drafts import FORMAT
from vectorforge.ingestion.extract import media
from vectorforge.ingestion.extract.decode import clean, clean_json, replaced_warning
from vectorforge.ingestion.language import with_language
from vectorforge.ingestion.pipeline import IngestionPipeline
from vectorforge.ingestion.types import MAX_SOURCE_CHARS, DocumentResult, ExtractedDocument
from vectorforge.names import check_name, one_line
from vectorforge.types import ROW_VERSION, Collection

_MAX_NAME_CHARS = 200


@dataclass(frozen=True, slots=True)
class RowMapping:
    """Roles of the columns of a table or query.

    Args:
        name: Identity of the table or query in the collection; sources are ``<name>#<key>``.
        key: Unique column.
        text: Columns that make the text, in this order, with blank lines between them.
        updated: Column with the time of the last change: rows with an unchanged value are not read.
        title: Column of the title.
        metadata: Columns that become metadata under their own names.

    Raises:
        InvalidInputError: A name is missing, or a column has two tasks that exclude each other.
    """

    name: str
    key: str
    text: tuple[str, ...]
    updated: str | None = None
    title: str | None = None
    metadata: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not 1 <= len(self.name.strip()) <= _MAX_NAME_CHARS:
            raise InvalidInputError(
                f"The name of the rows must have 1 to {_MAX_NAME_CHARS} characters.", field="--source-name"
            )
        check_name(self.name, "--source-name")
        if not self.text:
            raise InvalidInputError("At least one column must make the text.", field="--text")
        if ROW_VERSION in self.metadata:
            raise InvalidInputError(f"{ROW_VERSION} is reserved for VectorForge.", field="--metadata-column")

    def check(self, columns: Sequence[str]) -> None:
        """Check the mapping against the existing columns.

        Raises:
            InvalidInputError: A column is missing or ambiguous.
        """
        for column in (self.key, *self.text, self.updated, self.title, *self.metadata):
            if column is not None and columns.count(column) != 1:
                problem = "is ambiguous" if column in columns else "does not exist"
                raise InvalidInputError(
                    f"The column {column!r} {problem}; columns: {', '.join(columns)}.", field=column
                )

    def source_of(self, key: Any) -> str:
        """Return the source of a row's document.

        Raises:
            InvalidInputError: The key is null, or too long.
        """
        if key is None:
            raise InvalidInputError(f"A row has no value in its key column {self.key!r}.", field=self.key)
        source = clean(f"{self.name}#{key}")[0]
        if len(source) > MAX_SOURCE_CHARS:
            raise InvalidInputError(
                f"A key is too long: with the name it may have {MAX_SOURCE_CHARS:,} characters.",
                field=self.key,
            )
        return source

    def document(self, row: Mapping[str, Any]) -> ExtractedDocument | None:
        """Return the document of a row; None if its text columns are empty."""
        text = "\n\n".join(part for column in self.text if (part := _text(row[column]).strip()))
        text, in_text = clean(text)
        if not text.strip():
            return None
        title = one_line(clean(_text(row[self.title]))[0])[:500] if self.title else ""
        metadata, in_metadata = clean_json(
            {column: value for column in self.metadata if (value := _json(row[column])) is not None}
        )
        replaced = in_text + in_metadata
        return ExtractedDocument(
            source=self.source_of(row[self.key]),
            text=text,
            media_type=media.PLAIN,
            title=title or None,
            metadata=with_language(metadata, text),
            warnings=(replaced_warning(replaced),) if replaced else (),
            parent_source=self.name,
        )


class RowIngestion:
    """Stores rows as documents of a collection.

    Args:
        pipeline: Also has the chunk sizes; documents chunked with other sizes are replaced.
        labels: Metadata for every document; a row's own win.
    """

    def __init__(
        self,
        pipeline: IngestionPipeline,
        collection: Collection,
        mapping: RowMapping,
        labels: Mapping[str, Any] | None = None,
    ) -> None:
        self.mapping = mapping
        self._pipeline = pipeline
        self._collection = collection
        self._labels = dict(labels or {})
        chunking = pipeline.contexts_of(collection).chunking
        decisive = [asdict(mapping), self._labels, chunking.chunk_size, chunking.chunk_overlap, FORMAT]
        if chunking.context is not None:
            decisive.append(chunking.context)
        self._made_with = hashlib.sha256(json.dumps(decisive, default=str).encode()).hexdigest()[:16]

    def version_of(self, updated: Any) -> str | None:
        """Return the ``ROW_VERSION`` for a time of change; None if the rows have no such column."""
        return None if updated is None else f"{self._made_with} {_text(updated)}"

    async def ingest(
        self, rows: Sequence[Mapping[str, Any]]
    ) -> AsyncGenerator[Sequence[tuple[int, DocumentResult | None]], None]:
        """Store rows with different keys, or replace their documents.

        Yields:
            Results as soon as they are final, each with the place of its row, and each row once. A failure is
            a result, so that other rows continue; None when the row has no text.
        """
        results: list[tuple[int, DocumentResult | None]] = []
        documents: dict[int, ExtractedDocument] = {}
        for place, row in enumerate(rows):
            try:
                document = self._document(row)
            except VectorForgeError as exc:
                results.append((place, DocumentResult.of_failure(str(row[self.mapping.key]), exc)))
            else:
                if document is None:
                    results.append((place, None))
                else:
                    documents[place] = document
        if results:
            yield results
        group = await self._pipeline.prepare_documents(self._collection, documents)
        async with aclosing(self._pipeline.ingest_group(self._collection, group)) as stored:
            async for ingested in stored:
                yield ingested

    def _document(self, row: Mapping[str, Any]) -> ExtractedDocument | None:
        document = self.mapping.document(row)
        if document is None:
            return None
        version = self.version_of(row[self.mapping.updated]) if self.mapping.updated else None
        metadata = {**self._labels, **document.metadata, **({ROW_VERSION: version} if version else {})}
        return replace(document, metadata=metadata)


def _text(value: Any) -> str:
    """Return a column's value as text; empty for null."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    plain = _json(value)
    return plain if isinstance(plain, str) else json.dumps(plain, ensure_ascii=False)


def _json(value: Any) -> Any:
    """Return a column's value as metadata: numbers, booleans, text, and lists and objects of them."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, datetime):
        return (value.astimezone(UTC) if value.tzinfo else value).isoformat()
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, float | Decimal):
        number = float(value)
        return number if number - number == 0 else str(value)  # NaN and infinities are not JSON
    if isinstance(value, Mapping):
        return {str(name): _json(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_json(item) for item in value]
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).decode("utf-8", "replace")
    return str(value)
