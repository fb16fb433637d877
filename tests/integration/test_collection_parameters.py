"""Lists with the parameter ``collection_id`` accept the name of a collection; an id wins."""

from collections.abc import AsyncIterator, Callable
from typing import Any
from uuid import uuid4

import httpx2
import pytest

from tests.integration.repository_rows import make_log
from tests.support.http.live_api import LiveApi, add_documents, live_api, new_collection, settings_for
from vectorforge.db.repositories.query_log_repo import QueryLogRepository

NAME = "Team A/50% köln #1?"
LISTS: list[tuple[str, Callable[[Any], int]]] = [
    ("/v1/jobs", lambda body: len(body["jobs"])),
    ("/v1/queries", lambda body: len(body["queries"])),
    ("/v1/stats", lambda body: int(body["totals"]["queries"])),
    ("/v1/stats/usage", lambda body: sum(row["queries"] for row in body["usage"])),
]
EACH = pytest.mark.parametrize(("path", "count"), LISTS, ids=[path for path, _ in LISTS])


@pytest.fixture
def other(make_tenant: Callable[[], str]) -> str:
    return make_tenant()


@pytest.fixture
async def api(app_url: str, tenant: str, other: str) -> AsyncIterator[LiveApi]:
    async with live_api(settings_for(app_url, [tenant, other])) as running:
        yield running


@pytest.fixture
async def client(api: LiveApi, tenant: str) -> AsyncIterator[httpx2.AsyncClient]:
    async with api.client(tenant) as opened:
        yield opened


async def fill(client: httpx2.AsyncClient, name: str) -> str:
    """Make a collection with one job and one query; return its id."""
    collection_id = await new_collection(client, name)
    await add_documents(client, collection_id, tea="Green tea is brewed at eighty degrees.")
    query = {"query": "How hot is tea?", "collection": collection_id}
    (await client.post("/v1/rag/query", json=query)).raise_for_status()
    return collection_id


@EACH
async def test_list_accepts_name_or_id_of_a_collection(
    client: httpx2.AsyncClient, path: str, count: Callable[[Any], int]
) -> None:
    collection_id = await fill(client, NAME)
    await fill(client, "another")
    await new_collection(client, "empty")
    assert count((await client.get(path)).json()) == 2
    for reference in (NAME, collection_id):
        response = await client.get(path, params={"collection_id": reference})
        assert (response.status_code, count(response.json())) == (200, 1)
    response = await client.get(path, params={"collection_id": "empty"})
    assert (response.status_code, count(response.json())) == (200, 0)


@EACH
async def test_collection_of_another_tenant_is_not_found(
    api: LiveApi, client: httpx2.AsyncClient, other: str, path: str, count: Callable[[Any], int]
) -> None:  # C17
    foreign = await fill(client, NAME)
    async with api.client(other) as stranger:
        for reference in (NAME, foreign, "\0"):
            response = await stranger.get(path, params={"collection_id": reference})
            assert (response.status_code, response.json()["code"]) == (404, "not_found"), path
        own = await fill(stranger, foreign)  # its name is the other tenant's id
        response = await stranger.get(path, params={"collection_id": foreign})
        assert count(response.json()) == 1
        assert own in response.text or path == "/v1/stats/usage"


async def test_log_of_a_deleted_collection_is_listed_by_its_id(
    api: LiveApi, client: httpx2.AsyncClient, tenant: str
) -> None:
    log = make_log(uuid4(), query_text="Of a deleted collection")
    await QueryLogRepository(api.application.database.for_tenant(tenant)).create(log)
    parameters: dict[str, Any] = {"collection_id": str(log.collection_id), "limit": 1}
    found = (await client.get("/v1/queries", params=parameters)).json()
    assert [query["query_text"] for query in found["queries"]] == ["Of a deleted collection"]
    rest = await client.get("/v1/queries", params={**parameters, "after": found["next"]})
    assert (rest.status_code, rest.json()["queries"]) == (200, [])
