"""Haystack: an asynchronous ``Pipeline`` over ``PgvectorDocumentStore``.

https://docs.haystack.deepset.ai/docs/pgvectordocumentstore.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import psycopg
from haystack import Document, Pipeline
from haystack.components.builders import ChatPromptBuilder
from haystack.components.embedders import OpenAIDocumentEmbedder, OpenAITextEmbedder
from haystack.components.generators.chat import OpenAIChatGenerator
from haystack.dataclasses import ChatMessage
from haystack.utils import Secret
from haystack_integrations.components.retrievers.pgvector import PgvectorEmbeddingRetriever
from haystack_integrations.document_stores.pgvector import PgvectorDocumentStore

from peers import job

_KEY = Secret.from_token(job.API_KEY)
_USER = (
    "Context:\n{% for document in documents %}[{{ loop.index }}] {{ document.content }}\n\n{% endfor %}"
    "Question: {{ question }}\nAnswer:"
)


class Contestant:
    """See ``job.Contestant``."""

    def __init__(self) -> None:
        self._place = job.Place.from_environment()
        self._table = f"haystack_passages{self._place.suffix}"
        self._index_name = f"{self._table}_hnsw"
        self._pipeline: Any = None
        self._stores: list[Any] = []

    async def open(self) -> None:
        """Do nothing: the store connects when the table exists."""

    async def close(self) -> None:
        for store in self._stores:
            await store.close_async()

    def _new_store(self, *, indexed: bool = False, recreate: bool = False) -> Any:
        store = PgvectorDocumentStore(
            connection_string=Secret.from_token(f"postgresql://{self._place.authority}"),
            table_name=self._table,
            embedding_dimension=job.DIMENSION,
            search_strategy="hnsw" if indexed else "exact_nearest_neighbor",
            recreate_table=recreate,
            hnsw_index_name=self._index_name,
            keyword_index_name=f"{self._table}_words",
        )
        self._stores.append(store)
        return store

    def _built(self) -> Any:
        """Return the pipeline, built by the first query."""
        if self._pipeline is not None:
            return self._pipeline
        url = self._place.model_url
        parts: dict[str, Any] = {
            "embedder": OpenAITextEmbedder(api_key=_KEY, model=job.EMBEDDING_MODEL, api_base_url=url),
            "retriever": PgvectorEmbeddingRetriever(
                document_store=self._new_store(indexed=True), top_k=job.TOP_K
            ),
            "prompt": ChatPromptBuilder(
                template=[ChatMessage.from_system(job.SYSTEM), ChatMessage.from_user(_USER)],
                required_variables="*",
            ),
            "model": OpenAIChatGenerator(
                api_key=_KEY,
                model=job.CHAT_MODEL,
                api_base_url=url,
                generation_kwargs={"stream_options": None},
            ),
        }
        pipeline: Any = Pipeline()
        for name, part in parts.items():
            pipeline.add_component(name, part)
        pipeline.connect("embedder.embedding", "retriever.query_embedding")
        pipeline.connect("retriever.documents", "prompt.documents")
        pipeline.connect("prompt.prompt", "model.messages")
        self._pipeline = pipeline
        return pipeline

    async def query(self, question: str, category: str) -> job.Answer:
        found = await self._built().run_async(_inputs(question, category), include_outputs_from={"retriever"})
        sources = [
            {"id": document.id, "score": document.score, "metadata": document.meta}
            for document in found["retriever"]["documents"]
        ]
        return job.Answer(found["model"]["replies"][0].text, sources)

    async def stream(self, question: str, category: str) -> AsyncIterator[str]:
        pieces: asyncio.Queue[str | None] = asyncio.Queue()

        async def push(piece: Any) -> None:
            pieces.put_nowait(piece.content)

        inputs = {**_inputs(question, category), "model": {"streaming_callback": push}}
        run = asyncio.ensure_future(self._built().run_async(inputs))
        run.add_done_callback(lambda _: pieces.put_nowait(None))
        while (text := await pieces.get()) is not None:
            if text:
                yield text
        await run

    async def clear(self) -> None:
        store = self._new_store(recreate=True)
        await store.count_documents_async()  # the first call creates the table

    async def ingest(self, chunks: Sequence[job.Chunk]) -> None:
        store = self._new_store()
        embedder: Any = OpenAIDocumentEmbedder(
            api_key=_KEY,
            model=job.EMBEDDING_MODEL,
            api_base_url=self._place.model_url,
            batch_size=job.EMBEDDING_BATCH,
            progress_bar=False,
        )
        documents = [Document(id=chunk.id, content=chunk.text, meta=chunk.metadata) for chunk in chunks]
        embedded = await embedder.run_async(documents)
        await store.write_documents_async(embedded["documents"])

    async def index(self) -> None:
        what = f"{self._table} USING hnsw (embedding vector_cosine_ops)"
        statement = f"CREATE INDEX {self._index_name} ON {what}"
        with psycopg.connect(self._place.conninfo, autocommit=True) as connection:
            connection.execute(statement.encode())


def _inputs(question: str, category: str) -> dict[str, Any]:
    condition = {"field": "meta.category", "operator": "==", "value": category}
    return {
        "embedder": {"text": question},
        "retriever": {"filters": condition},
        "prompt": {"question": question},
    }
