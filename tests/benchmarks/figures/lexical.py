"""Cost of lexical searches, and of maintaining the terms of chunks."""

import time
from collections.abc import Sequence
from uuid import UUID, uuid4

import numpy as np
from figures.database import fresh_database, settle
from figures.measuring import Table, percentile, postgres_cpu_s, progress
from psycopg import connect
from rich.progress import track

from tests.support.rag.collections import insert_collection
from vectorforge.db.connection import Database
from vectorforge.db.tenant_database import TenantDatabase
from vectorforge.local.postgres import EmbeddedPostgres
from vectorforge.types import DistanceMetric
from vectorforge.vectorstore.search.words import lexical_ctes, numbers_of

WORDS_IN_A_CHUNK = 110
WORDS_IN_A_QUESTION = 6.6
_VOCABULARY = 50_000
_STOP_WORDS = 30
_CHUNKS_PER_DOCUMENT = 50
_WARM_UP = 20
_SYLLABLES = [consonant + vowel for consonant in "bdfgklmnprtvz" for vowel in "aiou"]

_DOCUMENT = """
INSERT INTO vectorforge.documents
    (tenant_id, id, collection_id, source, media_type, text, size_chars, content_hash, chunk_count)
VALUES (%s, %s, %s, %s, 'text/plain', '', 0, sha256(''), %s)
"""
_CHUNKS = """
INSERT INTO vectorforge.chunks
    (tenant_id, id, collection_id, document_id, ordinal, text, start_offset, end_offset, token_count,
     content_hash, from_version)
SELECT %s, gen_random_uuid(), %s, %s, ordinality, text, 0, 0, 1, sha256(''), 1
FROM unnest(%s::text[]) WITH ORDINALITY AS new (text, ordinality)
"""
_SEARCH = """
WITH scope AS (
    SELECT term_scope, coalesce(languages, ARRAY[language]) AS languages, chunk_count, term_count
    FROM vectorforge.collections
    WHERE tenant_id = %(tenant)s AND id = %(collection)s
), {ctes}
SELECT chunk_id, lexical_score, (SELECT sum(cardinality(postings)) FROM terms) AS matched,
    (SELECT count(*) FROM terms) AS terms
FROM best_by_words
"""
_FOUND = """
found AS MATERIALIZED (
    SELECT id FROM vectorforge.chunks WHERE tenant_id = %(tenant)s AND collection_id = %(collection)s
        AND to_version IS NULL AND mod(hashtext(id::text), 100) = 0
), """
_AMONG_FOUND = f"(ranked.number IN ({numbers_of('found')})) IS TRUE"


class Vocabulary:
    """Words with the frequencies of a language (Zipf's law); the most frequent are stop words."""

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)
        weights = 1 / (np.arange(_VOCABULARY) + 2.7)
        self._weights = weights / weights.sum()
        content = weights[_STOP_WORDS:]
        self._content_weights = content / content.sum()

    def text(self) -> str:
        """Return the text of a chunk."""
        ranks = self._rng.choice(_VOCABULARY, WORDS_IN_A_CHUNK, p=self._weights)
        return " ".join(_word(int(rank)) for rank in ranks)

    def question(self) -> str:
        """Return a query of some words without stop words."""
        count = 1 + self._rng.poisson(WORDS_IN_A_QUESTION - 1)
        ranks = self._rng.choice(_VOCABULARY - _STOP_WORDS, count, p=self._content_weights)
        return " ".join(_word(int(rank) + _STOP_WORDS) for rank in ranks)


def _word(rank: int) -> str:
    if rank < _STOP_WORDS:
        return "the"
    syllables = []
    while rank:
        rank, place = divmod(rank, len(_SYLLABLES))
        syllables.append(_SYLLABLES[place])
    return "".join(syllables) + "k"


async def _insert(db: TenantDatabase, collection_id: UUID, texts: Sequence[str]) -> UUID:
    document_id = uuid4()
    async with db.transaction() as connection:
        await connection.execute(
            _DOCUMENT.encode(), (db.tenant_id, document_id, collection_id, str(document_id), len(texts))
        )
        await connection.execute(_CHUNKS.encode(), (db.tenant_id, collection_id, document_id, list(texts)))
    return document_id


async def _written(db: TenantDatabase, collection_id: UUID, vocabulary: Vocabulary) -> tuple[float, float]:
    """Return the milliseconds per chunk of inserting and of deleting 2,000 chunks."""
    batches = [[vocabulary.text() for _ in range(_CHUNKS_PER_DOCUMENT)] for _ in range(40)]
    started = time.perf_counter()
    documents = [await _insert(db, collection_id, batch) for batch in batches]
    inserted = time.perf_counter()
    for document_id in documents:
        await db.execute(
            "DELETE FROM vectorforge.documents WHERE tenant_id = %s AND id = %s", (db.tenant_id, document_id)
        )
    deleted = time.perf_counter()
    chunks = len(batches) * _CHUNKS_PER_DOCUMENT
    return (inserted - started) * 1000 / chunks, (deleted - inserted) * 1000 / chunks


async def _searched(
    db: TenantDatabase, collection_id: UUID, questions: Sequence[str], ctes: str
) -> tuple[list[float], float, float]:
    """Return the milliseconds of each search, and its average matches (words times chunks) and words."""
    times, matched, terms = [], [], []
    for number, question in enumerate(questions):
        params = {"tenant": db.tenant_id, "collection": collection_id, "query_text": question}
        started = time.perf_counter()
        rows = await db.fetch_all(_SEARCH.format(ctes=ctes), {**params, "depth": 100, "context_text": None})
        if number >= _WARM_UP and rows:
            times.append((time.perf_counter() - started) * 1000)
            matched.append(rows[0]["matched"])
            terms.append(rows[0]["terms"])
    return times, float(np.mean(matched)), float(np.mean(terms))


def _postmaster(server: EmbeddedPostgres) -> int:
    return int((server.data_dir / "postmaster.pid").read_text().splitlines()[0])


def _sizes(owner_url: str) -> dict[str, int]:
    with connect(owner_url) as connection:
        return {
            name: connection.execute(
                "SELECT pg_total_relation_size(%s::regclass)", (f"vectorforge.{name}",)
            ).fetchone()[0]  # type: ignore[index]  # it always has a row
            for name in ("chunks", "chunk_terms", "packed_postings", "grouped_postings")
        }


def _triggers(owner_url: str, action: str) -> None:
    with connect(owner_url, autocommit=True) as connection:
        for table in ("chunks", "chunk_terms"):
            connection.execute(f"ALTER TABLE vectorforge.{table} {action} TRIGGER USER".encode())


async def measure_lexical(
    server: EmbeddedPostgres, *, sizes: Sequence[int], searches: int, others: int
) -> list[Table]:
    """Measure lexical searches at each size of one collection.

    Args:
        server: Server for a temporary database.
        sizes: Numbers of chunks, ascending.
        searches: Number of distinct queries at each size.
        others: Number of empty collections of the same tenant.
    """
    latency = Table(
        "Searches by words (BM25, 100 best)",
        ("chunks", "filter", "words", "matches", "p50 ms", "p95 ms", "p99 ms", "CPU ms"),
    )
    upkeep = Table(
        "What keeping the words takes",
        (
            "chunks",
            "insert ms/chunk",
            "without",
            "delete ms/chunk",
            "without",
            "postings B/chunk",
            "notes B/chunk",
        ),
    )
    vocabulary = Vocabulary(7)
    with fresh_database(server, "lexical") as (app_url, owner_url):
        async with Database(app_url, pool_size=2, timeout_s=60) as database:
            db = database.for_tenant("local")
            collection_id = await insert_collection(db, 2, DistanceMetric.COSINE)
            for _ in range(others):
                await insert_collection(db, 2, DistanceMetric.COSINE)
            stored = 0
            for size in sizes:
                starts = range(stored, size, _CHUNKS_PER_DOCUMENT)
                for _ in track(
                    starts, f"  storing {size - stored:,} chunks", console=progress, transient=True
                ):
                    await _insert(db, collection_id, [vocabulary.text() for _ in range(_CHUNKS_PER_DOCUMENT)])
                stored = size
                settle(owner_url)
                bytes_of = _sizes(owner_url)
                questions = [vocabulary.question() for _ in range(searches + _WARM_UP)]
                for name, ctes in (("none", lexical_ctes()), ("1 %", _FOUND + lexical_ctes(_AMONG_FOUND))):
                    cpu = postgres_cpu_s(_postmaster(server))
                    times, matched, terms = await _searched(db, collection_id, questions, ctes)
                    spread = [percentile(times, percent) for percent in (50, 95, 99)]
                    cpu = (postgres_cpu_s(_postmaster(server)) - cpu) * 1000 / len(questions)
                    latency.add(size, name, round(terms, 1), round(matched), *spread, cpu)
                maintenance = await _written(db, collection_id, vocabulary)
                _triggers(owner_url, "DISABLE")
                bare = await _written(db, collection_id, vocabulary)
                _triggers(owner_url, "ENABLE")
                settle(owner_url)
                postings = bytes_of["packed_postings"] + bytes_of["grouped_postings"]
                per_chunk = [postings / size, bytes_of["chunk_terms"] / size]
                upkeep.add(size, maintenance[0], bare[0], maintenance[1], bare[1], *map(round, per_chunk))
    return [latency, upkeep]
