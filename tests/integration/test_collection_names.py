"""Routes with ``{collection_id}`` accept the name of a collection; an id wins, and tenants stay apart."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from urllib.parse import quote
from uuid import uuid4

import httpx2

from tests.integration.tenant_routes import (
    CASES,
    QUESTION,
    SECRET,
    Alice,
    alice,
    code_of,
    deleted_when,
    request,
)
from tests.support.http.live_api import add_documents, live_api, new_collection, settings_for
from tests.support.postgres.pin_detector import PinDetector

_FIXTURE = alice
NAMED = sorted((route for route in CASES if "{collection_id}" in route[1]), key=deleted_when)
NAMES = ["handbook", "Team A/50% köln #1?", "a/documents", "%2F", "100%41", ".hidden"]
COLLECTION = "/v1/collections/{collection_id}"
FILTERS = {"filters": {"kind": "none"}}


def by_name(alice: Alice, name: str) -> Alice:
    return replace(alice, ids={**alice.ids, "collection_id": quote(name, safe="")})


async def test_routes_accept_name_of_collection(alice: Alice) -> None:
    async with alice.api.client(alice.name) as client:
        for name in NAMES:
            named, collection_id = by_name(alice, name), await new_collection(client, name)
            await add_documents(client, collection_id, secret=SECRET)
            for method, path in NAMED:
                response = await request(
                    client, method, named.fill(path), named.fill_body(CASES[method, path])
                )
                body = response.json()
                if response.status_code == 409:
                    # a step of the switch that is not due; keys of S3 have one folder per collection
                    assert "/embedding-switch/" in path or (path.endswith("/uploads") and "/" in name), body
                    continue
                assert response.status_code < 300, (path, body)
                if method != "DELETE":
                    found = body.get("id" if path == COLLECTION else "collection_id", collection_id)
                    assert found == collection_id, path
            shown = await client.get(named.fill(COLLECTION))
            assert (shown.status_code, code_of(shown)) == (404, "not_found"), "the deletion was the last"


async def test_name_of_other_tenants_collection_returns_404(alice: Alice) -> None:  # C17
    name = "only/alice's"
    named = by_name(alice, name)
    async with alice.api.client(alice.name) as as_alice, alice.api.client(alice.bob) as as_bob:
        await add_documents(as_alice, await new_collection(as_alice, name), secret=SECRET)
        for method, path in NAMED:
            response = await request(as_bob, method, named.fill(path), named.fill_body(CASES[method, path]))
            assert (response.status_code, code_of(response)) == (404, "not_found"), (path, response.text)
            assert response.headers["content-type"] == "application/problem+json"
            assert SECRET not in response.text
        listed = await as_alice.get(named.fill(f"{COLLECTION}/documents"))
        assert listed.json()["total"] == 1


async def test_misspelled_name_returns_similar_name_of_the_tenant(alice: Alice) -> None:
    async with alice.api.client(alice.name) as as_alice, alice.api.client(alice.bob) as as_bob:
        await new_collection(as_alice, "salaries 2026")
        await new_collection(as_bob, "salary 2020")
        requests = (
            ("/v1/rag/query", {"query": "x", "collection": "salaris 2026"}),
            ("/v1/search", {"query": "x", "collection": "salaris 2026"}),
            ("/v1/collections/salaris 2026/query", {"query": "x"}),
            ("/v1/collections/salaris 2026/documents/delete", FILTERS),
        )
        for path, body in requests:
            missing = (await as_alice.post(path, json=body)).json()["detail"]
            assert missing == 'There is no collection "salaris 2026". Did you mean "salaries 2026"?', path
            missing = (await as_bob.post(path, json=body)).json()["detail"]
            assert missing == 'There is no collection "salaris 2026". Did you mean "salary 2020"?', path


async def test_name_that_looks_like_an_id_is_found_after_ids(
    app_url: str, make_tenant: Callable[[], str]
) -> None:
    tenant, name = make_tenant(), str(uuid4())
    async with live_api(settings_for(app_url, [tenant])) as api, api.client(tenant) as client:
        first = await new_collection(client, name)
        await add_documents(client, first, secret=SECRET)
        namesake = await new_collection(client, first)  # its name is the id of the first one

        async def ids(reference: str) -> dict[str, Any]:
            path = f"/v1/collections/{reference}"
            query = await client.post(f"{path}/query", json=QUESTION)
            return {
                "get": (await client.get(path)).json()["id"],
                "patch": (await client.patch(path, json={"ocr": False})).json()["id"],
                "settings": (await client.patch(path, json={"dense_weight": 0.5})).json()["id"],
                "documents": (await client.get(f"{path}/documents")).json()["total"],
                "filter": (await client.post(f"{path}/documents/delete", json=FILTERS)).status_code,
                "query": len(query.json()["sources"]),
            }

        of_first = {
            "get": first,
            "patch": first,
            "settings": first,
            "documents": 1,
            "filter": 200,
            "query": 1,
        }
        assert await ids(name) == of_first
        assert await ids(first) == of_first
        assert (await client.delete(f"/v1/collections/{name}")).status_code == 200
        of_namesake = {**dict.fromkeys(("get", "patch", "settings"), namesake), "documents": 0, "query": 0}
        assert await ids(first) == {**of_namesake, "filter": 200}


async def test_only_names_cost_another_round_trip(
    app_url: str, make_tenant: Callable[[], str], pin_detector: PinDetector
) -> None:
    tenant = make_tenant()
    requests: list[tuple[str, str, dict[str, Any] | None]] = [
        ("GET", "", None),
        ("GET", "/documents", None),
        ("PATCH", "", {"ocr": False}),
        ("PATCH", "", {"dense_weight": 0.5}),
        ("POST", "/documents/delete", {**FILTERS, "dry_run": True}),
        ("POST", "/query", QUESTION),
    ]
    async with live_api(settings_for(app_url, [tenant])) as api, api.client(tenant) as client:
        collection_id = await new_collection(client, "by name")

        async def round_trips(reference: str, method: str, path: str, body: Any) -> int:
            counts = []
            for _ in range(10):  # workers poll meanwhile
                await asyncio.sleep(0.01)
                counts.append(await counted(client, reference, method, path, body))
            return min(counts)

        async def counted(
            client: httpx2.AsyncClient, reference: str, method: str, path: str, body: Any
        ) -> int:
            before = pin_detector.messages["Sync"]
            url = f"/v1/collections/{reference}{path}"
            (await client.request(method, url, json=body)).raise_for_status()
            return pin_detector.messages["Sync"] - before

        found = {
            (method, path, *(body or {})): (
                await round_trips(collection_id, method, path, body),
                await round_trips("by%20name", method, path, body),
            )
            for method, path, body in requests
        }
    assert found == {
        ("GET", ""): (1, 1),
        ("GET", "/documents"): (2, 2),
        ("PATCH", "", "ocr"): (2, 3),
        ("PATCH", "", "dense_weight"): (1, 2),
        ("POST", "/documents/delete", "filters", "dry_run"): (3, 4),
        ("POST", "/query", "query"): (4, 4),
    }
