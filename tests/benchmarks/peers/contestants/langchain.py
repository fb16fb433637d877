"""LangChain: ``PGVectorStore``, ``OpenAIEmbeddings`` and ``ChatOpenAI`` in a chain, all asynchronous.

https://docs.langchain.com/oss/python/integrations/vectorstores/pgvectorstore. In its fast configuration: no
thread for the engine, a column for the category, no counting of tokens before texts are embedded.
"""

from collections.abc import AsyncIterator, Sequence
from typing import Any

from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_openai import ChatOpenAI, OpenAIEmbeddings
from langchain_postgres import Column, PGEngine, PGVectorStore
from langchain_postgres.v2.indexes import HNSWIndex
from sqlalchemy.ext.asyncio import create_async_engine

from peers import job


class Contestant:
    """See ``job.Contestant``."""

    table = "langchain_passages"

    def __init__(self) -> None:
        self._place = job.Place.from_environment()
        self._table = f"{self.table}{self._place.suffix}"
        self._store: Any = None

    async def open(self) -> None:
        self._connections = create_async_engine(f"postgresql+psycopg://{self._place.authority}", pool_size=16)
        self._engine = PGEngine.from_engine(self._connections)
        self._embeddings = OpenAIEmbeddings(
            model=job.EMBEDDING_MODEL,
            base_url=self._place.model_url,
            api_key=job.API_KEY,
            chunk_size=job.EMBEDDING_BATCH,
            check_embedding_ctx_length=False,
        )
        model = ChatOpenAI(
            model=job.CHAT_MODEL, base_url=self._place.model_url, api_key=job.API_KEY, stream_usage=True
        )
        template = ChatPromptTemplate.from_messages([("system", job.SYSTEM), ("user", "{prompt}")])
        self._chain: Any = template | model | StrOutputParser()

    async def close(self) -> None:
        await self._connections.dispose()

    async def _stored(self) -> Any:
        """Return the store, created after its table, which it checks."""
        if self._store is None:
            self._store = await PGVectorStore.create(
                self._engine,
                self._embeddings,
                self._table,
                metadata_columns=["category"],
                k=job.TOP_K,
                **self.store_options(),
            )
        return self._store

    def store_options(self) -> dict[str, Any]:
        """Options of the store and of its table, beyond those of a dense search."""
        return {}

    def search_options(self, question: str) -> dict[str, Any]:
        """Options of one search, beyond those of a dense search."""
        return {}

    async def _found(self, question: str, category: str) -> list[Any]:
        store = await self._stored()
        found: list[Any] = await store.asimilarity_search_with_score(
            question, k=job.TOP_K, filter={"category": {"$eq": category}}, **self.search_options(question)
        )
        return found

    async def query(self, question: str, category: str) -> job.Answer:
        found = await self._found(question, category)
        text = await self._chain.ainvoke({"prompt": _prompt(question, found)})
        sources = [
            {"id": document.metadata["chunk_id"], "score": 1 - distance, "metadata": document.metadata}
            for document, distance in found
        ]
        return job.Answer(text, sources)

    async def stream(self, question: str, category: str) -> AsyncIterator[str]:
        found = await self._found(question, category)
        async for text in self._chain.astream({"prompt": _prompt(question, found)}):
            if text:
                yield text

    async def clear(self) -> None:
        columns = [Column("category", "TEXT")]
        await self._engine.ainit_vectorstore_table(
            self._table,
            job.DIMENSION,
            metadata_columns=columns,
            overwrite_existing=True,
            **self.store_options(),
        )

    async def ingest(self, chunks: Sequence[job.Chunk]) -> None:
        store = await self._stored()
        await store.aadd_texts(
            [chunk.text for chunk in chunks], [{**chunk.metadata, "chunk_id": chunk.id} for chunk in chunks]
        )

    async def index(self) -> None:
        await (await self._stored()).aapply_vector_index(HNSWIndex())


def _prompt(question: str, found: Sequence[Any]) -> str:
    return job.prompt(question, [document.page_content for document, _ in found])
