"""End to end on real parts: documents in, cited answers out, rows in the log."""

from collections.abc import AsyncIterator, Callable

import pytest
from pydantic import SecretStr

from tests.support.rag.ingested import ingest_bytes
from vectorforge.bootstrap import Application, TenantServices
from vectorforge.config import DatabaseSettings, LLMSettings, VectorForgeConfig
from vectorforge.pipeline.presets import RAG_QUERY
from vectorforge.pipeline.types import DoneEvent, QueryConfig, SourcesEvent, TokenEvent
from vectorforge.types import Collection, DistanceMetric

GUIDES = {
    "kettle.md": "# Kettle\n\nThe kettle switches itself off when the water boils at 100 degrees.\n",
    "bread.md": "# Bread\n\nLet the dough rise for two hours before baking it at 230 degrees.\n",
    "bike.md": "# Bike\n\nOil the chain every three hundred kilometres and after riding in the rain.\n",
}


@pytest.fixture
async def application(app_url: str) -> AsyncIterator[Application]:
    config = VectorForgeConfig(database=DatabaseSettings(database_url=SecretStr(app_url)), llm=LLMSettings())
    async with Application.build(config) as application:
        yield application


@pytest.fixture
def services(application: Application, make_tenant: Callable[[], str]) -> TenantServices:
    return application.for_tenant(make_tenant())


@pytest.fixture
async def guides(services: TenantServices) -> Collection:
    collection = await services.create_collection("guides")
    for name, text in GUIDES.items():
        (result,) = await ingest_bytes(
            services.ingestion,
            collection,
            text.encode(),
            source=name,
            media_type="text/markdown",
            metadata={"kind": name[:-3]},
        )
        assert result.status == "succeeded"
    return collection


async def test_query_returns_cited_answer_and_is_logged(
    services: TenantServices, guides: Collection
) -> None:
    result = await services.query_service.query("How long must the dough rise?", guides.id)
    assert "two hours" in result.answer
    best = result.retrieved_chunks[0]
    assert best.document_source == "bread.md"
    assert [c.score for c in result.retrieved_chunks] == sorted(
        (c.score for c in result.retrieved_chunks), reverse=True
    )
    citation = result.citations[0]
    cited = result.sources[citation.source_number - 1]
    assert cited.document_source == "bread.md"
    text = await services.documents.text(cited.document_id)
    assert text is not None
    assert text[cited.start_offset : cited.end_offset] == cited.text
    assert "two hours" in cited.text

    row = await services.query_logs.find_by_id(result.request_id)
    assert row is not None
    assert (row.outcome, row.generated_response) == ("answered", result.answer)
    assert list(row.retrieved_chunk_ids) == [c.chunk.id for c in result.retrieved_chunks]


async def test_stream_matches_the_whole_answer(services: TenantServices, guides: Collection) -> None:
    question = "When should the chain be oiled?"
    events = [event async for event in services.query_service.query_events(question, guides.id)]
    done = events[-1]
    assert isinstance(done, DoneEvent)
    assert "".join(e.text for e in events if isinstance(e, TokenEvent)) == done.result.answer
    assert done.result.answer == (await services.query_service.query(question, guides.id)).answer


async def test_filters_restrict_the_search(
    services: TenantServices, guides: Collection
) -> None:  # B-024, A-105
    config = QueryConfig(filters={"kind": "bike"})
    result = await services.query_service.query("How long must the dough rise?", guides.id, config)
    assert {c.document_source for c in result.retrieved_chunks} == {"bike.md"}
    nothing = await services.query_service.query("x", guides.id, QueryConfig(filters={"kind": "car"}))
    assert nothing.answer == "No relevant documents found for your query."
    row = await services.query_logs.find_by_id(nothing.request_id)
    assert row is not None
    assert row.outcome == "empty"


async def test_presets_find_the_same_chunks(services: TenantServices, guides: Collection) -> None:  # C03
    ids = []
    for config in (QueryConfig(top_k=2, min_score=None), RAG_QUERY.config(top_k=2, min_score=None)):
        events = [e async for e in services.query_service.query_events("hot water?", guides.id, config)]
        (sources,) = [e for e in events if isinstance(e, SourcesEvent)]
        ids.append([c.chunk.id for c in sources.retrieved_chunks])
    assert ids[0] == ids[1]
    assert len(ids[0]) == 2


async def test_collection_of_other_tenant_is_not_found(
    application: Application, guides: Collection, make_tenant: Callable[[], str]
) -> None:  # C17
    stranger = application.for_tenant(make_tenant())
    assert await stranger.collections.find_by_id(guides.id) is None
    events = [e async for e in stranger.query_service.query_events("dough?", guides.id)]
    (error,) = events  # the look-up fails before the first event
    assert "There is no collection" in str(error)


@pytest.mark.parametrize("metric", list(DistanceMetric))
async def test_search_with_each_metric_ranks_relevant_chunk_first(
    services: TenantServices, metric: DistanceMetric
) -> None:  # A-016, C16
    collection = await services.create_collection(f"by-{metric}", distance_metric=metric)
    for name, text in GUIDES.items():
        await ingest_bytes(
            services.ingestion, collection, text.encode(), source=name, media_type="text/markdown"
        )
    found = await services.retriever.retrieve("dough and baking", collection.id, top_k=1)
    assert found[0].document_source == "bread.md"
