"""``retrieve`` of boto3 against a running server: locations, filters and limits."""

from typing import Any

import pytest

from tests.integration.bedrock.conftest import add_document
from tests.support.http.knowledge_bases import ASKED, KNOWLEDGE_BASE, call
from tests.support.http.live_api import LiveApi

ALPHA = {"team": "alpha", "year": 2023, "tags": ["red", "green"], "draft": False}
BETA = {"team": "beta", "year": 2024, "tags": ["green"], "draft": True}
SHELF = "KBSHELF001"


FILTERS: list[tuple[Any, str]] = [
    ({"equals": {"key": "team", "value": "alpha"}}, "a"),
    ({"equals": {"key": "draft", "value": True}}, "b"),
    ({"notEquals": {"key": "team", "value": "alpha"}}, "b"),
    ({"greaterThan": {"key": "year", "value": 2023}}, "b"),
    ({"greaterThanOrEquals": {"key": "year", "value": 2023}}, "ab"),
    ({"lessThan": {"key": "year", "value": 2024}}, "a"),
    ({"lessThanOrEquals": {"key": "year", "value": 2022.5}}, ""),
    ({"in": {"key": "team", "value": ["beta", "gamma"]}}, "b"),
    ({"notIn": {"key": "team", "value": ["beta", "gamma"]}}, "a"),
    ({"startsWith": {"key": "team", "value": "al"}}, "a"),
    ({"startsWith": {"key": "team", "value": "lph"}}, ""),
    ({"stringContains": {"key": "team", "value": "et"}}, "b"),
    ({"listContains": {"key": "tags", "value": "red"}}, "a"),
    ({"listContains": {"key": "tags", "value": "re"}}, ""),
    ({"listContains": {"key": "team", "value": "alph"}}, ""),
    (
        {
            "andAll": [
                {"equals": {"key": "tags", "value": "green"}},
                {
                    "orAll": [
                        {"lessThan": {"key": "year", "value": 2000}},
                        {"startsWith": {"key": "team", "value": "b"}},
                    ]
                },
            ]
        },
        "b",
    ),
]
"""Filter -> sources that it finds."""


REFUSED: list[tuple[Any, str]] = [
    ({"filter": {"equals": {"key": "$or", "value": 1}}}, "filter.equals.key must be a string"),
    ({"filter": {"equals": {"key": "x-amz-bedrock-kb-source-uri", "value": "a"}}}, "filter.equals.key"),
    ({"filter": {"greaterThan": {"key": "year", "value": True}}}, "must be a number or a string"),
    ({"filter": {"in": {"key": "year", "value": 3}}}, "must be a list"),
    ({"filter": {"stringContains": {"key": "team", "value": 3}}}, "filter.stringContains.value"),
    ({"numberOfResults": 101}, "numberOfResults: Input should be less than or equal to 100"),
    ({"overrideSearchType": "LEXICAL"}, "overrideSearchType"),
    (
        {"rerankingConfiguration": {"type": "BEDROCK_RERANKING_MODEL"}},
        "rerankingConfiguration is not supported",
    ),
]
"""Search configuration -> part of the error."""


UNSUPPORTED: list[dict[str, Any]] = [
    {"nextToken": "x"},
    {"userContext": {"userId": "ann"}},
    {"guardrailConfiguration": {"guardrailId": "a", "guardrailVersion": "1"}},
    {"retrievalConfiguration": {"managedSearchConfiguration": {"numberOfResults": 3}}},
]


async def retrieve(client: Any, knowledge_base: str = KNOWLEDGE_BASE, **search: Any) -> list[Any]:
    """Return the results for the query of these tests."""
    options: Any = {"retrievalConfiguration": {"vectorSearchConfiguration": search}} if search else {}
    response = await call(
        client.retrieve, knowledgeBaseId=knowledge_base, retrievalQuery={"text": ASKED}, **options
    )
    found: list[Any] = response["retrievalResults"]
    return found


async def test_retrieve_returns_chunks_with_source_score_and_metadata(client: Any) -> None:
    best, other = await retrieve(client)
    assert "two hours" in best["content"]["text"]
    assert best["content"]["type"] == "TEXT"
    assert best["location"] == {"type": "CUSTOM", "customDocumentLocation": {"id": "bread.md"}}
    assert best["metadata"]["kind"] == "bread"
    assert best["metadata"]["x-amz-bedrock-kb-source-uri"] == "bread.md"
    assert best["metadata"]["x-amz-bedrock-kb-chunk-id"]
    assert best["documentId"] != other["documentId"]
    assert isinstance(best["score"], float)
    assert len(await retrieve(client, numberOfResults=1)) == 1
    for search_type in ("HYBRID", "SEMANTIC"):
        assert (await retrieve(client, overrideSearchType=search_type))[0]["documentId"] == best["documentId"]


async def test_retrieve_names_s3_and_web_sources(client: Any, api: LiveApi, tenant: str) -> None:
    for source in ("s3://bucket/dough.md", "https://example.org/dough"):
        await add_document(api, tenant, SHELF, source=source, text=f"Dough rises. {source}")
    locations = {found["location"]["type"]: found["location"] for found in await retrieve(client, SHELF)}
    assert locations == {
        "S3": {"type": "S3", "s3Location": {"uri": "s3://bucket/dough.md"}},
        "WEB": {"type": "WEB", "webLocation": {"url": "https://example.org/dough"}},
    }


async def test_retrieve_finds_collection_by_arn_name_with_slash_and_id(
    client: Any, api: LiveApi, tenant: str
) -> None:
    arn = f"arn:aws:bedrock:us-east-1:123456789012:knowledge-base/{KNOWLEDGE_BASE}"
    assert await retrieve(client, arn) == await retrieve(client)
    await add_document(api, tenant, "default", source="a.md", text="Dough rises.")
    async with api.client(tenant) as native:
        (named,) = (
            c for c in (await native.get("/v1/collections")).json()["collections"] if c["name"] == "default"
        )
        posted = await native.post("/v1/collections", json={"name": "guides/50% é"})
        assert posted.status_code == 201
    assert len(await retrieve(client, named["id"])) == 1
    assert await retrieve(client, "guides/50% é") == []


async def test_retrieve_applies_every_filter_operator(
    client: Any, api: LiveApi, tenant: str, subtests: pytest.Subtests
) -> None:
    for source, metadata in (("a", ALPHA), ("b", BETA)):
        await add_document(api, tenant, SHELF, source=source, text=f"Dough {source}.", metadata=metadata)
    for condition, found in FILTERS:
        with subtests.test(condition=condition):
            results = await retrieve(client, SHELF, filter=condition)
            assert sorted(r["metadata"]["x-amz-bedrock-kb-source-uri"] for r in results) == list(found)
    members = client.meta.service_model.shape_for("RetrievalFilter").members
    assert {name for condition, _ in FILTERS for name in condition} | {"orAll"} == set(members)


async def test_retrieve_rejects_what_it_cannot_express(client: Any, subtests: pytest.Subtests) -> None:
    for search, message in REFUSED:
        with subtests.test(search=search):
            with pytest.raises(client.exceptions.ValidationException) as refused:
                await retrieve(client, **search)
            assert message in refused.value.response["Error"]["Message"]
            assert refused.value.response["ResponseMetadata"]["HTTPStatusCode"] == 400


async def test_retrieve_rejects_unsupported_member_by_name(client: Any) -> None:
    for option in UNSUPPORTED:
        with pytest.raises(client.exceptions.ValidationException) as refused:
            await call(
                client.retrieve, knowledgeBaseId=KNOWLEDGE_BASE, retrievalQuery={"text": ASKED}, **option
            )
        (name,) = option.get("retrievalConfiguration", option)
        assert f"{name} is not supported" in refused.value.response["Error"]["Message"]
