"""A server's worker as a separate process, for ``test_ingestion_crash`` to kill.

``python ingestion_process.py <app url> <where to stop>``: prints the place on arrival, then waits.
"""

import asyncio
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from uuid import UUID

from tests.support.vendors.hashing_embedder import HashingEmbedder
from vectorforge.config import IngestionSettings
from vectorforge.db.connection import Database
from vectorforge.db.repositories.document_repo import DocumentRepository
from vectorforge.embedding.registry import EmbeddingProviderRegistry
from vectorforge.ingestion.pipeline import IngestionPipeline
from vectorforge.ingestion.worker import IngestionWorker
from vectorforge.types import ChunkDraft, DocumentDraft, StoredDocument, Vector
from vectorforge.vectorstore.pgvector import PgVectorStore


class StoppingEmbedder(HashingEmbedder):
    """Waits forever in the middle of the third document, between two of its batches."""

    def __init__(self, place: str) -> None:
        super().__init__(batch_size=2)
        self.place = place

    async def _call_api(self, texts: Sequence[str], model: str) -> Sequence[Vector]:
        if self.place in ("ahead", "embed") and any("Document 2, paragraph 3" in text for text in texts):
            await wait_for_the_kill(self.place)
        return await super()._call_api(texts, model)


class StoppingStore(PgVectorStore):
    """Waits forever once the new documents, or the third one, are stored, before the job is updated."""

    place = ""

    async def add_documents(
        self, collection_id: UUID, documents: Sequence[tuple[DocumentDraft, Sequence[ChunkDraft]]]
    ) -> list[StoredDocument | None]:
        """See ``VectorStore``."""
        stored = await super().add_documents(collection_id, documents)
        if self.place == "added":
            await wait_for_the_kill("added")
        return stored

    async def upsert_chunks(
        self, collection_id: UUID, document: DocumentDraft, chunks: Sequence[ChunkDraft]
    ) -> StoredDocument:
        """See ``VectorStore``."""
        stored = await super().upsert_chunks(collection_id, document, chunks)
        if self.place == "stored" and document.source == "2.txt":
            await wait_for_the_kill("stored")
        return stored


async def wait_for_the_kill(place: str) -> None:
    sys.stdout.write(place + "\n")
    sys.stdout.flush()
    await asyncio.Event().wait()


@asynccontextmanager
async def running_worker(url: str, place: str) -> AsyncIterator[None]:
    """Run a worker until the end of the block, which stops at ``place`` ("nowhere": it does not)."""
    embeddings = EmbeddingProviderRegistry()
    embeddings.register(StoppingEmbedder(place))
    StoppingStore.place = place
    settings = IngestionSettings(chunk_size_chars=100, chunk_overlap_chars=0)
    async with Database(url, pool_size=3) as database:

        def make_pipeline(tenant: str) -> IngestionPipeline:
            db = database.for_tenant(tenant)
            return IngestionPipeline(StoppingStore(db), DocumentRepository(db), embeddings, settings)

        worker = IngestionWorker(database, make_pipeline, poll_s=0.1)
        worker.start()
        try:
            yield
        finally:
            await worker.stop()


async def main(url: str, place: str) -> None:
    async with running_worker(url, place):
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
