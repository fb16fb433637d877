"""Near-identical chunks do not fill the context if ``mmr_lambda`` is set; without it nothing changes."""

from collections.abc import AsyncIterator, Callable
from uuid import uuid4

import httpx2
import pytest

from tests.support.http.live_api import add_documents, live_api, new_collection, settings_for
from vectorforge.local.postgres import EmbeddedPostgres
from vectorforge.types import DistanceMetric, SearchMode
from vectorforge.vectorstore.search.matches import SearchPlan, SearchShape
from vectorforge.vectorstore.search.statement import SearchConstants, search_sql
from vectorforge.vectorstore.search.vectors import index_kind

REFUND = "A refund takes {days} days after the parcel has reached us, on the card that paid for it."
DOCUMENTS = {
    **{f"year{days}": REFUND.format(days=days) for days in ("five", "six", "seven", "eight")},
    "damage": "Photograph what arrives broken and we send another one.",
    "gift": "A gift voucher is not refunded in money.",
}
QUERY = {"query": "How many days does a refund take after the parcel?"}


@pytest.fixture
async def client(
    postgres_server: EmbeddedPostgres, make_tenant: Callable[[], str]
) -> AsyncIterator[httpx2.AsyncClient]:
    tenant = make_tenant()
    async with live_api(settings_for(postgres_server.app_url, [tenant])) as api, api.client(tenant) as client:
        await add_documents(client, await new_collection(client), **DOCUMENTS)
        yield client


def years(sources: list[str]) -> int:
    return sum(source.startswith("year") for source in sources)


@pytest.mark.parametrize(
    ("mode", "expected"), [("hybrid", 1), ("dense", 1), ("lexical", 2)], ids=["hybrid", "dense", "lexical"]
)
async def test_near_identical_chunks_leave_room_for_others(
    client: httpx2.AsyncClient, mode: str, expected: int
) -> None:
    async def found(**options: float) -> list[str]:
        body = {**QUERY, "top_k": 3, "search_mode": mode, **options}
        results = (await client.post("/v1/search", json=body)).json()["results"]
        return [result["source"] for result in results]

    plain = await found()
    assert years(plain) == 3
    assert await found(mmr_lambda=1) == plain
    diverse = await found(mmr_lambda=0.3)
    assert (diverse[0], years(diverse), len(diverse)) == (
        plain[0],
        expected,
        3,
    )  # one other chunk has words of the query


async def test_context_of_an_answer_is_diverse(client: httpx2.AsyncClient) -> None:
    body = {**QUERY, "k": 3}
    plain = (await client.post("/v1/rag/query", json=body)).json()["context"]
    answer = (await client.post("/v1/rag/query", json={**body, "mmr_lambda": 0.3})).json()
    assert years([entry["source"] for entry in plain]) == 3
    assert years([entry["source"] for entry in answer["context"]]) == 1


async def test_vector_store_search_is_diverse(client: httpx2.AsyncClient) -> None:
    (collection,) = (await client.get("/v1/collections")).json()["collections"]
    body = {**QUERY, "max_num_results": 3}
    path = f"/v1/vector_stores/{collection['id']}/search"
    plain = (await client.post(path, json=body)).json()["data"]
    diverse = (await client.post(path, json={**body, "mmr_lambda": 0.3})).json()["data"]
    assert [years([result["filename"] for result in found]) for found in (plain, diverse)] == [3, 1]


async def test_chat_completion_of_openai_names_the_invalid_lambda(client: httpx2.AsyncClient) -> None:
    message = {"role": "user", "content": QUERY["query"]}
    body = {"model": "vectorforge", "messages": [message], "mmr_lambda": -1}
    response = await client.post("/v1/chat/completions", json=body)
    assert (response.status_code, response.json()["error"]["param"]) == (400, "mmr_lambda")


@pytest.mark.parametrize("path", ["/v1/search", "/v1/rag/query", "/v1/docrag/query", "/v1/profiles/1/search"])
async def test_lambda_above_1_is_rejected_with_its_field(client: httpx2.AsyncClient, path: str) -> None:
    response = await client.post(path, json={**QUERY, "mmr_lambda": 1.5})
    assert response.status_code == 422
    assert "mmr_lambda" in response.text
    assert "less than or equal to 1" in response.text


@pytest.mark.parametrize("mode", SearchMode)
def test_statement_reads_vectors_only_if_they_are_wanted(mode: SearchMode) -> None:
    dimension = 0 if mode is SearchMode.LEXICAL else 384
    shape = SearchShape(
        mode, DistanceMetric.COSINE, dimension, index_kind("cosine_384", 384), False, False, False
    )
    constants = SearchConstants(
        uuid4(), "cosine_384", top_k=10, limit=10_000, depth=50, candidates=50, ef_search=80
    )
    plain = search_sql(shape, SearchPlan.CHOSEN, constants)
    wanted = search_sql(shape._replace(with_vectors=True), SearchPlan.CHOSEN, constants)
    assert "v.embedding" not in plain
    start = wanted.index("LEFT JOIN LATERAL ( SELECT embedding")
    end = wanted.index(") v ON true ") + len(") v ON true ")
    assert (wanted[:start] + wanted[end:]).replace(", v.embedding", "") == plain
