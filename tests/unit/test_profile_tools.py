"""The tools of an agent, and their descriptions for language models."""

import json
from collections.abc import Sequence
from typing import Any
from uuid import uuid4

import pytest
from anthropic.types import ToolParam
from hypothesis import given
from hypothesis import strategies as st
from openai.types.chat import ChatCompletionFunctionToolParam
from pydantic import TypeAdapter, ValidationError

from tests.support.rag.chunks import make_chunk
from tests.support.rag.reference_store import ReferenceVectorStore
from tests.support.vendors.hashing_embedder import DIMENSION, HashingEmbedder
from vectorforge.errors import InvalidInputError
from vectorforge.ingestion.profile import RAGIngestionPipeline
from vectorforge.pipeline.profile import RAGRetrievalPipeline
from vectorforge.profile_types import SourceType
from vectorforge.retriever.profile import ProfileVectorStore, RetrievedChunk
from vectorforge.tools.schemas import PROFILE_TOOLS, anthropic_tools, openai_tools
from vectorforge.tools.semantic_search_tools import (
    NOTHING_FOUND,
    ProfileToolbox,
    semantic_search,
    semantic_search_with_context,
)
from vectorforge.types import Collection, DistanceMetric

SEARCH, WITH_CONTEXT = "semantic_search", "semantic_search_with_context"


@pytest.fixture
async def pipeline() -> RAGRetrievalPipeline:
    """Profiles 1 and 2, in a store that is not PostgreSQL."""  # C-023
    embedder = HashingEmbedder()
    collection = Collection(
        uuid4(), "profiles", "hashing", "hashing", DIMENSION, DistanceMetric.COSINE, by_profile=True
    )
    store = ProfileVectorStore(embedder, store=ReferenceVectorStore(), collection=collection)
    ingestion = RAGIngestionPipeline(store, embedder)
    jobs = [{"id": n, "title": f"Job {n}", "description": "Rye bread. " * 20} for n in range(30)]
    await ingestion.reingest_profile(1, "Bakes bread.", jobs, [])
    await ingestion.ingest_document(2, "The secret of profile two: bread.", SourceType.CV)
    return RAGRetrievalPipeline(store, embedder)


async def test_tool_with_mmr_lambda_chooses_passages_that_differ(pipeline: RAGRetrievalPipeline) -> None:
    arguments = {"query": "Who bakes bread?", "top_k": 3}
    toolbox = ProfileToolbox(pipeline, 1)
    plain = json.loads(await toolbox.call(SEARCH, arguments))
    assert json.loads(await toolbox.call(SEARCH, {**arguments, "mmr_lambda": 1})) == plain
    assert json.loads(await toolbox.call(SEARCH, {**arguments, "mmr_lambda": 0})) != plain
    with pytest.raises(InvalidInputError, match="mmr_lambda"):
        await toolbox.call(SEARCH, {**arguments, "mmr_lambda": 2})


# C-016 C03: five chunks by default, unchanged, with their sources
async def test_semantic_search_returns_top_k_chunks_of_profile(pipeline: RAGRetrievalPipeline) -> None:
    found = await semantic_search("Who bakes bread?", 1, pipeline)
    assert len(found) == 5
    assert (found[0].text, found[0].source_type, found[0].source_id) == (
        "Bakes bread.",
        SourceType.SUMMARY,
        "1",
    )
    assert len(await semantic_search("bread", 1, pipeline, top_k=2)) == 2
    assert await semantic_search("bread", 3, pipeline) == []


# C-017 C06
async def test_semantic_search_with_context_fits_max_length(pipeline: RAGRetrievalPipeline) -> None:
    context = await semantic_search_with_context("Who bakes bread?", 1, pipeline, top_k=20)
    assert context.startswith("[Source 1]\nsummary 1\nBakes bread.\n---\n[Source 2]\nexperience ")
    assert 1500 < len(context) <= 2000
    assert await semantic_search_with_context("bread", 3, pipeline) == ""
    with pytest.raises(InvalidInputError, match="max_length must be at least 200"):
        await semantic_search_with_context("bread", 1, pipeline, max_length=199)


# C06: for every ranking: the longest prefix of whole chunks, never empty
@given(
    st.lists(st.text(st.characters(codec="utf-8"), min_size=1, max_size=400), min_size=1, max_size=12),
    st.integers(200, 3000),
)
async def test_profile_context_is_a_prefix_of_the_ranking(texts: Sequence[str], max_length: int) -> None:
    embedder = HashingEmbedder()
    collection = Collection(
        uuid4(), "profiles", "hashing", "hashing", DIMENSION, DistanceMetric.COSINE, by_profile=True
    )
    store = ProfileVectorStore(embedder, store=ReferenceVectorStore(), collection=collection)
    pipeline = RAGRetrievalPipeline(store, embedder)
    metadata = {"profile_id": 1, "source_type": "cv", "source_id": "1"}
    chunks = [RetrievedChunk.of(make_chunk(text, metadata=metadata)) for text in texts]
    context = await pipeline.format_context(chunks, max_length)
    assert len(context) <= max_length
    whole = [await pipeline.format_context(chunks[:number], 100_000) for number in range(1, len(chunks) + 1)]
    fitting = [text for text in whole if len(text) <= max_length]
    if fitting:
        assert context == fitting[-1]
    else:
        start = whole[0].partition("\n")[0]
        assert context.startswith(start)
        assert whole[0].startswith(context)


# C06: the best chunk alone is too long: its start, up to the end of a sentence
async def test_overlong_chunk_is_cut_at_sentence(pipeline: RAGRetrievalPipeline) -> None:
    metadata = {"profile_id": 1, "source_type": "cv", "source_id": "1"}
    long = RetrievedChunk.of(make_chunk("A sentence of bread. " * 100, metadata=metadata))
    context = await pipeline.format_context([long], 300)
    assert 200 < len(context) <= 300
    assert context.endswith("A sentence of bread.")


# The SDKs' own types, strictly: an unknown name would be an error
def test_tool_schemas_validate_against_vendor_sdks() -> None:
    for tool in openai_tools():
        checked = TypeAdapter(ChatCompletionFunctionToolParam).validate_python(tool, strict=True)
        assert checked == tool
    for described in anthropic_tools():
        validated = TypeAdapter(ToolParam).validate_python(described, strict=True)
        assert validated == described
    with pytest.raises(ValidationError):
        TypeAdapter(ChatCompletionFunctionToolParam).validate_python(anthropic_tools()[0])
    names = [SEARCH, WITH_CONTEXT]
    assert [tool["function"]["name"] for tool in openai_tools()] == names
    assert [tool["name"] for tool in anthropic_tools()] == names


# C17 C-018: a model can neither select a profile nor access the store
def test_tool_schemas_exclude_profile_id() -> None:
    for parameters in [tool.parameters for tool in PROFILE_TOOLS.values()]:
        assert "profile_id" not in json.dumps(parameters)
        assert parameters["additionalProperties"] is False


# C-018 C-024: calls as OpenAI (a text) and Anthropic (an object) send them
@pytest.mark.parametrize("encode", [json.dumps, dict], ids=["openai", "anthropic"])
async def test_tool_calls_return_chunks_or_context(pipeline: RAGRetrievalPipeline, encode: Any) -> None:
    toolbox = ProfileToolbox(pipeline, 1)
    passages = json.loads(await toolbox.call(SEARCH, encode({"query": "Who bakes bread?", "top_k": 2})))
    assert len(passages) == 2
    assert passages[0]["text"] == "Bakes bread."
    assert (passages[0]["source_type"], passages[0]["source_id"]) == ("summary", "1")
    context = await toolbox.call(WITH_CONTEXT, encode({"query": "Who bakes bread?", "max_length": 300}))
    assert context.startswith("[Source 1]")
    assert len(context) <= 300
    assert await ProfileToolbox(pipeline, 9).call(WITH_CONTEXT, encode({"query": "x"})) == NOTHING_FOUND
    assert await ProfileToolbox(pipeline, 9).call(SEARCH, encode({"query": "x"})) == "[]"


async def test_tool_call_search_mode_selects_lexical_or_hybrid(pipeline: RAGRetrievalPipeline) -> None:
    toolbox = ProfileToolbox(pipeline, 1)
    tool_arguments = {"query": "7", "search_mode": "lexical"}
    passages = json.loads(await toolbox.call(SEARCH, json.dumps(tool_arguments)))
    assert [passage["source_id"] for passage in passages] == ["7"]
    assert "Job 7" in await toolbox.call(WITH_CONTEXT, tool_arguments)
    both = json.loads(await toolbox.call(SEARCH, {**tool_arguments, "search_mode": "hybrid"}))
    assert (both[0]["source_id"], len(both)) == ("7", 5)


# Arguments outside the schema are rejected with a helpful error, and reach no other profile
@pytest.mark.parametrize(
    ("name", "arguments", "words"),
    [
        (SEARCH, {"query": "bread", "profile_id": 2}, "profile_id: Extra inputs"),
        (SEARCH, {"query": "bread", "top_k": 21}, "top_k"),
        (SEARCH, {"query": "bread", "top_k": "3"}, "top_k"),
        (SEARCH, {"query": "bread", "search_mode": "words"}, "search_mode"),
        (SEARCH, {"query": ""}, "query"),
        (SEARCH, {}, "query: Field required"),
        (SEARCH, '{"query": "bre', "Invalid JSON"),
        (SEARCH, "[]", "arguments"),
        (SEARCH, {"query": "bread", "max_length": 300}, "max_length"),
        (WITH_CONTEXT, {"query": "bread", "max_length": 100}, "max_length"),
        (
            "drop_table",
            {},
            "Unknown tool; available: semantic_search, semantic_search_with_context.",
        ),
    ],
)
async def test_invalid_tool_call_is_rejected_with_reason(
    pipeline: RAGRetrievalPipeline, name: str, arguments: Any, words: str
) -> None:
    with pytest.raises(InvalidInputError) as refused:
        await ProfileToolbox(pipeline, 1).call(name, arguments)
    assert words in refused.value.message
