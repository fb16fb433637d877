"""What the contestants without a framework share: table, pool, statement and bulk write."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from pgvector.psycopg import register_vector_async
from psycopg import AsyncConnection
from psycopg_pool import AsyncConnectionPool

from peers import job

Embed = Callable[[list[str]], Awaitable[Sequence[Any]]]

_SEARCH = f"""
SELECT id, content, metadata, embedding <=> %(vector)b AS distance FROM by_hand
WHERE category = %(category)s ORDER BY embedding <=> %(vector)b LIMIT {job.TOP_K}
"""
_TABLE = f"""
CREATE TABLE by_hand (
    id text PRIMARY KEY, category text NOT NULL, content text NOT NULL, metadata jsonb NOT NULL,
    embedding vector({job.DIMENSION}) NOT NULL
)"""


class Passages:
    """The passages in a table of their own, behind a pool of binary connections."""

    def __init__(self, place: job.Place) -> None:
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
        """Rows of id, content, metadata and distance, nearest first."""
        async with self._pool.connection() as connection, connection.cursor(binary=True) as cursor:
            await cursor.execute(_SEARCH.encode(), {"vector": vector, "category": category})
            return await cursor.fetchall()

    async def replace_all(self, chunks: Sequence[job.Chunk], embed: Embed) -> None:
        """Make the table anew and copy the chunks into it."""
        async with self._pool.connection() as connection:
            await connection.execute("DROP TABLE IF EXISTS by_hand")
            await connection.execute(_TABLE.encode())
            await self._copy(connection, chunks, embed)

    async def _copy(
        self, connection: AsyncConnection[Any], chunks: Sequence[job.Chunk], embed: Embed
    ) -> None:
        columns = "COPY by_hand FROM STDIN (FORMAT BINARY)"
        async with connection.cursor().copy(columns) as copy:
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
            await connection.execute("CREATE INDEX ON by_hand USING hnsw (embedding vector_cosine_ops)")
            await connection.execute("CREATE INDEX ON by_hand (category)")


def _json(metadata: dict[str, Any]) -> Any:
    from psycopg.types.json import Jsonb

    return Jsonb(metadata)


def answer(text: str, rows: Sequence[tuple[Any, ...]]) -> job.Answer:
    """The answer with what ``nearest`` found."""
    sources = [{"id": row[0], "score": 1 - row[3], "metadata": row[2]} for row in rows]
    return job.Answer(text, sources)


def messages(question: str, rows: Sequence[tuple[Any, ...]]) -> list[dict[str, str]]:
    """The request's messages with what ``nearest`` found."""
    return job.messages(question, [row[1] for row in rows])
