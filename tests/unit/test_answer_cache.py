"""The key of a cached answer, and the in-process cache."""

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any
from uuid import UUID, uuid4

import pytest

from tests.support.vendors.scripted_llm import ScriptedLLM
from vectorforge.db.connection import Database
from vectorforge.db.repositories.answer_cache_repo import AnswerCacheRepository
from vectorforge.db.tenant_database import TenantDatabase
from vectorforge.deadline import Deadline
from vectorforge.llm.registry import LLMProviderRegistry
from vectorforge.llm.tools import ToolCall, ToolDefinition
from vectorforge.pipeline.answer_cache.cache import AnswerCache, answer_key
from vectorforge.pipeline.presets import PRESETS, preset_text
from vectorforge.pipeline.prompts import RAG_QUERY_SYSTEM_PROMPT
from vectorforge.pipeline.run import QueryRun
from vectorforge.pipeline.stored_answer import AnswerMemory
from vectorforge.pipeline.types import HistoryMessage, JsonFormat, QueryConfig
from vectorforge.retriever.base import CleanQuery, CollectionChoice
from vectorforge.telemetry import InMemoryMetrics
from vectorforge.tools.document_schemas import SEARCH_TOOL
from vectorforge.types import SearchMode

COLLECTION = UUID(int=7)
OTHER_VALUES: dict[str, Any] = {
    "top_k": 3,
    "min_score": 0.5,
    "filters": {"kind": "bread", "year": {"$gt": 2020}},
    "llm_provider": "other",
    "llm_model": "scripted-2",
    "embedding_provider": "http",
    "temperature": None,
    "top_p": 0.5,
    "max_tokens": 99,
    "include_sources": False,
    "history": [HistoryMessage("user", "Hello")],
    "system_prompt": "Only {context}",
    "preset": "rag_query",
    "variant": "precise",
    "profile_id": 7,
    "rewrite": True,
    "search_mode": SearchMode.LEXICAL,
    "mmr_lambda": 0.5,
    "effort": "low",
    "intents": ("When does it open?",),
    "stop": ("\n",),
    "response_format": JsonFormat({"type": "object"}),
    "tools": (ToolDefinition("f"),),
    "tool_choice": "none",
    "parallel_tool_calls": False,
    "following": [HistoryMessage("assistant", "", (ToolCall("1", "f", "{}"),))],
}
NEVER_CACHED: dict[str, Any] = {
    "tools": OTHER_VALUES["tools"],
    "following": [HistoryMessage("tool", "42", tool_call_id="1")],
    "history": [HistoryMessage("tool", "42", tool_call_id="1")],
    "search_tool": SEARCH_TOOL,
}
CHANGE_NOTHING: dict[str, Any] = {
    "min_version": 1,
    "stream": True,
    "use_cache": False,
    "regenerates": True,
    "conversation_id": uuid4(),
    "begins_conversation": True,
    "sends_history": True,
    "allow_ungrounded": True,
    "quote_passages": False,
}


def key(config: QueryConfig | None = None, question: str = "When?", **changes: Any) -> bytes:
    run = prepared(config, question, **changes)
    tenant_id = changes.get("tenant", "a")
    db = TenantDatabase(Database("postgresql://unused"), tenant_id)
    cache = AnswerCache(
        AnswerMemory(0),
        AnswerCacheRepository(db, ttl_s=60, stale_s=60),
        tenant_id=tenant_id,
        ttl_s=60,
        settings=changes.get("settings", "digest"),
        metrics=InMemoryMetrics(),
    )
    return answer_key(cache.digest(run), run.collection_id)


def prepared(config: QueryConfig | None = None, question: str = "When?", **changes: Any) -> QueryRun:
    registry = LLMProviderRegistry()
    for name in ("scripted", "other"):
        registry.register(ScriptedLLM(name=name))
    run = QueryRun(
        query=question,
        choice=CollectionChoice.of(COLLECTION),
        config=config or QueryConfig(),
        request_id=uuid4(),
        deadline=Deadline.never(),
        buffered=changes.get("buffered", True),
    )
    run.collection_id = changes.get("collection", COLLECTION)
    run.prepare(CleanQuery(question, truncated=False), registry)
    return run


def test_cache_key_of_equal_requests_is_equal() -> None:  # C21
    assert key() == key() == key(buffered=False)
    filters = [{"a": 1, "b": [2, 3]}, {"b": [2, 3], "a": 1}]
    assert key(QueryConfig(filters=filters[0])) == key(QueryConfig(filters=filters[1]))
    assert len(key()) == 32


def test_cache_key_covers_every_field_that_changes_the_answer() -> None:  # C20, C21
    every = {field.name for field in fields(QueryConfig)}
    assert every == OTHER_VALUES.keys() | CHANGE_NOTHING.keys() | NEVER_CACHED.keys()
    keys = {key()}
    for name, value in OTHER_VALUES.items():
        keys.add(key(replace(QueryConfig(), **{name: value})))
    assert len(keys) == len(OTHER_VALUES) + 1
    for name, value in CHANGE_NOTHING.items():
        assert key(replace(QueryConfig(), **{name: value})) == key(), name


def test_query_with_tools_is_not_cacheable() -> None:
    for name, value in NEVER_CACHED.items():
        assert not prepared(replace(QueryConfig(), **{name: value})).is_cacheable, name
    assert prepared(QueryConfig()).is_cacheable


def test_cache_key_depends_on_tenant_collection_query_and_settings() -> None:  # C21
    others = [
        key(tenant="b"),
        key(collection=uuid4()),
        key(question="when?"),
        key(settings="others"),
        key(question="\ud800"),
    ]
    assert len({key(), *others}) == 6


def test_cache_key_differs_per_preset() -> None:
    assert len({key(QueryConfig(preset=name)) for name in PRESETS}) == len(PRESETS)


class Clock:
    """A clock set by the test."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def memory(clock: Callable[[], float]) -> AnswerMemory:
    return AnswerMemory(10_000, clock=clock)


def test_memory_returns_stored_answer_for_same_key_and_version(memory: AnswerMemory) -> None:
    memory.store("a", b"1", 3, "{}", 3600)
    found = memory.find("a", b"1", 3)
    assert found is not None
    assert (found.answer, found.data_version, found.tier) == ("{}", 3, "memory")
    assert memory.find("b", b"1", 3) is None
    assert memory.find("a", b"2", 3) is None


def test_memory_drops_answer_of_other_data_version(memory: AnswerMemory) -> None:
    memory.store("a", b"1", 3, "{}", 3600)
    assert memory.find("a", b"1", 4) is None
    assert len(memory) == 0


@pytest.mark.parametrize(("fresh_for_s", "passed"), [(0.5, 0.6), (3600, 61), (3600, -3600)])
def test_memory_answer_expires(memory: AnswerMemory, clock: Clock, fresh_for_s: float, passed: float) -> None:
    memory.store("a", b"1", 3, "{}", fresh_for_s)
    clock.now += passed
    assert memory.find("a", b"1", 3) is None


def test_memory_is_bounded_and_evicts_least_recently_used(memory: AnswerMemory) -> None:
    for number in range(4):
        memory.store("a", bytes([number]), 1, "x" * 1000, 3600)
    assert memory.find("a", b"\0", 1) is not None
    memory.store("a", b"\4", 1, "x" * 1000, 3600)
    assert len(memory) == 4
    assert memory.find("a", b"\0", 1) is not None
    assert memory.find("a", b"\1", 1) is None
    memory.store("a", b"\5", 1, "x" * 100_000, 3600)
    assert len(memory) == 0  # larger than the whole cache
    memory.store("a", b"\0", 1, "x", 3600)
    assert memory.find("a", b"\0", 1) is not None


def test_memory_of_size_zero_stores_nothing() -> None:
    memory = AnswerMemory(0)
    memory.store("a", b"1", 1, "{}", 3600)
    assert memory.find("a", b"1", 1) is None


def test_memory_clear_removes_one_tenant_only(memory: AnswerMemory) -> None:
    memory.store("a", b"1", 1, "{}", 3600)
    memory.store("b", b"1", 1, "{}", 3600)
    memory.clear("a")
    assert memory.find("a", b"1", 1) is None
    assert memory.find("b", b"1", 1) is not None


def test_preset_text_is_equal_across_processes() -> None:
    code = "from vectorforge.pipeline.presets import PRESETS, preset_text; print(*map(preset_text, PRESETS))"
    here = " ".join(map(preset_text, PRESETS))
    for seed in ("1", "2"):
        ran = subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        )
        assert ran.stdout.strip("\n") == here
    assert RAG_QUERY_SYSTEM_PROMPT.splitlines()[0] in preset_text("rag_query").replace("\\n", "\n")
