"""A separate PostgreSQL server, and collections filled without an embedding model."""

import asyncio
import hashlib
import random
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from uuid import UUID

from figures.measuring import progress
from psycopg import connect
from psycopg.conninfo import make_conninfo
from rich.progress import track

from vectorforge.db.schema.migrate import migrate
from vectorforge.local.postgres import EmbeddedPostgres
from vectorforge.types import ChunkDraft, DocumentDraft, Vector
from vectorforge.vectorstore.pgvector import PgVectorStore

DIMENSION = 384
_CHUNKS_PER_DOCUMENT = 50
_TOPICS = 400


@contextmanager
def private_server() -> Iterator[EmbeddedPostgres]:
    """Start an embedded server with PostgreSQL's default settings in a temporary folder."""
    folder = Path(tempfile.mkdtemp(prefix="vf-figures-"))
    folder.chmod(0o755)  # as root, the server runs as another account that has to traverse it
    server = EmbeddedPostgres(folder / "postgres", settings={"max_connections": "100"})
    try:
        server.start()
        yield server
    finally:
        server.stop(force=True)
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def fresh_database(server: EmbeddedPostgres, name: str) -> Iterator[tuple[str, str]]:
    """Create a temporary migrated, empty database; yield URLs of the app role and its owner."""
    root = make_conninfo(server.migrator_url, dbname="postgres")
    with connect(root, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}".encode())
    try:
        owner = make_conninfo(server.migrator_url, dbname=name)
        with ThreadPoolExecutor(1) as thread:  # the caller may be in an event loop
            thread.submit(asyncio.run, migrate(owner)).result()
        yield make_conninfo(server.app_url, dbname=name), owner
    finally:
        with connect(root, autocommit=True) as connection:
            connection.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


def settle(owner_url: str) -> None:
    """Run autovacuum's work after a large ingestion now, so that it does not disturb measurements."""
    with connect(owner_url, autocommit=True) as connection:
        connection.execute("VACUUM ANALYZE")


def sentences(seed: int, characters: int) -> str:
    """Generate a text about one of 400 topics: texts of a topic share half of their words."""
    rng = random.Random(seed)
    topic = seed % _TOPICS
    words: list[str] = []
    length = 0
    while length < characters:
        word = f"t{topic}x{rng.randrange(60)}" if rng.random() < 0.5 else f"w{rng.randrange(5_000)}"
        place = len(words) % 60
        words.append(word + (".\n\n" if place == 59 else "." if place % 12 == 11 else ""))
        length += len(words[-1]) + 1
    return " ".join(words)


async def fill(
    store: PgVectorStore,
    collection_id: UUID,
    vectors: Sequence[Vector],
    *,
    seed: int = 0,
    quiet: bool = False,
) -> None:
    """Store these vectors with synthetic chunks of 700 characters, 50 per document."""
    starts = range(0, len(vectors), _CHUNKS_PER_DOCUMENT)
    label = f"  storing {len(vectors):,} vectors"
    for start in track(starts, label, console=progress, transient=True, disable=quiet):
        batch = vectors[start : start + _CHUNKS_PER_DOCUMENT]
        texts = [sentences(seed + start + i, 700) for i in range(len(batch))]
        source = f"filler-{seed}-{start}"
        document = DocumentDraft(
            source=source, text="".join(texts), media_type="text/plain", content_hash=_hash(source)
        )
        chunks, offset = [], 0
        for index, (text, vector) in enumerate(zip(texts, batch, strict=True)):
            chunks.append(
                ChunkDraft(
                    index=index,
                    text=text,
                    start_offset=offset,
                    end_offset=offset + len(text),
                    token_count=len(text) // 4,
                    content_hash=_hash(f"{source}-{index}"),
                    vector=vector,
                )
            )
            offset += len(text)
        await store.replace_document(collection_id, document, chunks)


def _hash(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()
