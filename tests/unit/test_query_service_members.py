"""Members of ``QueryService`` named in the design: each is used when a query runs."""

from collections.abc import Sequence

from tests.unit.query_setup import COLLECTION, Setup
from vectorforge.pipeline.context import ContextBuilder, ContextConfig, ContextPayload
from vectorforge.pipeline.rag import QueryService
from vectorforge.pipeline.run import QueryRun
from vectorforge.types import RetrievedChunk


class Marking(ContextBuilder):
    """Marks the query in the prompt."""

    def build(
        self, query: str, chunks: Sequence[RetrievedChunk], config: ContextConfig | None = None
    ) -> ContextPayload:
        return super().build(f"{query} (marked)", chunks, config)


async def test_service_uses_replaced_members_and_overrides() -> None:
    setup, other = Setup(), Setup()
    service, parts = setup.service, other.service
    service._retriever = parts._retriever
    service._context_builder = Marking()
    service._llm_registry = parts._llm_registry
    assert service._query_log_repo is setup.log
    await service.query("When does water boil?", COLLECTION)
    assert (len(setup.retriever.calls), len(other.retriever.calls)) == (0, 1)
    assert (len(setup.llm.calls), len(other.llm.calls)) == (0, 1)
    ((messages, _),) = other.llm.calls
    assert messages[-1]["content"] == "When does water boil? (marked)"
    logged: list[str] = []

    class Watched(QueryService):
        async def _log_query(self, run: QueryRun) -> None:
            logged.append(run.outcome)
            await super()._log_query(run)

    watched = Watched(parts._retriever, ContextBuilder(), parts._llm_registry, other.log)
    await watched.query("When does water boil?", COLLECTION)
    assert logged == ["answered"]
    assert [row.outcome for row in other.log.rows] == ["answered"]
