"""This service as a library: ``Application`` and the services of one tenant, in the caller's event loop.

The settings are environment variables, as for every user; ``peers.roster`` sets them.
"""

import asyncio
import hashlib
import os
from collections.abc import AsyncIterator, Sequence

from peers import job
from vectorforge.bootstrap import Application
from vectorforge.config import VectorForgeConfig
from vectorforge.errors import NotFoundError
from vectorforge.pipeline.presets import RAG_QUERY
from vectorforge.pipeline.types import QueryConfig
from vectorforge.tokens import estimate_tokens
from vectorforge.types import ChunkDraft, Collection, DocumentDraft, SearchSettings

CHUNKS_A_DOCUMENT = 100
_WRITERS = 4
"""Documents ingested concurrently, as in ``vectorforge ingest``."""


class Contestant:
    """See ``job.Contestant``; the collection is PEER_COLLECTION."""

    def __init__(self) -> None:
        self._application = Application.build(VectorForgeConfig.from_environment())
        self._tenant = self._application.for_tenant("local")
        self._name = os.environ["PEER_COLLECTION"] + os.environ["PEER_SUFFIX"]

    async def open(self) -> None:
        await self._application.open()

    async def close(self) -> None:
        await self._application.close()

    async def query(self, question: str, category: str) -> job.Answer:
        result = await self._tenant.query_service.query(question, self._name, _config(category))
        sources = [
            {"id": str(found.chunk.id), "score": found.score, "metadata": dict(found.chunk.metadata)}
            for found in result.retrieved_chunks
        ]
        return job.Answer(result.answer, sources)

    async def stream(self, question: str, category: str) -> AsyncIterator[str]:
        async for text in self._tenant.query_service.query_stream(question, self._name, _config(category)):
            yield text

    async def ingest(self, chunks: Sequence[job.Chunk]) -> None:
        collection = await self._tenant.find_collection(self._name)
        starts = iter(range(0, len(chunks), CHUNKS_A_DOCUMENT))

        async def work() -> None:
            for start in starts:
                await self._store(collection, start, chunks[start : start + CHUNKS_A_DOCUMENT])

        await asyncio.gather(*(work() for _ in range(_WRITERS)))

    async def clear(self) -> None:
        try:
            found = await self._tenant.find_collection(self._name)
        except NotFoundError:
            pass
        else:
            await self._tenant.collections.delete(found.id)
        words = self._name.startswith("benchmark-hybrid")  # a dense search does not use them
        await self._tenant.create_collection(self._name, search=SearchSettings(keeps_words=words))

    async def _store(self, collection: Collection, start: int, chunks: Sequence[job.Chunk]) -> None:
        provider = self._application.embedding_registry.get(collection.embedding_provider)
        vectors = await provider.embed_chunks(
            [chunk.text for chunk in chunks], model=collection.embedding_model
        )
        drafts, offset = [], 0
        for index, (chunk, vector) in enumerate(zip(chunks, vectors, strict=True)):
            draft = ChunkDraft(
                index=index,
                text=chunk.text,
                start_offset=offset,
                end_offset=offset + len(chunk.text),
                token_count=estimate_tokens(chunk.text, "gpt-4"),
                content_hash=hashlib.sha256(chunk.text.encode()).digest(),
                metadata=chunk.metadata,
                vector=vector,
            )
            drafts.append(draft)
            offset = draft.end_offset
        text = "".join(chunk.text for chunk in chunks)
        document = DocumentDraft(
            source=f"document-{start:08d}",
            text=text,
            media_type="text/plain",
            content_hash=hashlib.sha256(text.encode()).digest(),
        )
        await self._tenant.vector_store.replace_document(collection.id, document, drafts)

    async def index(self) -> None:
        """Do nothing: the service builds the index itself."""


def _config(category: str) -> QueryConfig:
    return RAG_QUERY.config(top_k=job.TOP_K, filters={"category": category})
