"""Small documents together: one request to the embedding model, and one transaction for the new ones.

A provider embeds sixty chunks in little more time than one, and a database commits two hundred documents in
little more time than one. Whatever needs more steps (a changed document, a text that the model rejects, a
request that failed) is left to ``IngestionPipeline.write_document``, so that each document has its own
result.
"""

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple
from uuid import UUID

from vectorforge.db.repositories.document_repo import CurrentDocument, DocumentRepository
from vectorforge.errors import EmbeddingInputError, VectorForgeError
from vectorforge.ingestion.contexts import ContextWriter
from vectorforge.ingestion.drafts import ChunkVectors, draft_chunks, draft_document
from vectorforge.ingestion.extract import media
from vectorforge.ingestion.types import (
    Charge,
    DocumentPart,
    DocumentResult,
    ExtractedDocument,
    ExtractionLimits,
    OnProgress,
)
from vectorforge.types import ChunkDraft, DocumentDraft, StoredDocument
from vectorforge.vectorstore.base import VectorStore

GROUP_SIZE: Final = 200
"""Documents stored together: most have one chunk, and ``chunk_rows.VECTOR_BATCH`` are one statement."""
SMALL_BYTES: Final = 8_192
"""Larger documents fill a request by themselves."""
GROUP_BYTES: Final = 262_144
"""Content of a group: about 400 chunks, 2.5 MB of 1,536 dimensions."""
_TRIES = 3
"""Attempts; each drops the text that the model rejected."""
_READ_AT_ONCE = (media.RECORD, media.PLAIN, media.MARKDOWN)
"""Types that are read in milliseconds, in process."""

Drafted = tuple[DocumentDraft, Sequence[ChunkDraft]]


class DocumentItem(NamedTuple):
    """A document to store, with the arguments for ``IngestionPipeline.ingest_parts``."""

    part: DocumentPart
    title: str | None
    metadata: Mapping[str, Any]


def is_small(part: DocumentPart) -> bool:
    """Return True if a document is small enough to be stored together with others."""
    if not 0 < len(part.content) <= SMALL_BYTES:
        return False
    try:
        return media.detect(part.content, part.source, part.media_type) in _READ_AT_ONCE
    except VectorForgeError:
        return False


def may_join(part: DocumentPart, group: Sequence[DocumentPart]) -> bool:
    """Return True if a document may be stored with a group: small ones together, each source once."""
    return (
        len(group) < GROUP_SIZE
        and is_small(part)
        and is_small(group[0])
        and sum(len(one.content) for one in (*group, part)) <= GROUP_BYTES
        and all(one.source != part.source for one in group)
    )


def grouped(items: Iterable[DocumentItem]) -> Iterator[list[DocumentItem]]:
    """Yield items in their order, in groups that ``may_join`` allows."""
    group: list[DocumentItem] = []
    for item in items:
        if group and not may_join(item.part, [one.part for one in group]):
            yield group
            group = []
        group.append(item)
    if group:
        yield group


def may_overlap(group: Sequence[DocumentItem], following: Sequence[DocumentItem]) -> bool:
    """Return True if several documents can be embedded before the ones in front of them are stored."""
    return len(following) > 1 and {item.part.source for item in group}.isdisjoint(
        item.part.source for item in following
    )


@dataclass(eq=False, slots=True)
class DocumentGroup:
    """Stores documents of one collection together, as far as that takes no more than two round trips.

    Args:
        contexts: Contexts and sizes of the chunks.
        vectors: Embeds the chunks; holds the vectors afterwards, also those of documents that are not stored.
        documents: Documents with different sources, by place.
        failures: Results of the places whose documents could not be read.
    """

    vector_store: VectorStore
    repo: DocumentRepository
    collection_id: UUID
    contexts: ContextWriter
    limits: ExtractionLimits
    vectors: ChunkVectors
    documents: Mapping[int, ExtractedDocument]
    failures: Sequence[tuple[int, DocumentResult]] = ()
    contents: Mapping[int, bytes] = field(default_factory=dict, init=False)
    """Files of the documents, by place, without those of rows and of lines of JSONL, which have none."""
    charged: frozenset[int] = field(default=frozenset(), init=False)
    """Places of the documents whose tokens have been counted."""
    _unchanged: dict[int, StoredDocument] = field(default_factory=dict, init=False)
    _ready: dict[int, Drafted] = field(default_factory=dict, init=False)
    _warnings: dict[int, tuple[str, ...]] = field(default_factory=dict, init=False)

    async def prepare(self, charge: Charge | None, on_progress: OnProgress | None = None) -> None:
        """Cut the documents into chunks, and embed what is new; writes nothing."""
        with suppress(VectorForgeError):  # raised again by IngestionPipeline.write_document
            sources = [document.source for document in self.documents.values()]
            current = await self.repo.current_hashes_of(self.collection_id, sources)
            drafted = await self._with_contexts(await asyncio.to_thread(self._draft, current), current)
            new: dict[int, Drafted] = {}
            changed: list[Drafted] = []
            for place, (draft, chunks) in drafted.items():
                before = current.get(draft.source)
                if before is None:
                    new[place] = draft, chunks
                elif before.content_hash == draft.content_hash:
                    self._unchanged[place] = before.unchanged()
                else:
                    unknown = [c for c in chunks if c.content_hash not in before.chunk_hashes]
                    changed.append((draft, unknown))
            if new and charge is not None:
                await charge(sum(chunk.token_count for _, chunks in new.values() for chunk in chunks))
                self.charged = frozenset(new)
            await self._embed([*new.values(), *changed], on_progress)
            self._ready = {
                place: (draft, [*map(self.vectors.given, chunks)]) for place, (draft, chunks) in new.items()
            }

    async def store(self) -> dict[int, StoredDocument]:
        """Store the new ones among the prepared documents.

        Returns:
            What was done, by the document's place; includes unchanged ones. A missing document was not
            stored, for a reason that ``IngestionPipeline.write_document`` handles or reports.
        """
        stored = dict(self._unchanged)
        with suppress(VectorForgeError):
            added = await self.vector_store.add_documents(self.collection_id, list(self._ready.values()))
            stored.update(
                (place, replace(one, warnings=self._warnings[place]))
                for place, one in zip(self._ready, added, strict=True)
                if one is not None
            )
        return stored

    async def _embed(self, drafted: Sequence[Drafted], on_progress: OnProgress | None) -> None:
        texts = {chunk.content_hash: (draft.title, chunk) for draft, chunks in drafted for chunk in chunks}
        missing = list(texts.values())
        for _ in range(_TRIES if missing else 0):
            try:
                await self.vectors.make(missing, on_progress)
            except EmbeddingInputError as exc:
                if exc.index is None:
                    raise
                del missing[exc.index]  # reported when that document is ingested
            else:
                break

    async def _with_contexts(
        self, drafted: Mapping[int, Drafted], current: Mapping[str, CurrentDocument]
    ) -> dict[int, Drafted]:
        async def one(place: int) -> Drafted:
            draft, chunks = drafted[place]
            before = current.get(draft.source)
            stored = before.chunk_hashes if before else frozenset()
            written = await self.contexts.write(self.documents[place], draft, chunks, stored)
            self._warnings[place] = written.warnings
            return written.draft, written.chunks

        return dict(zip(drafted, await asyncio.gather(*map(one, drafted)), strict=True))

    def _draft(self, current: Mapping[str, CurrentDocument]) -> dict[int, Drafted]:
        """Return drafts by place: without chunks for unchanged documents, without documents that fail."""
        drafted: dict[int, Drafted] = {}
        for place, document in self.documents.items():
            draft = draft_document(document, self.contexts.chunking)
            before = current.get(document.source)
            if before is not None and before.content_hash == draft.content_hash:
                drafted[place] = draft, ()
                continue
            with suppress(VectorForgeError):  # reported when it is ingested
                self.limits.check_chars(len(document.text))
                chunks = draft_chunks(document, self.contexts.chunking)
                self.limits.check_chunks(len(chunks))
                drafted[place] = draft, chunks
        return drafted
