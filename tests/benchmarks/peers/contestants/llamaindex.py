"""LlamaIndex: ``PGVectorStore`` behind a ``RetrieverQueryEngine``, asynchronous.

https://developers.llamaindex.ai/python/examples/vector_stores/postgres/. Engines are cached, one for each
category, and the category has an index.
"""

from collections.abc import AsyncIterator, Sequence
from typing import Any, ClassVar

import psycopg
from llama_index.core import PromptTemplate, VectorStoreIndex, get_response_synthesizer
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.schema import TextNode
from llama_index.core.vector_stores import MetadataFilter, MetadataFilters
from llama_index.embeddings.openai import OpenAIEmbedding
from llama_index.llms.openai import OpenAI
from llama_index.vector_stores.postgres import PGVectorStore

from peers import job

_TEMPLATE = f"{job.SYSTEM}\n\nContext:\n{{context_str}}\n\nQuestion: {{query_str}}\nAnswer:"


class Contestant:
    """See ``job.Contestant``."""

    table = "llamaindex_passages"
    store_options: ClassVar[dict[str, Any]] = {}
    """Options of the store, beyond those of a dense search."""
    search_options: ClassVar[dict[str, Any]] = {}
    """Options of the retriever, likewise."""

    def __init__(self) -> None:
        self._place = job.Place.from_environment()
        self._table = f"{self.table}{self._place.suffix}"
        self._data_table = f"data_{self._table}"  # the store's table name
        self._engines: dict[tuple[str, bool], Any] = {}

    async def open(self) -> None:
        self._store = self._new_store(with_index=True)
        url = self._place.model_url
        self._embeddings = OpenAIEmbedding(
            model=job.EMBEDDING_MODEL,
            api_base=url,
            api_key=job.API_KEY,
            embed_batch_size=job.EMBEDDING_BATCH,
        )
        self._model = OpenAI(model=job.CHAT_MODEL, api_base=url, api_key=job.API_KEY)
        self._index: Any = VectorStoreIndex.from_vector_store(self._store, embed_model=self._embeddings)

    def _new_store(self, *, with_index: bool) -> Any:
        hnsw = {
            "hnsw_m": 16,
            "hnsw_ef_construction": 64,
            "hnsw_ef_search": 40,
            "hnsw_dist_method": "vector_cosine_ops",
        }
        return PGVectorStore.from_params(
            host=self._place.database_host,
            port=str(self._place.database_port),
            database=self._place.database,
            user=self._place.user,
            password="none",
            table_name=self._table,
            embed_dim=job.DIMENSION,
            use_jsonb=True,
            indexed_metadata_keys={("category", "text")},
            hnsw_kwargs=hnsw if with_index else None,
            create_engine_kwargs={"pool_size": 16},
            **self.store_options,
        )

    async def close(self) -> None:
        await self._store.close()

    def _engine(self, category: str, *, streaming: bool) -> Any:
        if (category, streaming) not in self._engines:
            filters = MetadataFilters(filters=[MetadataFilter(key="category", value=category)])
            synthesizer = get_response_synthesizer(
                llm=self._model,
                text_qa_template=PromptTemplate(_TEMPLATE),
                response_mode="simple_summarize",
                streaming=streaming,
                use_async=True,
            )
            self._engines[category, streaming] = RetrieverQueryEngine(
                retriever=self._index.as_retriever(
                    similarity_top_k=job.TOP_K, filters=filters, **self.search_options
                ),
                response_synthesizer=synthesizer,
            )
        return self._engines[category, streaming]

    async def query(self, question: str, category: str) -> job.Answer:
        found = await self._engine(category, streaming=False).aquery(question)
        sources = [
            {"id": node.node.node_id, "score": node.score, "metadata": node.node.metadata}
            for node in found.source_nodes
        ]
        return job.Answer(found.response, sources)

    async def stream(self, question: str, category: str) -> AsyncIterator[str]:
        found = await self._engine(category, streaming=True).aquery(question)
        async for text in found.async_response_gen():
            if text:
                yield text

    async def clear(self) -> None:
        self._execute(f"DROP TABLE IF EXISTS {self._data_table}")

    async def ingest(self, chunks: Sequence[job.Chunk]) -> None:
        store = self._new_store(with_index=False)
        nodes = [TextNode(id_=chunk.id, text=chunk.text, metadata=chunk.metadata) for chunk in chunks]
        vectors = await self._embeddings.aget_text_embedding_batch([chunk.text for chunk in chunks])
        for node, vector in zip(nodes, vectors, strict=True):
            node.embedding = vector
        await store.async_add(nodes)
        await store.close()

    async def index(self) -> None:
        self._execute(f"CREATE INDEX ON {self._data_table} USING hnsw (embedding vector_cosine_ops)")

    def _execute(self, statement: str) -> None:
        with psycopg.connect(self._place.conninfo, autocommit=True) as connection:
            connection.execute(statement.encode())
