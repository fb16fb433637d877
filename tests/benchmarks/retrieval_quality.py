"""Retrieval quality against human relevance judgments, and quality of answers.

    uv run --group dev python tests/benchmarks/retrieval_quality.py FOLDER [--answers] [--foreign FOLDER]

FOLDER holds three files of JSON lines:

    corpus.jsonl    {"doc_id", "text", "title"?}
    queries.jsonl   {"query_id", "text", "answers"?}
    qrels.jsonl     {"query_id", "doc_id", "start"?, "end"?}

The corpus is ingested through the pipeline into a separate collection (once; later runs reuse it). Every
query runs through the search with its default settings, and through an exact search over all stored vectors.
``--answers`` also runs the pipeline of ``POST /v1/rag/query``, without a key with the extractive provider;
``--foreign`` runs it with the queries of another folder, which it should refuse. ``--contextual`` gives the
chunks contexts, without a key outlines.

nDCG@k and recall@k: without spans, documents are judged, each by its best chunk. With spans, a chunk hits one
if it covers at least half of the shorter of the two. Each judgment counts once, with gain 1.
nDCG: https://dl.acm.org/doi/10.1145/582415.582418.
"""

import argparse
import asyncio
import hashlib
import json
import math
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
from figures import answers as answering
from rich.progress import Progress, track

from vectorforge.cli.ingest.files import SourceFile
from vectorforge.cli.ingest.run import ingest_files
from vectorforge.cli.session import Session, open_session
from vectorforge.cli.terminal import Terminal
from vectorforge.config import IngestionSettings, VectorForgeConfig
from vectorforge.local.laptop import default_data_dir, local_setup
from vectorforge.types import Collection, DistanceMetric

_PASSAGES = (
    "SELECT c.id, c.start_offset, c.end_offset, d.metadata->>'doc_id' AS doc_id, e.embedding "
    "FROM vectorforge.chunks c "
    "JOIN vectorforge.documents d ON d.tenant_id = c.tenant_id AND d.id = c.document_id "
    "JOIN vectorforge.embeddings e ON e.tenant_id = c.tenant_id AND e.chunk_id = c.id "
    "WHERE c.tenant_id = %s AND c.collection_id = %s AND c.to_version IS NULL ORDER BY c.id"
)


@dataclass(frozen=True, slots=True)
class Passage:
    """A chunk of a document of the corpus; offsets refer to the corpus' text."""

    chunk_id: UUID
    doc_id: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Judgement:
    """A relevance judgment: a span of a document, or the whole document."""

    doc_id: str
    span: tuple[int, int] | None

    def is_hit(self, passage: Passage) -> bool:
        """Return whether the chunk counts as this judgment."""
        if passage.doc_id != self.doc_id:
            return False
        if self.span is None:
            return True
        start, end = self.span
        shorter = min(passage.end - passage.start, end - start)
        return min(passage.end, end) - max(passage.start, start) >= 0.5 * shorter


def read_lines(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a JSONL file."""
    with path.open(encoding="utf-8") as file:
        return [json.loads(line) for line in file if line.strip()]


def read_judgements(path: Path) -> tuple[dict[str, list[Judgement]], bool]:
    """Return judgments by query, and whether any of them is a span."""
    judgements: defaultdict[str, list[Judgement]] = defaultdict(list)
    spans = False
    for row in read_lines(path):
        span = (row["start"], row["end"]) if "start" in row else None
        spans = spans or span is not None
        judgements[row["query_id"]].append(Judgement(row["doc_id"], span))
    return judgements, spans


def ranks_of_hits(
    ranking: Iterable[Passage], wanted: Sequence[Judgement], *, per_document: bool
) -> list[int]:
    """Return the ranks (from 1) of first hits; per document, later chunks have no rank."""
    ranks, met, seen = [], set[int](), set[str]()
    rank = 0
    for passage in ranking:
        if per_document and passage.doc_id in seen:
            continue
        seen.add(passage.doc_id)
        rank += 1
        for number, judgement in enumerate(wanted):
            if number not in met and judgement.is_hit(passage):
                met.add(number)
                ranks.append(rank)
    return ranks


def ndcg(ranks: Iterable[int], relevant: int, k: int) -> float:
    """Return the normalized discounted cumulative gain at k, in [0, 1]; gains 1, discounts log2(rank + 1)."""
    ideal = sum(1 / math.log2(rank + 1) for rank in range(1, min(relevant, k) + 1))
    return min(1.0, sum(1 / math.log2(rank + 1) for rank in ranks if rank <= k) / ideal)


def scores(
    run: Mapping[str, Sequence[Passage]], judgements: Mapping[str, Sequence[Judgement]], spans: bool, k: int
) -> tuple[float, float]:
    """Return the means over all queries of nDCG@k and recall@k."""
    gains, recalls = [], []
    for query_id, ranking in run.items():
        wanted = judgements[query_id]
        ranks = ranks_of_hits(ranking, wanted, per_document=not spans)
        gains.append(ndcg(ranks, len(wanted), k))
        recalls.append(sum(rank <= k for rank in ranks) / len(wanted))
    return float(np.mean(gains)), float(np.mean(recalls))


class ExactIndex:
    """All vectors of a collection; every search computes every distance, in double precision."""

    def __init__(self, passages: list[Passage], vectors: np.ndarray, metric: DistanceMetric) -> None:
        self.passages = passages
        self._metric = metric
        self._vectors = (
            vectors / np.linalg.norm(vectors, axis=1, keepdims=True) if self._is_cosine else vectors
        )

    @property
    def _is_cosine(self) -> bool:
        return self._metric is DistanceMetric.COSINE

    @classmethod
    async def read(cls, session: Session, collection: Collection) -> "ExactIndex":
        """Read every stored vector of the collection."""
        tenant = session.services.tenant_id
        rows = await session.application.database.for_tenant(tenant).fetch_all(
            _PASSAGES, (tenant, collection.id)
        )
        passages = [Passage(r["id"], r["doc_id"], r["start_offset"], r["end_offset"]) for r in rows]
        vectors = np.array([r["embedding"].to_numpy() for r in rows], dtype=np.float64)
        return cls(passages, vectors, collection.distance_metric)

    def search(self, vector: Sequence[float], k: int) -> list[Passage]:
        """Return the k nearest chunks, nearest first, ties by id (the chunks are sorted by id)."""
        query = np.asarray(vector, dtype=np.float32).astype(np.float64)  # as stored in the database
        if self._metric is DistanceMetric.L2:
            distances = np.linalg.norm(self._vectors - query, axis=1)
        else:
            distances = -(self._vectors @ query)
        return [self.passages[i] for i in np.argsort(distances, kind="stable")[:k]]


async def measure(session: Session, folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Ingest, query and score."""
    k, depth, run_file = options.k, options.depth, options.run_file
    terminal = Terminal()
    corpus = folder / "corpus.jsonl"
    digest = hashlib.sha256(corpus.read_bytes()).hexdigest()[:12]
    suffix = "-contextual" if options.contextual else ""
    collection = await session.collection_or_new(f"{folder.name}-{digest}{suffix}")
    if options.contextual:
        await session.services.collections.set_ingestion(collection.id, contextual=True)
        collection = await session.collection(collection.name)
    summary = await ingest_files(terminal, session, collection, [SourceFile("corpus.jsonl", corpus)])
    if summary.failed:
        terminal.warn(f"{summary.failed} documents could not be ingested.")
    exact = await ExactIndex.read(session, collection)
    by_id = {passage.chunk_id: passage for passage in exact.passages}
    judgements, spans = read_judgements(folder / "qrels.jsonl")
    provider = session.application.embedding_registry.get(collection.embedding_provider)

    found: dict[str, list[Passage]] = {}
    truth: dict[str, list[Passage]] = {}
    queries = [row for row in read_lines(folder / "queries.jsonl") if judgements.get(row["query_id"])]
    for row in track(queries, "Asking", console=terminal.err, disable=not terminal.err.is_terminal):
        hits = await session.services.retriever.retrieve(row["text"], collection.id, depth, min_score=None)
        found[row["query_id"]] = [by_id[hit.chunk.id] for hit in hits]
        text = collection.query_prefix + row["text"]
        vector = await provider.embed_query(text, model=collection.embedding_model)
        truth[row["query_id"]] = exact.search(vector, depth)
    answers = {}
    figures: dict[str, Any] = {}
    if options.answers:
        answers = await _answers(session, collection, queries)
        gold = {q: {p.chunk_id for p in exact.passages if _is_gold(p, judgements[q])} for q in answers}
        expected = {row["query_id"]: row.get("answers", ()) for row in queries}
        figures["answers"] = answering.scores(answers, expected, gold)
    for other in options.foreign:
        refusals = await _answers(session, collection, read_lines(other / "queries.jsonl"))
        share = sum(answer.is_refusal for answer in refusals.values()) / len(refusals)
        figures[f"refused of {other.name}"] = round(share, 4)
    write_run(run_file, found, answers)
    best, brute = scores(found, judgements, spans, k), scores(truth, judgements, spans, k)
    identical = sum([p.chunk_id for p in found[q][:k]] == [p.chunk_id for p in truth[q][:k]] for q in found)
    return {
        "documents": summary.counts.total(),
        "passages": len(exact.passages),
        "queries": len(found),
        f"ndcg@{k}": round(best[0], 4),
        f"recall@{k}": round(best[1], 4),
        f"exact_ndcg@{k}": round(brute[0], 4),
        f"exact_recall@{k}": round(brute[1], 4),
        f"identical_top{k}": round(identical / len(found), 4),
        **figures,
        "run_file": str(run_file),
    }


def _is_gold(passage: Passage, wanted: Sequence[Judgement]) -> bool:
    return any(judgement.is_hit(passage) for judgement in wanted)


async def _answers(
    session: Session, collection: Collection, queries: Sequence[Mapping[str, Any]]
) -> dict[str, answering.Answer]:
    console = Terminal().err
    answered = answering.ask(session.services, collection, queries)
    found = {}
    with Progress(console=console, disable=not console.is_terminal) as progress:
        bar = progress.add_task("Answering", total=len(queries))
        async for query_id, answer in answered:
            found[query_id] = answer
            progress.advance(bar)
    return found


def write_run(
    path: Path, run: Mapping[str, Sequence[Passage]], answers: Mapping[str, answering.Answer]
) -> None:
    """Write results and answers: one JSON line per query, best chunk first.

    ``answer``, if any, has ``text`` and ``citations``: positions in ``results``, from 0; a label without a
    chunk is -1.
    """
    with path.open("w", encoding="utf-8") as file:
        for query_id, ranking in run.items():
            line: dict[str, Any] = {
                "query_id": query_id,
                "results": [{"doc_id": p.doc_id, "start": p.start, "end": p.end} for p in ranking],
            }
            if answer := answers.get(query_id):
                places = {passage.chunk_id: place for place, passage in enumerate(ranking)}
                cited = [places.get(chunk_id, -1) for chunk_id in answer.cited] + [-1] * answer.invalid
                line["answer"] = {"text": answer.text, "citations": cited}
            file.write(json.dumps(line) + "\n")


async def run(folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Open the service and measure."""
    size = (folder / "corpus.jsonl").stat().st_size
    config = VectorForgeConfig.from_environment(ingestion=IngestionSettings(max_document_bytes=max(size, 1)))
    with local_setup(config, data_dir=options.data_dir, create=True) as setup:
        async with open_session(setup, Terminal()) as session:
            return await measure(session, folder, options)


def main() -> None:
    """Measure with the options of the command line, and print one JSON object."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path, help="corpus.jsonl, queries.jsonl and qrels.jsonl")
    parser.add_argument("--k", type=int, default=10, help="ranks that count (default 10)")
    parser.add_argument(
        "--depth", type=int, default=100, help="passages retrieved for a question (default 100)"
    )
    parser.add_argument(
        "--data-dir", type=Path, default=default_data_dir() / "benchmarks", help="embedded database"
    )
    parser.add_argument(
        "--run-file", type=Path, help="what was found, as JSON lines (default run-FOLDER.jsonl)"
    )
    parser.add_argument("--contextual", action="store_true", help="give chunks contexts")
    parser.add_argument("--answers", action="store_true", help="ask for answers, too")
    parser.add_argument(
        "--foreign", type=Path, nargs="+", default=[], help="folders whose questions it should refuse"
    )
    options = parser.parse_args()
    folder = options.folder.resolve()
    options.run_file = options.run_file or Path(f"run-{folder.name}.jsonl")
    json.dump(asyncio.run(run(folder, options)), sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    main()
