"""All metrics of the design over a few queries with known steps: none missing, none twice."""

import hashlib
from uuid import uuid4

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.support.aws.emf import Measured, read_emf, read_fields
from tests.support.rag.query_parts import LogList, OneCollection
from tests.support.rag.reference_store import ReferenceVectorStore
from tests.support.vendors.hashing_embedder import HashingEmbedder
from tests.support.vendors.scripted_llm import ScriptedLLM
from vectorforge.api.native.statistics import exposition
from vectorforge.aws.observability import COLD_START, ESSENTIAL, EmfMetrics
from vectorforge.embedding.registry import EmbeddingProviderRegistry
from vectorforge.errors import LLMRateLimitError, LLMStreamError, NotFoundError
from vectorforge.llm.registry import LLMProviderRegistry
from vectorforge.pipeline.context import ContextBuilder
from vectorforge.pipeline.rag import QueryService
from vectorforge.pipeline.types import QueryConfig
from vectorforge.retriever.base import QueryPreprocessor
from vectorforge.retriever.dense import DenseRetriever
from vectorforge.telemetry import METRICS, InMemoryMetrics, MetricsCollector
from vectorforge.types import ChunkDraft, Collection, DistanceMetric, DocumentDraft

COLLECTION = Collection(
    id=uuid4(),
    name="notes",
    embedding_provider="hashing",
    embedding_model="hashing-64",
    dimension=64,
    distance_metric=DistanceMetric.COSINE,
)
LLM = {"provider": "scripted", "model": "scripted-1"}
DENSE = {"retriever_type": "dense"}

# Number of measurements of each metric by its tag values in ``ask_five_questions``.
COUNTS = {
    ("retriever.search.calls", "dense"): 5,
    ("retriever.search.duration_ms", "dense"): 5,
    ("retriever.search.errors", "NotFoundError", "dense"): 1,
    ("retriever.results_returned", "dense"): 4,
    ("retriever.empty_results", "dense"): 1,
    ("context.build.duration_ms",): 4,
    ("context.tokens_used",): 4,
    ("context.chunks_included",): 4,
    ("context.chunks_truncated",): 4,
    ("llm.generate.calls", "scripted", "scripted-1"): 3,
    ("llm.generate.duration_ms", "scripted", "scripted-1"): 3,
    ("llm.generate.errors", "LLMStreamError", "scripted", "scripted-1"): 1,
    ("llm.generate.retries", "scripted", "scripted-1"): 1,
    ("llm.tokens_input", "scripted", "scripted-1"): 2,
    ("llm.tokens_output", "scripted", "scripted-1"): 2,
    ("llm.streaming.chunks", "scripted", "scripted-1"): 1,
    ("llm.streaming.first_token_ms", "scripted", "scripted-1"): 1,
    ("pipeline.query.calls",): 5,
    ("pipeline.query.duration_ms",): 5,
    ("pipeline.query.errors", "LLMStreamError", "generate"): 1,
    ("pipeline.query.errors", "NotFoundError", "retrieve"): 1,
    ("pipeline.answers.low_quality",): 2,
    ("pipeline.query.faults",): 1,  # but not the search in a missing collection
    ("pipeline.variant.calls", "precise"): 2,
    ("pipeline.variant.duration_ms", "precise"): 2,
    ("pipeline.variant.errors", "NotFoundError", "precise"): 1,
    ("query_log.write.calls",): 5,
    ("query_log.write.duration_ms",): 5,
}
QUERY = {name: tags for name, tags in ESSENTIAL["query"].items() if name != COLD_START}
ADDED = (
    "query_log",
    "database.reader",
    "traces",
    "embedding",
    "http",
    "pipeline.query.faults",
    "pipeline.query.degraded",
    "pipeline.variant",
    "pipeline.answers",
    "pipeline.cache",
)
DESIGN = [name for name in METRICS if not name.startswith(ADDED)]


class Queries:
    """A service over two chunks; every part measures into ``metrics``."""

    def __init__(self, metrics: MetricsCollector) -> None:
        self.metrics = metrics
        self.store = ReferenceVectorStore()
        self.embedder = HashingEmbedder()
        self.llms = LLMProviderRegistry()
        embeddings = EmbeddingProviderRegistry()
        embeddings.register(self.embedder)
        retriever = DenseRetriever(
            embeddings,
            self.store,
            OneCollection(COLLECTION),
            preprocess=QueryPreprocessor().preprocess,
            metrics=self.metrics,
        )
        self.service = QueryService(retriever, ContextBuilder(), self.llms, LogList(), metrics=self.metrics)

    async def fill(self) -> None:
        for text in ("word " * 600, "other " * 600):
            digest = hashlib.sha256(text.encode()).digest()
            (vector,) = await self.embedder.embed_documents([text])
            chunk = ChunkDraft(0, text, 0, len(text), 600, digest, vector=vector)
            document = DocumentDraft(f"{text[:4]}.txt", text, "text/plain", digest)
            await self.store.replace_document(COLLECTION.id, document, [chunk])

    def answer_with(self, llm: ScriptedLLM) -> None:
        self.llms.register(llm)


async def ask_five_questions(metrics: MetricsCollector) -> None:
    queries = Queries(metrics)
    await queries.fill()
    service = queries.service

    queries.answer_with(ScriptedLLM(["a", "b"], first_errors=[LLMRateLimitError()], metrics=metrics))
    await service.query("word", COLLECTION.id, QueryConfig(max_tokens=150))  # one retry, one chunk dropped
    texts = [text async for text in service.query_stream("word", COLLECTION.id)]  # two pieces
    nothing = QueryConfig(filters={"kind": "none"}, variant="precise")
    await service.query("word", COLLECTION.id, nothing)
    queries.answer_with(ScriptedLLM(["a"], error=LLMStreamError(), metrics=metrics))
    with pytest.raises(LLMStreamError):
        await service.query("word", COLLECTION.id)  # the model fails
    with pytest.raises(NotFoundError):
        await service.query("word", uuid4(), QueryConfig(variant="precise"))  # the search fails
    assert texts == ["a", "b"]


# A-123 A-124 A-125 A-126 A-127 A-128 A-129 A-130 A-131 A-132 A-133 A-134 A-135 A-136 A-137 A-138 A-139 A-140
# A-141 A-142 A-143 A-146 A-148 A-149 A-150 C26
async def test_query_metrics_are_emitted_once_per_event() -> None:
    metrics = InMemoryMetrics()
    await ask_five_questions(metrics)
    assert {(name, *sorted(tags.values())): s.count for name, tags, s in metrics.items()} == COUNTS
    assert metrics.total("context.chunks_truncated") == 1
    assert metrics.get("llm.streaming.chunks", LLM).total == 2
    assert metrics.get("llm.tokens_input", LLM).total == 200
    assert metrics.get("llm.tokens_output", LLM).total == 20
    assert list(metrics.get("retriever.results_returned", DENSE).values) == [2, 2, 0, 2]
    assert {name for name, *_ in COUNTS} >= set(DESIGN)
    assert len(DESIGN) == 20


def numbers(measured: Measured) -> dict[tuple[str, ...], list[float]]:
    return {
        (name, *sorted(value for tag, value in dimensions if tag != "service")): values
        for (name, dimensions), values in measured.items()
    }


# F-005 C26
async def test_cloudwatch_receives_same_metric_values(capsys: pytest.CaptureFixture[str]) -> None:
    metrics = EmfMetrics("query", selection="all")
    await ask_five_questions(metrics)
    metrics.flush()
    measured = numbers(read_emf(capsys.readouterr().out.splitlines()))
    assert {key: len(values) for key, values in measured.items() if key in COUNTS} == COUNTS
    essential = {
        (name, *sorted({"provider": "scripted"}[tag] for tag in tags)) for name, tags in QUERY.items()
    }
    assert measured.keys() - COUNTS.keys() <= essential
    assert sum(measured[("context.chunks_truncated",)]) == 1
    assert sum(measured["llm.streaming.chunks", "scripted", "scripted-1"]) == 2
    assert sum(measured["llm.tokens_input", "scripted", "scripted-1"]) == 200
    assert sum(measured["llm.tokens_output", "scripted", "scripted-1"]) == 20
    assert measured["retriever.results_returned", "dense"] == [2, 2, 0, 2]


# F-005 P17
async def test_design_metrics_are_cloudwatch_metrics_without_caller_dimensions(
    capsys: pytest.CaptureFixture[str],
) -> None:
    metrics = EmfMetrics("query")
    await ask_five_questions(metrics)
    metrics.flush()
    sent = read_emf(capsys.readouterr().out.splitlines())
    by_name = {name: {tag for tag, _ in tags} for name, tags in sent}
    assert set(DESIGN) <= by_name.keys()
    assert all(tags <= {"service", "provider"} for tags in by_name.values())


# P17
async def test_design_metrics_are_on_the_metrics_page_by_their_names() -> None:
    metrics = InMemoryMetrics()
    await ask_five_questions(metrics)
    families = {family.name: family for family in text_string_to_metric_families(exposition(metrics))}
    for name in DESIGN:
        assert f"vectorforge_{name.replace('.', '_')}" in families, name
    (spent,) = (
        s for s in families["vectorforge_pipeline_query_duration_ms"].samples if s.name.endswith("_sum")
    )
    assert spent.value == metrics.get("pipeline.query.duration_ms").total


# F-005 C26
async def test_essential_metrics_are_emitted_as_metrics_and_others_as_fields(
    capsys: pytest.CaptureFixture[str],
) -> None:
    metrics = EmfMetrics("query")
    await ask_five_questions(metrics)
    metrics.flush()
    lines = capsys.readouterr().out.splitlines()
    sent, fields = numbers(read_emf(lines)), numbers(read_fields(lines))
    assert {key[0] for key in sent} | {key[0] for key in fields} == {key[0] for key in COUNTS}
    assert sum(sent[("pipeline.query.calls",)]) == 5
    assert sum(sent[("pipeline.query.faults",)]) == 1
    assert sum(sent["llm.tokens_input", "scripted"]) == 200
    assert len(sent[("llm.streaming.first_token_ms",)]) == 1
    assert sum(sent[("retriever.search.calls",)]) == 5
    assert sum(sent[("llm.streaming.chunks",)]) == 2
    assert sum(sent[("pipeline.query.errors",)]) == 2
    assert sorted(sent[("retriever.results_returned",)]) == [0, 2, 2, 2]
    assert fields["pipeline.variant.errors", "NotFoundError", "precise"] == [1]
