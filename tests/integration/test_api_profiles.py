"""``/v1/profiles`` on a real socket and database: two profiles, two tenants, every API surface."""

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

import httpx2
import pytest

from tests.support.http.live_api import LiveApi, ask_streaming, live_api, new_collection, settings_for
from vectorforge.config import QuerySettings

WHOLE = {
    "profile_summary": "Bakes bread and writes software.",
    "experiences": [
        {"id": 1, "title": "Engineer", "company": "Acme", "description": "Moved a warehouse to Postgres."},
        {"id": 2, "title": "Baker", "description": "Baked rye bread at dawn."},
    ],
    "projects": [{"id": 1, "name": "Weather station", "description": "Measures rain."}],
    "skills": ["Python", {"name": "Baking", "level": "expert"}],
    "education": [{"id": 1, "degree": "MSc", "institution": "TU Graz"}],
}
OTHER = {"profile_summary": "Another person's bread and Postgres warehouse."}


@dataclass
class Routers:
    """Alice's profiles 1 and 2, and Bob's profile 1."""

    api: LiveApi
    alice: str
    bob: str

    def client(self, tenant: str | None = None) -> httpx2.AsyncClient:
        return self.api.client(tenant or self.alice)


@pytest.fixture
async def doors(app_url: str, make_tenant: Callable[[], str]) -> AsyncIterator[Routers]:
    alice, bob = make_tenant(), make_tenant()
    async with live_api(settings_for(app_url, [alice, bob])) as api:
        doors = Routers(api, alice, bob)
        for tenant, profile_id, body in ((alice, 1, WHOLE), (alice, 2, OTHER), (bob, 1, OTHER)):
            async with doors.client(tenant) as client:
                (await client.put(f"/v1/profiles/{profile_id}", json=body)).raise_for_status()
        yield doors


async def search(client: httpx2.AsyncClient, profile_id: int = 1, **body: Any) -> dict[str, Any]:
    response = await client.post(f"/v1/profiles/{profile_id}/search", json={"query": "bread", **body})
    response.raise_for_status()
    found: dict[str, Any] = response.json()
    return found


def origins(found: dict[str, Any]) -> set[tuple[str, str]]:
    return {(result["source_type"], result["source_id"]) for result in found["results"]}


# C-008 C-009 C-010: the documents that each way of ingestion replaces and leaves unchanged
async def test_profile_is_ingested_reingested_and_deleted(doors: Routers) -> None:
    async with doors.client() as client:
        first = (await client.put("/v1/profiles/5", json=WHOLE)).json()
        assert (first["documents"], first["chunks_added"]) == (6, 6)
        again = (await client.put("/v1/profiles/5", json=WHOLE)).json()
        assert (again["documents_unchanged"], again["chunks_added"], again["chunks_kept"]) == (6, 0, 6)
        cv = {"text": "Sailed around the world.", "title": "CV", "metadata": {"year": 2026}}
        added = await client.post("/v1/profiles/5/documents", json=cv)
        assert added.json()["chunks_added"] == 1
        more = {"experiences": [{"id": 9, "title": "Pilot"}]}
        assert (await client.post("/v1/profiles/5", json=more)).json()["documents_removed"] == 0
        everything = origins(await search(client, 5, top_k=100))
        assert everything >= {("cv", "1"), ("experience", "9"), ("experience", "1"), ("summary", "1")}
        less = await client.put("/v1/profiles/5", json={"profile_summary": "Retired."})
        assert less.json()["documents_removed"] == 6
        assert origins(await search(client, 5, top_k=100)) == {("cv", "1"), ("summary", "1")}
        await client.put("/v1/profiles/5", json={"profile_summary": "Retired.", "documents": []})
        assert origins(await search(client, 5, top_k=100)) == {("summary", "1")}
        assert (await client.delete("/v1/profiles/5")).status_code == 200
        assert (await client.delete("/v1/profiles/5")).status_code == 404
        assert (await search(client, 5))["results"] == []
        assert len(origins(await search(client, 1, top_k=100))) == 6


# C-002 C-013 C-014 C-017: chunks, and the same chunks as a context
async def test_profile_search_returns_scored_rows_within_the_profile(doors: Routers) -> None:
    async with doors.client() as client:
        found = await search(client, query="Who moved a warehouse to Postgres?")
        best = found["results"][0]
        assert (best["source_type"], best["source_id"]) == ("experience", "1")
        assert best["title"] == "Engineer, Acme"
        assert best["metadata"]["profile_id"] == 1
        assert found["context"].startswith("[Source 1]\nexperience 1: Engineer, Acme\n# Engineer, Acme")
        assert len(found["results"]) == 5
        assert len((await search(client, max_length=200))["context"]) <= 200
        narrow = await search(client, filters={"source_type": "experience"}, top_k=100)
        assert origins(narrow) == {("experience", "1"), ("experience", "2")}


async def test_profile_search_supports_lexical_and_hybrid_mode(doors: Routers) -> None:
    async with doors.client() as client:
        lexical = await search(client, query="warehouse", search_mode="lexical", min_score=2.0, top_k=100)
        assert origins(lexical) == {("experience", "1")}
        assert lexical["results"][0]["lexical_score"] > 0
        assert "warehouse" in lexical["context"]
        both = await search(client, query="warehouse", search_mode="hybrid", top_k=100)
        assert (both["results"][0]["source_id"], len(both["results"])) == ("1", 6)
        assert both["results"][0]["relevance"] > both["results"][1]["relevance"]
        assert all(r["relevance"] is None for r in (await search(client, query="warehouse"))["results"])
        other_query = await client.post(
            "/v1/profiles/1/query", json={"query": "warehouse", "search_mode": "lexical"}
        )
        assert other_query.json()["funnel"]["search_mode"] == "lexical"


# C-019 C17: nothing in a request reaches another profile or another tenant
@pytest.mark.parametrize(
    "filters",
    [None, {"profile_id": 2}, {"$or": [{"profile_id": 1}, {"profile_id": 2}]}, {"profile_id": {"$gte": 0}}],
)
async def test_filters_on_api_surfaces_never_return_other_profile(
    doors: Routers, filters: dict[str, Any] | None
) -> None:
    other_query = "Another person's bread and Postgres warehouse"
    question = {"query": other_query, "filters": filters}
    async with doors.client() as client:
        names = {c["name"]: c["id"] for c in (await client.get("/v1/collections")).json()["collections"]}
        collection_id = names["profiles"]
        of_one = {**question, "profile_id": 1}
        bodies = [
            (await client.post("/v1/profiles/1/search", json=question)),
            (await client.post("/v1/profiles/1/query", json=question)),
            (await client.post("/v1/search", json={**of_one, "collection": "profiles"})),
            (await client.post("/v1/rag/query", json={**of_one, "collection": "profiles"})),
            (await client.post(f"/v1/collections/{collection_id}/query", json=of_one)),
            (
                await client.post(
                    "/v1/docrag/query", json={**of_one, "collection": "profiles", "min_score": None}
                )
            ),
        ]
        for response in bodies:
            assert response.status_code == 200, response.text
            assert "Another person" not in response.text.replace(other_query, "")
        for path in ("/v1/profiles/1/query", f"/v1/collections/{collection_id}/query"):
            events = await ask_streaming(client, path, of_one)
            assert "Another person" not in str([event.data for event in events]).replace(other_query, "")


# C17: the same chunks through every API surface, in the same order
async def test_api_surfaces_return_the_same_profile_chunks(doors: Routers) -> None:
    body: dict[str, Any] = {"query": "Who baked bread?", "top_k": 4, "min_score": None}
    async with doors.client() as client:
        names = {c["name"]: c["id"] for c in (await client.get("/v1/collections")).json()["collections"]}
        scoped = {**body, "profile_id": 1}
        expected = [r["chunk_id"] for r in (await search(client, **body))["results"]]
        assert len(expected) == 4
        other_query = (await client.post("/v1/profiles/1/query", json=body)).json()
        assert [source["chunk_id"] for source in other_query["sources"]] == expected
        other_query = (await client.post(f"/v1/collections/{names['profiles']}/query", json=scoped)).json()
        assert [source["chunk_id"] for source in other_query["sources"]] == expected
        found = (await client.post("/v1/search", json={**scoped, "collection": "profiles"})).json()
        assert [result["chunk_id"] for result in found["results"]] == expected
        rag = {"query": "Who baked bread?", "k": 4, "profile_id": 1, "collection": "profiles"}
        other_query = (await client.post("/v1/rag/query", json=rag)).json()
        assert [entry["chunk_id"] for entry in other_query["context"]] == expected
        docrag = {"query": "Who baked bread?", "n_results": 4, "min_score": None, "profile_id": 1}
        other_query = (
            await client.post("/v1/docrag/query", json={**docrag, "collection": "profiles"})
        ).json()
        assert [passage["chunk_id"] for passage in other_query["passages"]] == expected


# C17: a collection of profiles answers no request without a profile
async def test_profile_collection_without_profile_id_returns_422(doors: Routers) -> None:
    async with doors.client() as client:
        names = {c["name"]: c for c in (await client.get("/v1/collections")).json()["collections"]}
        assert names["profiles"]["by_profile"] is True
        collection_id = names["profiles"]["id"]
        question = {"query": "bread", "filters": {"profile_id": 1}}
        for path, body in (
            ("/v1/search", {**question, "collection": "profiles"}),
            ("/v1/rag/query", {**question, "collection": "profiles"}),
            ("/v1/docrag/query", {**question, "collection": "profiles"}),
            (f"/v1/collections/{collection_id}/query", question),
        ):
            response = await client.post(path, json=body)
            assert (response.status_code, response.json()["errors"][0]["field"]) == (422, "profile_id"), path
        wrong = await client.post("/v1/profiles/1/query", json={"query": "bread", "profile_id": 2})
        assert wrong.status_code == 422


# C-014 C06: the answer's context has 2,000 characters regardless of max_tokens
async def test_profile_preset_limits_context_and_sources(doors: Routers) -> None:
    jobs = [{"id": n, "title": f"Job {n}", "description": f"Bread {n}. " * 60} for n in range(12)]
    async with doors.client() as client:
        await client.put("/v1/profiles/6", json={"experiences": jobs})
        body = {"query": "bread", "top_k": 12, "max_tokens": 4000}
        answer = (await client.post("/v1/profiles/6/query", json=body)).json()
        assert 1 <= len(answer["sources"]) <= 3
        assert sum(len(source["text"]) for source in answer["sources"]) <= 2000
        log = (await client.get(f"/v1/queries/{answer['id']}")).json()
        assert log["preset"] == "profile"
        jobs = [{"id": n, "title": f"A {n}"} for n in range(9)]
        await client.put("/v1/profiles/7", json={"experiences": jobs})
        answer = (await client.post("/v1/profiles/7/query", json={"query": "bread"})).json()
        assert len(answer["sources"]) == 5  # of any score


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/v1/profiles/-1", {"profile_summary": "x"}, 422),
        ("/v1/profiles/9223372036854775808", {"profile_summary": "x"}, 422),
        ("/v1/profiles/x", {"profile_summary": "x"}, 422),
        ("/v1/profiles/1", {"resume": "x"}, 422),
        ("/v1/profiles/1", {"experiences": [{"id": 1, "text": "x" * 70_000}]}, 422),
        ("/v1/profiles/1", {"experiences": [{"id": 1}] * 501}, 422),
        (
            "/v1/profiles/1",
            {"profile_summary": "x", "chunking": {"chunk_overlap": 401}},
            422,
        ),
        ("/v1/profiles/1/documents", {"text": " "}, 422),
        ("/v1/profiles/1/documents", {"text": "x", "source_type": "passport"}, 422),
        ("/v1/profiles/1/search", {"query": " "}, 422),
        ("/v1/profiles/1/search", {"query": "x", "top_k": 101}, 422),
        ("/v1/profiles/1/search", {"query": "x", "max_length": 199}, 422),
        ("/v1/profiles/1/search", {"query": "x", "filters": {"a": {"$near": 1}}}, 422),
    ],
)
async def test_invalid_profile_request_returns_error_status(
    doors: Routers, path: str, body: dict[str, Any], status: int
) -> None:
    async with doors.client() as client:
        response = await client.post(path, json=body)
        assert response.status_code == status, response.text


# C-022
async def test_chunking_options_in_request_set_the_chunk_size(doors: Routers) -> None:
    text = " ".join(f"word{number}" for number in range(100))
    async with doors.client() as client:
        body = {"text": text, "chunking": {"chunk_size": 100, "chunk_overlap": 0}}
        assert (await client.post("/v1/profiles/1/documents", json=body)).json()["chunks_added"] > 5


async def test_profile_routes_on_ordinary_collection_return_409(
    app_url: str, make_tenant: Callable[[], str]
) -> None:
    tenant = make_tenant()
    config = settings_for(app_url, [tenant], query=QuerySettings(profile_collection="default"))
    async with live_api(config) as api, api.client(tenant) as client:
        await new_collection(client)
        for path in ("/v1/profiles/1", "/v1/profiles/1/search"):
            response = await client.post(path, json={"query": "x"} if "search" in path else {})
            assert response.status_code == 409
            assert "VECTORFORGE_PROFILE_COLLECTION" in response.json()["detail"]
