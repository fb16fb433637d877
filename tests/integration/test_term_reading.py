"""Chunks without terms, or with terms of another language, are indexed in small, resumable steps."""

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from uuid import UUID

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from tests.support.postgres.term_check import check_terms
from tests.support.rag.collections import insert_collection
from tests.support.rag.drafts import chunk_drafts, document_draft
from vectorforge.db.connection import Database
from vectorforge.db.repositories.collection_repo import CollectionRepository
from vectorforge.db.schema.migrate import read_migrations
from vectorforge.db.tenant_database import TenantDatabase
from vectorforge.db.term_reading import TermReader, read_unread_terms
from vectorforge.ingestion.pipeline import IngestionPipeline
from vectorforge.ingestion.worker import IngestionWorker
from vectorforge.types import Collection, DistanceMetric, SearchSettings
from vectorforge.vectorstore.pgvector import PgVectorStore

DOCUMENTS = 12
PASSAGES_EACH = 5


@dataclass
class Room:
    """A separate database with a tenant's collection."""

    owner_url: str
    database: Database
    db: TenantDatabase
    collection_id: UUID

    async def write(self, source: str, *texts: str) -> None:
        chunks = chunk_drafts(texts, [[1.0, 0.0]] * len(texts))
        document = document_draft(chunks, source=source)
        await PgVectorStore(self.db).replace_document(self.collection_id, document, chunks)

    async def collection(self) -> Collection:
        found = await CollectionRepository(self.db).find_by_id(self.collection_id)
        assert found is not None
        return found

    async def set_language(self, language: str) -> None:
        await CollectionRepository(self.db).set_search(self.collection_id, SearchSettings(language=language))

    async def check(self) -> int:
        return await check_terms(self.owner_url, self.db)

    async def count(self, language: str) -> int:
        """Return the number of chunks last indexed by this language."""
        rows = await self.db.fetch_all("SELECT FROM vectorforge.chunk_terms WHERE language = %s", (language,))
        return len(rows)

    async def read_all(self, chunks_per_step: int = 7) -> int:
        """Execute steps until nothing is left to index; return their number."""
        reader, steps = TermReader(self.database, chunks_per_step=chunks_per_step), 0
        while await reader.step():
            steps += 1
        return steps


@pytest.fixture
async def room(make_database: Callable[..., str]) -> AsyncIterator[Room]:
    owner_url = make_database()
    async with Database(make_conninfo(owner_url, user="vectorforge_app"), pool_size=8) as database:
        db = database.for_tenant("alice")
        room = Room(owner_url, database, db, await insert_collection(db, 2, DistanceMetric.COSINE))
        for number in range(DOCUMENTS):
            await room.write(
                f"{number}.md", *(f"The cats of house {n} are running" for n in range(PASSAGES_EACH))
            )
        yield room


class TestLanguageChange:
    async def test_language_change_indexes_every_chunk_again(self, room: Room) -> None:
        before = await room.check()
        await room.set_language("simple")
        read_collection = await room.collection()
        assert not read_collection.terms_complete
        await room.read_all()
        assert await room.check() > before  # "the", "of" and "are" are words now
        read = await room.collection()
        assert read.terms_complete
        assert read.data_version == read_collection.data_version + 1
        assert await room.count("simple") == DOCUMENTS * PASSAGES_EACH

    async def test_steps_are_small_and_index_each_chunk_once(self, room: Room) -> None:
        await room.set_language("simple")
        reader = TermReader(room.database, chunks_per_step=7)
        done = [0]
        while await reader.step():
            done.append(await room.count("simple"))
        grown = [after - before for before, after in pairwise(done)]
        assert max(grown) <= 7
        assert sum(grown) == DOCUMENTS * PASSAGES_EACH

    async def test_second_reader_resumes_after_the_first(self, room: Room) -> None:
        await room.set_language("simple")
        first = TermReader(room.database, chunks_per_step=7)
        for _ in range(4):
            assert await first.step()
        half = await room.count("simple")
        assert 0 < half < DOCUMENTS * PASSAGES_EACH
        assert await room.read_all() <= (DOCUMENTS * PASSAGES_EACH - half) // 3 + 2
        await room.check()

    async def test_second_language_change_starts_over(self, room: Room) -> None:
        await room.set_language("simple")
        reader = TermReader(room.database, chunks_per_step=7)
        for _ in range(4):
            assert await reader.step()
        await room.set_language("german")
        assert await room.count("german") == 0
        await room.read_all()
        assert await room.count("german") == DOCUMENTS * PASSAGES_EACH
        await room.check()

    async def test_documents_written_meanwhile_are_indexed(self, room: Room) -> None:
        await room.set_language("simple")
        reader = TermReader(room.database, chunks_per_step=7)
        for number in range(6):
            assert await reader.step()
            await room.write(f"{number}.md", "The new cat", f"The cats of house {number} are running")
            await room.write(f"new {number}.md", "The new dog")
        await room.read_all()
        await room.check()

    async def test_document_being_written_is_skipped_until_later(self, room: Room) -> None:
        await room.set_language("simple")
        async with room.db.transaction() as connection:
            await connection.execute(
                "SELECT FROM vectorforge.documents WHERE id = ("
                " SELECT id FROM vectorforge.documents ORDER BY id LIMIT 1 OFFSET 3) FOR UPDATE"
            )
            await room.read_all(100)
            assert await room.count("simple") == 3 * PASSAGES_EACH
            assert not (await room.collection()).terms_complete
        await room.read_all(100)
        assert (await room.collection()).terms_complete
        await room.check()

    async def test_concurrent_readers_and_writers_index_every_chunk(self, room: Room) -> None:
        await room.set_language("simple")

        async def write(name: int) -> None:
            for number in range(DOCUMENTS):
                await room.write(f"{number}.md", f"The text of writer {name}", f"The cats of house {number}")

        await asyncio.gather(*(room.read_all(3) for _ in range(3)), write(1), write(2))
        await room.read_all()
        assert (await room.collection()).terms_complete
        await room.check()

    async def test_idle_worker_indexes_chunks(self, room: Room) -> None:
        def no_pipeline(tenant_id: str) -> IngestionPipeline:
            raise AssertionError(tenant_id)

        await room.set_language("simple")
        await IngestionWorker(room.database, no_pipeline).run_until_idle()
        assert (await room.collection()).terms_complete
        await room.check()

    async def test_collection_of_other_tenant_is_not_indexed(self, room: Room) -> None:
        await room.set_language("simple")
        row = await room.database.for_tenant("bob").fetch_one(
            "SELECT passages, state FROM vectorforge.read_terms(%s, 100)", (room.collection_id,)
        )
        assert row == {"passages": 0, "state": "complete"}
        assert await room.count("simple") == 0


UNREAD_ROWS = """
SELECT vectorforge.enter_tenant('alice');
INSERT INTO vectorforge.collections
    (tenant_id, id, name, embedding_provider, embedding_model, dimension, distance_metric, keeps_words)
VALUES ('alice', gen_random_uuid(), 'full', 'p', 'm', 384, 'cosine', false),
       ('alice', gen_random_uuid(), 'empty', 'p', 'm', 384, 'cosine', false);
INSERT INTO vectorforge.documents (tenant_id, id, collection_id, source, title, media_type, text, size_chars,
    content_hash, chunk_count)
SELECT 'alice', gen_random_uuid(), c.id, 's' || n, 'Title', 't', '', 0, sha256(''), 3
FROM vectorforge.collections AS c, generate_series(1, 250) AS n WHERE c.name = 'full';
INSERT INTO vectorforge.chunks (tenant_id, id, collection_id, document_id, ordinal, text, start_offset,
    end_offset, token_count, content_hash, from_version)
SELECT 'alice', gen_random_uuid(), d.collection_id, d.id, n, 'Cats and dogs ' || n, 0, 0, 1, sha256(''), 1
FROM vectorforge.documents AS d, generate_series(0, 2) AS n;
UPDATE vectorforge.collections SET keeps_words = true, terms_complete = false;
"""


def migrate_command(owner_url: str, home: Path, *words: str) -> list[str]:
    """Run ``vectorforge migrate`` and return the lines of its output."""
    environment = {"PATH": os.environ["PATH"], "HOME": str(home)}
    environment["VECTORFORGE_MIGRATOR_DATABASE_URL"] = owner_url
    program = str(Path(sys.executable).with_name("vectorforge"))
    done = subprocess.run(
        [program, "migrate", *words], env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout.splitlines()


class TestCollectionsWithoutTerms:
    """750 chunks stored while their collection stored no terms."""

    @pytest.fixture
    def owner_url(self, make_database: Callable[..., str]) -> str:
        url = make_database()
        with psycopg.connect(url) as connection:
            connection.execute(UNREAD_ROWS)
        return url

    async def test_reading_all_tenants_indexes_every_chunk(self, owner_url: str) -> None:
        shown: list[tuple[int, int]] = []
        chunks = await read_unread_terms(
            owner_url, on_progress=lambda done, total: shown.append((done, total)), chunks_per_step=100
        )
        assert chunks == (750, True)
        assert [done for done, _ in shown] == sorted(done for done, _ in shown)
        assert shown[0][1] == 250
        assert shown[-1] == (250, 250)
        assert await read_unread_terms(owner_url) == (0, True)
        async with Database(make_conninfo(owner_url, user="vectorforge_app")) as database:
            db = database.for_tenant("alice")
            assert all(found.terms_complete for found in await CollectionRepository(db).list())
            assert await check_terms(owner_url, db) > 0

    async def test_migrate_command_indexes_unless_schema_only(self, owner_url: str, tmp_path: Path) -> None:
        async def run(*words: str) -> list[str]:
            return await asyncio.to_thread(migrate_command, owner_url, tmp_path, *words)

        assert await run("--schema-only") == ["The schema is up to date."]
        assert await run() == ["The schema is up to date.", "read     the words of 750 passages"]
        assert await run() == ["The schema is up to date."]


async def test_migrate_command_on_empty_database_names_every_migration(
    make_database: Callable[..., str], tmp_path: Path
) -> None:
    lines = await asyncio.to_thread(migrate_command, make_database(empty=True), tmp_path)
    assert lines == [f"applied  {migration.name}" for migration in read_migrations()]
