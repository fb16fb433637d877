"""A worker that re-embeds a collection, as a separate process for ``test_backfill_crash`` to kill.

``python backfill_process.py <app url> <text to stop at>``: prints each text it embeds, and waits
in the call for that text.
"""

import asyncio
import sys
from collections.abc import Sequence

from tests.support.vendors.hashing_embedder import HashingEmbedder
from vectorforge.config import IngestionSettings
from vectorforge.db.connection import Database
from vectorforge.db.repositories.document_repo import DocumentRepository
from vectorforge.embedding.registry import EmbeddingProviderRegistry
from vectorforge.ingestion.embedding_backfill import EmbeddingBackfill
from vectorforge.ingestion.pipeline import IngestionPipeline
from vectorforge.ingestion.worker import IngestionWorker
from vectorforge.types import Vector
from vectorforge.vectorstore.pgvector import PgVectorStore

BATCH = 4
DIMENSION = 96
LEASE_S = 1.5


class StoppingEmbedder(HashingEmbedder):
    """Prints each text, and waits forever in the call with one text."""

    def __init__(self, stop_at: str) -> None:
        super().__init__(name="new", dimension=DIMENSION)
        self._stop_at = stop_at

    async def _call_api(self, texts: Sequence[str], model: str) -> Sequence[Vector]:
        for text in texts:
            sys.stdout.write(f"{text}\n")
        sys.stdout.flush()
        if self._stop_at in texts:
            await asyncio.Event().wait()
        return await super()._call_api(texts, model)


async def main(url: str, stop_at: str) -> None:
    embeddings = EmbeddingProviderRegistry()
    embeddings.register(HashingEmbedder())
    embeddings.register(StoppingEmbedder(stop_at))
    async with Database(url, pool_size=3) as database:

        def make_pipeline(tenant: str) -> IngestionPipeline:
            db = database.for_tenant(tenant)
            settings = IngestionSettings()
            return IngestionPipeline(PgVectorStore(db), DocumentRepository(db), embeddings, settings)

        backfill = EmbeddingBackfill(database, embeddings, batch=BATCH, lease_s=LEASE_S)
        worker = IngestionWorker(database, make_pipeline, poll_s=0.1, backfill=backfill)
        worker.start()
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
