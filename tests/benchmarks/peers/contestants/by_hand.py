"""Shared parts of the contestants without a framework: table, pool, statement and bulk write."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from pgvector.psycopg import register_vector_async
from psycopg_pool import AsyncConnectionPool

from peers import job

Embed = Callable[[list[str]], Awaitable[Sequence[Any]]]

_SEARCH = f"""
SELECT id, content, metadata, embedding <=> %(vector)b AS distance FROM {{table}}
WHERE category = %(category)s ORDER BY embedding <=> %(vector)b LIMIT {job.TOP_K}
"""
_COLUMNS = f"""(
    id text PRIMARY KEY, category text NOT NULL, content text NOT NULL, metadata jsonb NOT NULL,
    embedding vector({job.DIMENSION}) NOT NULL
)"""


class Passages:
    """A separate table of chunks, behind a pool of binary connections."""

    def __init__(self, place: job.Place) -> None:
        self._table = f"by_hand{place.suffix}"
        self._search = _SEARCH.format(table=self._table).encode()
        self._pool = AsyncConnectionPool(
            place.conninfo,
            min_size=4,
            max_size=16,
            open=False,
            configure=register_vector_async,
            kwargs={"autocommit": True, "prepare_threshold": 0},
        )

    async def open(self) -> None:
        """Connect."""
        await self._pool.open()

    async def close(self) -> None:
        """Disconnect."""
        await self._pool.close()

    async def nearest(self, vector: Any, category: str) -> list[tuple[Any, ...]]:
        """Return rows of id, content, metadata and distance, nearest first."""
        async with self._pool.connection() as connection, connection.cursor(binary=True) as cursor:
            await cursor.execute(self._search, {"vector": vector, "category": category})
            return await cursor.fetchall()

    async def clear(self) -> None:
        """Recreate the table."""
        async with self._pool.connection() as connection:
            await connection.execute(f"DROP TABLE IF EXISTS {self._table}".encode())
            await connection.execute(f"CREATE TABLE {self._table} {_COLUMNS}".encode())

    async def add(self, chunks: Sequence[job.Chunk], embed: Embed) -> None:
        """Copy the chunks into the table."""
        statement = f"COPY {self._table} FROM STDIN (FORMAT BINARY)".encode()
        async with self._pool.connection() as connection, connection.cursor().copy(statement) as copy:
            copy.set_types(["text", "text", "text", "jsonb", "vector"])
            for start in range(0, len(chunks), job.EMBEDDING_BATCH):
                batch = chunks[start : start + job.EMBEDDING_BATCH]
                vectors = await embed([chunk.text for chunk in batch])
                for chunk, vector in zip(batch, vectors, strict=True):
                    category = chunk.metadata["category"]
                    await copy.write_row((chunk.id, category, chunk.text, _json(chunk.metadata), vector))

    async def index(self) -> None:
        """Build the indexes."""
        async with self._pool.connection() as connection:
            for what in ("USING hnsw (embedding vector_cosine_ops)", "(category)"):
                await connection.execute(f"CREATE INDEX ON {self._table} {what}".encode())


def _json(metadata: dict[str, Any]) -> Any:
    from psycopg.types.json import Jsonb

    return Jsonb(metadata)


def answer(text: str, rows: Sequence[tuple[Any, ...]]) -> job.Answer:
    """Return the answer with the rows of ``nearest``."""
    sources = [{"id": row[0], "score": 1 - row[3], "metadata": row[2]} for row in rows]
    return job.Answer(text, sources)


def messages(question: str, rows: Sequence[tuple[Any, ...]]) -> list[dict[str, str]]:
    """Return the request's messages with the rows of ``nearest``."""
    return job.messages(question, [row[1] for row in rows])
