"""BM25 in SQL, compared with the formula in plain Python."""

import math
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID

import pytest

from tests.support.rag.collections import insert_collection
from tests.support.rag.drafts import chunk_drafts, document_draft
from vectorforge.db.connection import Database
from vectorforge.db.tenant_database import TenantDatabase
from vectorforge.types import DistanceMetric
from vectorforge.vectorstore.pgvector import PgVectorStore
from vectorforge.vectorstore.search.words import Pruning, lexical_ctes, numbers_of

SCOPE = """
scope AS (
    SELECT term_scope, coalesce(languages, ARRAY[language]) AS languages, chunk_count, term_count
    FROM vectorforge.collections
    WHERE tenant_id = %(tenant)s AND id = %(collection)s
)
"""
FOUND = """
found AS (
    SELECT id FROM vectorforge.chunks
    WHERE tenant_id = %(tenant)s AND collection_id = %(collection)s AND to_version IS NULL
        AND mod(ordinal, 3) = 0
)
"""
OF_THREE = """
(SELECT mod(f.ordinal, 3) = 0 FROM vectorforge.chunks f
 WHERE f.tenant_id = %(tenant)s AND f.id = t.chunk_id)
"""
AMONG_FOUND = f"(ranked.number IN ({numbers_of('found')})) IS TRUE"
LETTERS = [first + second for first in "bcdfghjk" for second in "lmnpqrst"]


def bm25(question: str, passages: Sequence[Sequence[str]]) -> dict[int, float]:
    """Score every chunk with a word of the query: Robertson and Zaragoza's formula, Lucene's idf."""
    counts = [Counter(passage) for passage in passages]
    mean_length = sum(map(len, passages)) / len(passages)
    scores: dict[int, float] = defaultdict(float)
    for word in set(question.split()):
        df = sum(word in count for count in counts)
        idf = math.log(1 + (len(passages) - df + 0.5) / (df + 0.5))
        for number, count in enumerate(counts):
            if word in count:
                longer = 1 - 0.75 + 0.75 * len(passages[number]) / mean_length
                scores[number] += idf * count[word] * 2.5 / (count[word] + 1.5 * longer)
    return dict(scores)


def rarest(question: str, passages: Sequence[Sequence[str]], *, postings: int, rows: int) -> set[str]:
    """Return the words that choose the candidates: see ``Pruning``."""
    chosen, before = set(), 0
    counts = {word: sum(word in passage for passage in passages) for word in question.split()}
    for word, count in sorted(counts.items(), key=lambda pair: pair[1]):
        if before + count <= postings or before < 4 * rows:
            chosen.add(word)
        before += count
    return chosen


async def search(
    db: TenantDatabase,
    collection_id: UUID,
    question: str,
    *,
    limit: int = 1000,
    of_three: str = "",
    pruning: Pruning | None = None,
) -> list[tuple[int, float]]:
    """Return the best chunks' ordinals and scores."""
    ctes = {
        "": lexical_ctes(pruning=pruning),
        "joined": f"{FOUND}, {lexical_ctes(AMONG_FOUND, pruning=pruning)}",
        "tested": lexical_ctes(chunk_passes=OF_THREE, pruning=pruning),
        "narrow": lexical_ctes(chunk_passes=OF_THREE.replace("3", "50"), pruning=pruning),
    }[of_three]
    rows = await db.fetch_all(
        f"""
        WITH {SCOPE}, {ctes} SELECT c.ordinal, best.lexical_score FROM best_by_words AS best
        JOIN vectorforge.chunks AS c ON c.tenant_id = %(tenant)s AND c.id = best.chunk_id
        JOIN vectorforge.chunk_terms AS t ON t.tenant_id = c.tenant_id AND t.chunk_id = c.id
        ORDER BY best.lexical_score DESC, t.number
        """,
        {
            "tenant": db.tenant_id,
            "collection": collection_id,
            "query_text": question,
            "context_text": None,
            "depth": limit,
        },
    )
    return [(row["ordinal"], row["lexical_score"]) for row in rows]


async def store(db: TenantDatabase, texts: Sequence[str], *, language: str) -> UUID:
    """Create a collection of one document, whose title and headings count as words of each chunk."""
    collection_id = await insert_collection(db, 2, DistanceMetric.COSINE)
    await db.execute(
        "UPDATE vectorforge.collections SET language = %s WHERE id = %s", (language, collection_id)
    )
    chunks = chunk_drafts(texts, [[1.0, 0.0]] * len(texts))
    await PgVectorStore(db).replace_document(collection_id, document_draft(chunks, title="bl cm"), chunks)
    return collection_id


@pytest.fixture
def db(database: Database, make_tenant: Callable[[], str]) -> TenantDatabase:
    return database.for_tenant(make_tenant())


class TestBm25Reference:
    """300 chunks of random words, the common ones in most of them: every score to nine digits."""

    @pytest.fixture
    def passages(self) -> list[list[str]]:
        generator = random.Random(11)
        weights = [1 / rank for rank in range(1, len(LETTERS) + 1)]
        return [generator.choices(LETTERS, weights, k=generator.randrange(1, 60)) for _ in range(300)]

    @pytest.fixture
    async def collection_id(self, db: TenantDatabase, passages: list[list[str]]) -> UUID:
        await store(db, ["bl bl bl", "another collection of the tenant", "cm"], language="simple")
        return await store(db, list(map(" ".join, passages)), language="simple")

    @pytest.fixture
    def read(self, passages: list[list[str]]) -> list[list[str]]:
        """Return the texts with title and heading, as indexed."""
        return [[*["bl", "cm"] * 3, "heading", str(number), *words] for number, words in enumerate(passages)]

    def questions(self) -> list[str]:
        generator = random.Random(12)
        drawn = [" ".join(generator.choices(LETTERS, k=generator.randrange(1, 12))) for _ in range(30)]
        return [*drawn, "bl", "bl bl cm", "heading 17", "unheard of", "bl unheard", LETTERS[-1]]

    async def test_scores_and_order_match_bm25(
        self, db: TenantDatabase, collection_id: UUID, read: list[list[str]]
    ) -> None:
        for question in self.questions():
            expected = bm25(question, read)
            found = await search(db, collection_id, question)
            assert dict(found) == pytest.approx(expected, rel=1e-9), question
            assert [score for _, score in found] == sorted((score for _, score in found), reverse=True)
            for limit in (1, 7, 40):
                best = await search(db, collection_id, question, limit=limit)
                assert [number for number, _ in best] == [number for number, _ in found[:limit]], question
                assert dict(best) == pytest.approx(dict(found[:limit]), rel=1e-9), question

    # a filter changes the results, not their scores
    @pytest.mark.parametrize("how", ["joined", "tested"])
    async def test_filter_is_applied_before_the_limit(
        self, db: TenantDatabase, collection_id: UUID, read: list[list[str]], how: str
    ) -> None:
        for question in self.questions():
            expected = {number: score for number, score in bm25(question, read).items() if number % 3 == 0}
            found = await search(db, collection_id, question, of_three=how)
            assert dict(found) == pytest.approx(expected, rel=1e-9), question
            # 2: of the first eight by rank, often none is left; the others are sorted then
            for limit in (2, 7):
                best = await search(db, collection_id, question, of_three=how, limit=limit)
                assert best == found[:limit], question


class TestFrequentWords:
    """4,000 chunks, most of which have one of the words of every query."""

    @pytest.fixture
    def passages(self) -> list[list[str]]:
        generator = random.Random(21)
        words = [f"w{rank}" for rank in range(2000)]
        weights = [1 / (rank + 3) for rank in range(2000)]
        return [generator.choices(words, weights, k=generator.randrange(5, 40)) for _ in range(4000)]

    async def test_top_results_match_bm25_with_frequent_words(
        self, db: TenantDatabase, passages: list[list[str]]
    ) -> None:
        collection_id = await store(db, list(map(" ".join, passages)), language="simple")
        read = [[*["bl", "cm"] * 3, "heading", str(number), *words] for number, words in enumerate(passages)]
        generator = random.Random(22)
        for _ in range(25):
            rare = [f"w{generator.randrange(20, 300)}" for _ in range(generator.randrange(1, 4))]
            question = " ".join([*rare, "w0", "w1", generator.choice(["bl", "w2", "w3 w4", "unheard"])])
            expected = sorted(bm25(question, read).values(), reverse=True)
            for limit in (10, 100):
                best = await search(db, collection_id, question, limit=limit)
                assert [score for _, score in best] == pytest.approx(expected[:limit], rel=1e-9), question

    # Issue 18: in a large collection the rarer words choose, and all words score
    @pytest.mark.parametrize("of_three", ["", "tested"])
    async def test_rarer_words_choose_the_candidates_of_a_pruned_search(
        self, db: TenantDatabase, passages: list[list[str]], of_three: str
    ) -> None:
        collection_id = await store(db, list(map(" ".join, passages)), language="simple")
        read = [[*["bl", "cm"] * 3, "heading", str(number), *words] for number, words in enumerate(passages)]
        generator, pruning = random.Random(23), Pruning(postings=300, candidates=4_000)
        changed = 0
        for _ in range(15):
            question = " ".join(["w0", "w1", *(f"w{generator.randrange(20, 300)}" for _ in range(3))])
            scores = bm25(question, read)
            if of_three:
                scores = {number: score for number, score in scores.items() if number % 3 == 0}
            rare = rarest(question, read, postings=300, rows=10)
            with_rare = [score for number, score in scores.items() if not rare.isdisjoint(read[number])]
            best = await search(db, collection_id, question, limit=10, of_three=of_three, pruning=pruning)
            assert [score for _, score in best] == pytest.approx(
                sorted(with_rare, reverse=True)[:10], rel=1e-9
            )
            every = await search(db, collection_id, question, of_three=of_three, limit=4_000, pruning=pruning)
            assert dict(every) == pytest.approx(scores, rel=1e-9)
            changed += sorted(with_rare)[-10:] != sorted(scores.values())[-10:]
        assert changed, "some of the best chunks have frequent words only"

    async def test_pruned_search_with_narrow_filter_is_not_short(
        self, db: TenantDatabase, passages: list[list[str]]
    ) -> None:
        collection_id = await store(db, list(map(" ".join, passages)), language="simple")
        read = [[*["bl", "cm"] * 3, "heading", str(number), *words] for number, words in enumerate(passages)]
        scores = bm25("w0 w50 w60", read)
        best = await search(
            db, collection_id, "w0 w50 w60", limit=10, of_three="narrow", pruning=Pruning(50, candidates=40)
        )
        assert len(best) == 10
        assert dict(best) == pytest.approx({number: scores[number] for number, _ in best}, rel=1e-9)
        assert all(number % 50 == 0 for number, _ in best)

    async def test_pruned_search_of_frequent_words_alone_ranks_all_their_chunks(
        self, db: TenantDatabase, passages: list[list[str]]
    ) -> None:
        collection_id = await store(db, list(map(" ".join, passages)), language="simple")
        for question in ("w0", "w0 w1", "heading"):
            whole = await search(db, collection_id, question, limit=20)
            assert await search(db, collection_id, question, limit=20, pruning=Pruning(postings=10)) == whole


@pytest.mark.parametrize(
    ("language", "question", "ordinals"),
    [
        ("english", "Which kitten was sleeping?", [0]),
        ("english", "the of and", []),
        ("english", "", []),
        ("english", "INVOICES: due? paid!", [1]),
        ("simple", "sleeping", []),
        ("simple", "the", [0, 1]),
        ("german", "Häuser", [2]),
    ],
)
async def test_language_determines_indexed_words(
    db: TenantDatabase, language: str, question: str, ordinals: list[int]
) -> None:
    texts = ["The kittens sleep.", "The invoice is due.", "Ein Haus am See"]
    collection_id = await store(db, texts, language=language)
    found: list[Any] = await search(db, collection_id, question)
    assert sorted(ordinal for ordinal, _ in found) == ordinals
