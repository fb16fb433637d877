"""A query service over scripted parts."""

import asyncio
from typing import Any
from uuid import uuid4

from tests.support.rag.chunks import make_chunk
from tests.support.rag.query_parts import LogList
from tests.support.vendors.scripted_llm import ScriptedLLM
from vectorforge.llm.registry import LLMProviderRegistry
from vectorforge.pipeline.context import ContextBuilder
from vectorforge.pipeline.rag import QueryService
from vectorforge.pipeline.types import QueryConfig, QueryEvent
from vectorforge.retriever.base import BaseRetriever, RetrievalRequest, RetrievedChunks
from vectorforge.telemetry import InMemoryMetrics
from vectorforge.types import RetrievedChunk

COLLECTION = uuid4()


PASSAGES = [make_chunk("Water boils at 100 degrees.", 0.9), make_chunk("Ice melts at 0 degrees.", 0.7)]


class ScriptedRetriever(BaseRetriever):
    """Returns scripted results; records its calls."""

    def __init__(self, found: list[RetrievedChunk] | Exception) -> None:
        self.found = found
        self.delay_s = 0.0
        self.calls: list[dict[str, Any]] = []
        self.requests: list[RetrievalRequest] = []
        self.called = asyncio.Event()

    async def find(self, request: RetrievalRequest) -> RetrievedChunks:
        self.called.set()
        self.requests.append(request)
        self.calls.append(
            {
                "query": request.query,
                "collection_id": request.collection_id,
                "top_k": request.top_k,
                "filters": request.filters,
                "min_score": request.min_score,
                "embedding_provider": request.embedding_provider,
            }
        )
        self.called.set()
        await asyncio.sleep(self.delay_s)
        if isinstance(self.found, Exception):
            raise self.found
        return RetrievedChunks(self.found)


class Setup:
    """A service with access to all its parts."""

    def __init__(
        self,
        found: list[RetrievedChunk] | Exception | None = None,
        llm: ScriptedLLM | None = None,
        log_error: Exception | None = None,
    ) -> None:
        self.metrics = InMemoryMetrics()
        self.retriever = ScriptedRetriever(PASSAGES if found is None else found)
        self.llm = llm or ScriptedLLM(["Water boils ", "at 100. [Sour", "ce 1]"], metrics=self.metrics)
        self.registry = LLMProviderRegistry()
        self.registry.register(self.llm)
        self.registry.set_default(self.llm.name)
        self.log = LogList(log_error)
        self.service = QueryService(
            self.retriever, ContextBuilder(), self.registry, self.log, metrics=self.metrics
        )

    async def events(self, query: str = "When?", config: QueryConfig | None = None) -> list[QueryEvent]:
        return [event async for event in self.service.query_events(query, COLLECTION, config)]
