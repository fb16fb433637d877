"""Searches on a physical standby: every client sees its own writes, however far the standby lags."""

import asyncio

import pytest

from tests.integration.readers.conftest import OpenApplication, find, new_collection, searches, write
from tests.support.postgres.standby import Replicated, Standby
from vectorforge.errors import ConflictError
from vectorforge.pipeline.presets import VECTORFORGE
from vectorforge.retriever.base import RetrievalRequest
from vectorforge.types import SearchMode

PAIRS = 500
OUTCOMES = ("answered", "retried", "stale", "failed", "unavailable")
_AT_ONCE = 5


@pytest.mark.parametrize("own", [True, False], ids=["own", "another_process"])
async def test_query_after_write_on_lagging_standby_finds_document(
    own: bool, open_application: OpenApplication, lagging: Standby, tenant: str
) -> None:
    """Another process passes on the version of the write; the same one remembers it."""
    querying = await open_application(database_reader_lag_s=60)
    writing = querying if own else await open_application(reader=None)
    collection_id = await new_collection(writing, tenant)
    stale: list[int] = []

    async def pairs(first: int) -> None:
        for number in range(first, PAIRS, _AT_ONCE):
            if number == PAIRS // 2:
                await asyncio.to_thread(lagging.delay, 2_000)  # longer than any pair takes
            version = await write(writing.for_tenant(tenant), collection_id, number)
            found = await find(querying.for_tenant(tenant), collection_id, number, None if own else version)
            if [chunk.chunk.text for chunk in found] != [f"word{number}"]:
                stale.append(number)

    await asyncio.gather(*map(pairs, range(_AT_ONCE)))
    outcomes = {name: searches(querying, name) for name in OUTCOMES}
    assert stale == []
    assert outcomes["retried"] > 0
    assert outcomes["stale"] > 0
    assert outcomes["failed"] == 0
    assert sum(outcomes.values()) == PAIRS


async def test_search_of_version_not_reached_is_rejected(
    open_application: OpenApplication, tenant: str
) -> None:
    application = await open_application()
    collection_id = await new_collection(application, tenant)
    version = await write(application.for_tenant(tenant), collection_id, 1)
    with pytest.raises(ConflictError, match=f"`min_version` must be at most {version}"):
        await find(application.for_tenant(tenant), collection_id, 1, version + 1)


class TestPausedStandby:
    """A standby without the last changes of another process."""

    async def test_search_within_lag_reads_standby(
        self, open_application: OpenApplication, replicated: Replicated, tenant: str
    ) -> None:
        querying, writing = await open_application(database_reader_lag_s=60), await open_application()
        collection_id = await new_collection(writing, tenant)
        await write(writing.for_tenant(tenant), collection_id, 1)
        replicated.catch_up()
        assert await find(querying.for_tenant(tenant), collection_id, 1)
        with replicated.standby.paused():
            version = await write(writing.for_tenant(tenant), collection_id, 2)
            assert not await find(querying.for_tenant(tenant), collection_id, 2)
            assert searches(querying, "answered") == 2
            assert await find(querying.for_tenant(tenant), collection_id, 2, version)
        assert searches(querying, "stale") == 1

    async def test_search_without_lag_reads_writer(
        self, open_application: OpenApplication, replicated: Replicated, tenant: str
    ) -> None:
        querying, writing = await open_application(database_reader_lag_s=0), await open_application()
        collection_id = await new_collection(writing, tenant)
        with replicated.standby.paused():
            for number in range(5):  # the standby has no such collection
                await write(writing.for_tenant(tenant), collection_id, number)
                assert await find(querying.for_tenant(tenant), collection_id, number)
        assert searches(querying, "stale") >= 3
        assert searches(querying, "answered") == 0

    async def test_searches_of_steps_read_writer(
        self, open_application: OpenApplication, replicated: Replicated, tenant: str
    ) -> None:
        """The statements of several searches are sent at once, to the standby and then to the writer."""
        querying = await open_application(database_reader_lag_s=0)
        services = querying.for_tenant(tenant)
        collection_id = await new_collection(querying, tenant)
        with replicated.standby.paused():
            for number in range(2):
                await write(services, collection_id, number)
            requests = [
                RetrievalRequest(f"word{number}", collection_id, search_mode=SearchMode.LEXICAL)
                for number in range(2)
            ]
            found = await services.retriever.find_all(requests)
        assert [[chunk.chunk.text for chunk in chunks] for chunks in found] == [["word0"], ["word1"]]
        assert searches(querying, "stale") == 2

    async def test_answer_of_older_version_is_not_cached_as_current(
        self, open_application: OpenApplication, replicated: Replicated, tenant: str
    ) -> None:
        querying, writing = await open_application(database_reader_lag_s=60), await open_application()
        collection_id = await new_collection(writing, tenant)
        services = querying.for_tenant(tenant)
        config = VECTORFORGE.config(search_mode=SearchMode.LEXICAL)
        await write(writing.for_tenant(tenant), collection_id, 1)
        replicated.catch_up()
        await services.query_service.query("word1", collection_id, config=config)
        with replicated.standby.paused():
            await write(writing.for_tenant(tenant), collection_id, 2)
            older = await services.query_service.query("word1 word2", collection_id, config=config)
        replicated.catch_up()
        newer = await services.query_service.query("word1 word2", collection_id, config=config)
        assert [len(result.retrieved_chunks) for result in (older, newer)] == [1, 2]
        assert (
            await services.query_service.query("word1 word2", collection_id, config=config)
        ).outcome == "cached"
