"""Search in a vector store with the unmodified ``openai`` package."""

from typing import Any
from uuid import UUID

import openai
import pytest

from tests.integration.openai_vector_stores.conftest import TEXTS, Door, valid


async def search(door: Door, query: str | list[str] = "what needs care", **options: Any) -> list[Any]:
    page = await door.client.vector_stores.search(door.store, query=query, **options)
    return [valid(result) async for result in page]


async def test_search_returns_best_chunks_first(door: Door) -> None:
    found = await search(door, "The pump needs oil")
    assert (found[0].filename, found[0].content[0].text) == ("pump.md", TEXTS["pump.md"])
    assert [result.score for result in found] == sorted((r.score for r in found), reverse=True)
    assert found[0].attributes == {"year": 2024, "kind": "manual", "draft": False, "place.hall": "A"}
    async with door.api.client(None) as client:
        client.headers["Authorization"] = f"Bearer {door.client.api_key}"
        chunk = (await client.get(f"/v1/chunks/{found[0].chunk_id}")).json()
    assert chunk["text"] == TEXTS["pump.md"]
    assert UUID(chunk["document"]["id"]) == UUID(found[0].file_id.removeprefix("file-"))
    assert len(await search(door, max_num_results=2)) == 2
    lowest = found[1].score
    above_threshold = await search(door, "The pump needs oil", ranking_options={"score_threshold": lowest})
    assert [result.file_id for result in above_threshold] == [result.file_id for result in found[:2]]


async def test_multiple_queries_are_merged(door: Door) -> None:
    queries = [TEXTS["pump.md"], TEXTS["valve.md"], TEXTS["pump.md"]]
    page = await door.client.vector_stores.search(door.store, query=queries, max_num_results=2)
    assert page.to_dict()["search_query"] == queries
    assert {result.filename for result in page.data} == {"pump.md", "valve.md"}
    assert all(result.score == pytest.approx(1.0) for result in page.data)  # each by its own query


def eq(type_: str, key: str, value: Any) -> dict[str, Any]:
    return {"type": type_, "key": key, "value": value}


FILTERS: list[tuple[Any, Any]] = [
    (eq("eq", "kind", "note"), {"gauge.md"}),
    (eq("eq", "draft", True), {"valve.md"}),
    (eq("eq", "place.hall", "A"), {"pump.md"}),
    (eq("eq", "tags", "new"), {"gauge.md"}),
    (eq("ne", "kind", "note"), {"pump.md", "valve.md"}),
    (eq("gt", "year", 2022), {"pump.md"}),
    (eq("gte", "year", 2022), {"pump.md", "gauge.md"}),
    (eq("lt", "year", 2022.0), {"valve.md"}),
    (eq("lte", "year", 2022), {"valve.md", "gauge.md"}),
    (eq("in", "year", [2020, 2024]), {"valve.md", "pump.md"}),
    (eq("nin", "kind", ["manual"]), {"gauge.md"}),
    ({"type": "and", "filters": [eq("eq", "kind", "manual"), eq("gt", "year", 2021)]}, {"pump.md"}),
    (
        {
            "type": "or",
            "filters": [eq("eq", "kind", "note"), {"type": "and", "filters": [eq("lt", "year", 2021)]}],
        },
        {"gauge.md", "valve.md"},
    ),
    (eq("eq", "kind", "poem"), set()),
]


async def test_search_filters_are_applied(door: Door, subtests: pytest.Subtests) -> None:
    for filters, found in FILTERS:
        with subtests.test(msg=str(filters)):
            assert {result.filename for result in await search(door, filters=filters)} == found


REFUSED_SEARCHES: list[tuple[Any, Any]] = [
    ({"filters": {"year": 2024}}, "filters.type"),
    ({"filters": eq("near", "year", 1)}, "filters.type"),
    ({"filters": eq("eq", "$or", 1)}, "filters"),
    ({"filters": eq("in", "year", 2024)}, "filters"),
    ({"filters": eq("eq", "year", [2024])}, "filters"),
    ({"filters": {"type": "and", "filters": []}}, "filters.filters"),
    ({"filters": {"type": "and", "filters": [eq("eq", "year", None)]}}, "filters.filters.0"),
    ({"filters": eq("gt", "draft", True)}, "filters.draft.$gt"),
    ({"max_num_results": 0}, "max_num_results"),
    ({"max_num_results": 51}, "max_num_results"),
    ({"rewrite_query": True}, "rewrite_query"),
    ({"ranking_options": {"ranker": "default-2024-11-15"}}, "ranking_options.ranker"),
    ({"query": []}, "query"),
    ({"query": ["a"] * 9}, "query"),
    ({"query": 7}, "query"),
    ({"query": "  "}, "query"),
]


async def test_invalid_search_is_rejected(door: Door, subtests: pytest.Subtests) -> None:
    for options, param in REFUSED_SEARCHES:
        with subtests.test(msg=str(options)):
            with pytest.raises(openai.BadRequestError) as caught:
                await search(door, **options)
            assert (caught.value.param, caught.value.type) == (param, "invalid_request_error")


async def test_search_with_profile_id_returns_own_profile_only(door: Door) -> None:
    async with door.api.client(None) as client:
        client.headers["Authorization"] = f"Bearer {door.client.api_key}"
        for number, expected_text in ((7, "Sailed around the world."), (8, "Sailed to the island.")):
            (
                await client.put(f"/v1/profiles/{number}", json={"profile_summary": expected_text})
            ).raise_for_status()
    store = (await door.client.vector_stores.list()).data[0].id
    with pytest.raises(openai.BadRequestError) as unnamed:
        await door.client.vector_stores.search(store, query="Who sailed?")
    assert unnamed.value.param == "profile_id"
    only = {"profile_id": 7}
    page = await door.client.vector_stores.search(store, query="Who sailed?", extra_body=only)
    assert ["world" in result.content[0].text for result in page.data] == [True]
    filters: Any = eq("eq", "profile_id", 8)  # can only restrict it
    page = await door.client.vector_stores.search(store, query="sailed", filters=filters, extra_body=only)
    assert page.data == []
