"""kill -9 in the middle of an ingestion, then a worker of another process: no loss, no duplicates."""

import asyncio
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from psycopg.rows import TupleRow

from tests.integration.ingestion_process import running_worker
from tests.support.vendors.hashing_embedder import DIMENSION
from vectorforge.db.connection import Database
from vectorforge.db.repositories.collection_repo import CollectionRepository
from vectorforge.db.repositories.document_repo import DocumentRepository
from vectorforge.db.repositories.job_repo import JobRepository
from vectorforge.db.repositories.job_types import NewJobItem
from vectorforge.types import Collection, DistanceMetric

SCRIPT = Path(__file__).with_name("ingestion_process.py")
PARAGRAPHS = {"ahead": 5, "added": 5, "embed": 100, "store": 5, "stored": 5}
"""Too many chunks to share a request with other documents, for the place "embed"."""
DOCUMENTS = 6


def paragraph(document: int, number: int, word: str) -> str:
    return (
        f"Document {document}, paragraph {number} says {word} things in so many words that they fill a chunk."
    )


def text_of(document: int, word: str, paragraphs: int) -> str:
    return "\n\n".join(paragraph(document, number, word) for number in range(paragraphs))


@contextmanager
def worker_process(url: str, place: str) -> "Iterator[subprocess.Popen[str]]":
    process = subprocess.Popen([sys.executable, str(SCRIPT), url, place], stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


async def versions(library: "Library") -> dict[str, str]:
    """Return the version ("old", "new") of each document, checking that it is complete."""
    documents = DocumentRepository(library.database.for_tenant("tenant"))
    found = {}
    for document in (await documents.list(library.collection.id))[0]:
        text = await documents.text(document.id)
        chunks = await documents.chunks(document.id)
        assert text is not None
        assert "\n\n".join(chunk.text for chunk in chunks) == text
        found[document.source] = "new" if " new " in text else "old"
    return found


@dataclass
class Library:
    """A collection in a separate database, and the database's superuser."""

    database: Database
    collection: Collection
    url: str
    admin_url: str
    admin: "psycopg.Connection[TupleRow]"

    @property
    def jobs(self) -> JobRepository:
        return JobRepository(self.database.for_tenant("tenant"))

    async def submit(self, word: str, count: int, paragraphs: int) -> UUID:
        items = [NewJobItem(f"{n}.txt", None, text_of(n, word, paragraphs).encode()) for n in range(count)]
        return (await self.jobs.create(self.collection.id, items)).id

    async def submit_each(self, word: str, count: int, paragraphs: int) -> list[UUID]:
        """Submit documents as a job each; they wait for each other, since any job may have any document."""
        items = [NewJobItem(f"{n}.txt", None, text_of(n, word, paragraphs).encode()) for n in range(count)]
        return [(await self.jobs.create(self.collection.id, [item])).id for item in items]

    async def work_to_the_end(self) -> None:
        """Run another worker, in this process, until all jobs are finished."""
        async with running_worker(self.url, "nowhere"):
            async with asyncio.timeout(60):
                while any(job.finished_at is None for job in await self.jobs.list()):  # noqa: ASYNC110 - polls a database
                    await asyncio.sleep(0.05)

    async def work_until(self, place: str) -> None:
        """Kill a worker at a place: while it embeds, in the middle of its transaction, or just after it.

        It embeds all documents at once ("ahead"), or the third alone ("embed"), has stored the new ones
        ("added"), or replaces the third alone ("store", "stored").
        """
        self.admin.execute(
            "SELECT FROM vectorforge.chunks WHERE text LIKE 'Document 2,%%' AND %s FOR UPDATE",
            [place == "store"],
        )
        with worker_process(self.url, place) as process:
            if place == "store":
                await self._until_it_waits_for_a_lock()
            else:
                assert process.stdout is not None
                async with asyncio.timeout(60):  # a worker that misses the place would never say so
                    assert (await asyncio.to_thread(process.stdout.readline)).strip() == place
            process.send_signal(signal.SIGKILL)
            process.wait()
        self.admin.rollback()
        # A short lease instead would also expire for a slow worker, and three expiries fail a document.
        self.admin.execute("UPDATE vectorforge.ingestion_jobs SET lease_expires_at = now()")
        self.admin.commit()

    async def _until_it_waits_for_a_lock(self) -> None:
        waiting = (
            "SELECT count(*) FROM pg_stat_activity"
            " WHERE datname = current_database() AND usename = 'vectorforge_app' AND wait_event_type = 'Lock'"
        )
        with psycopg.connect(self.admin_url, autocommit=True) as monitor:
            async with asyncio.timeout(60):
                while monitor.execute(waiting).fetchone() != (1,):  # noqa: ASYNC110 - polls a database
                    await asyncio.sleep(0.05)


@pytest.fixture
async def library(make_database: Callable[..., str]) -> AsyncIterator[Library]:
    admin_url = make_database()
    url = make_conninfo(admin_url, user="vectorforge_app")
    with psycopg.connect(admin_url) as admin:
        async with Database(url, pool_size=3) as database:
            collection = await CollectionRepository(database.for_tenant("tenant")).create(
                "docs",
                embedding_provider="hashing",
                embedding_model="hashing-64",
                dimension=DIMENSION,
                distance_metric=DistanceMetric.COSINE,
            )
            yield Library(database, collection, url, admin_url, admin)


# faults.md row 37
@pytest.mark.parametrize("place", ["ahead", "added", "embed", "store", "stored"])
async def test_killed_worker_loses_and_duplicates_no_document(library: Library, place: str) -> None:
    paragraphs = PARAGRAPHS[place]
    await library.submit("old", 4, paragraphs)
    await library.work_to_the_end()
    assert await versions(library) == {f"{n}.txt": "old" for n in range(4)}

    job_id = await library.submit("new", DOCUMENTS, paragraphs)
    await library.work_until(place)
    replaced = {"ahead": 0, "added": 0, "stored": 3}.get(place, 2)
    added = () if place in ("ahead", "embed") else (4, 5)  # the new ones come first
    assert await versions(library) == {
        **{f"{n}.txt": "new" if n < replaced else "old" for n in range(4)},
        **{f"{n}.txt": "new" for n in added},
    }

    await library.work_to_the_end()
    assert await versions(library) == {f"{n}.txt": "new" for n in range(DOCUMENTS)}
    job = await library.jobs.find_by_id(job_id)
    assert job is not None
    assert (job.status, job.documents_done, job.documents_failed) == ("succeeded", DOCUMENTS, 0)
    items = await library.jobs.items(job_id)
    begun_twice = {"embed": [2], "store": [2, 3], "stored": [2, 3]}.get(place, range(DOCUMENTS))
    assert [item.attempts for item in items] == [1 + (n in begun_twice) for n in range(DOCUMENTS)]
    unreported = {"added": (4, 5), "stored": (2,)}.get(place, ())
    assert [n for n, item in enumerate(items) if item.status == "unchanged"] == [*unreported]
    counted = library.admin.execute(
        "SELECT count(*), count(DISTINCT (document_id, ordinal)),"
        " (SELECT count(*) FROM vectorforge.embeddings)"
        " FROM vectorforge.chunks JOIN vectorforge.embeddings USING (tenant_id, document_id)"
        " WHERE chunk_id = id AND to_version IS NULL"
    ).fetchone()
    assert counted == (DOCUMENTS * paragraphs,) * 3


@pytest.mark.parametrize("place", ["ahead", "added"])
async def test_killed_worker_of_several_jobs_loses_and_duplicates_no_document(
    library: Library, place: str
) -> None:
    job_ids = await library.submit_each("new", DOCUMENTS, PARAGRAPHS[place])
    await library.work_until(place)
    assert len(await versions(library)) == (DOCUMENTS if place == "added" else 0)

    await library.work_to_the_end()
    assert await versions(library) == {f"{n}.txt": "new" for n in range(DOCUMENTS)}
    for job_id in job_ids:
        job = await library.jobs.find_by_id(job_id)
        assert job is not None
        assert (job.status, job.documents_done, job.documents_failed) == ("succeeded", 1, 0)
        [item] = await library.jobs.items(job_id)
        assert (item.attempts, item.status) == (2, "unchanged" if place == "added" else "succeeded")
    counted = library.admin.execute(
        "SELECT count(*), (SELECT count(*) FROM vectorforge.embeddings) FROM vectorforge.chunks"
    ).fetchone()
    assert counted == (DOCUMENTS * PARAGRAPHS[place],) * 2
