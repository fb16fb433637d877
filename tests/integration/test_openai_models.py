"""``/v1/models`` and ``/v1/embeddings`` with the unmodified ``openai`` package, over a real server."""

from array import array
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import datetime
from typing import Any

import httpx2
import openai
import pytest
from openai import AsyncOpenAI

from tests.support.http.live_api import LiveApi, key_of, live_api, new_collection, settings_for
from tests.support.vendors.hashing_embedder import hashed_vector
from vectorforge.tokens import estimate_tokens


@pytest.fixture
async def api(app_url: str, tenant: str) -> AsyncIterator[LiveApi]:
    async with live_api(settings_for(app_url, [tenant])) as running:
        yield running


@pytest.fixture
async def native(api: LiveApi, tenant: str) -> AsyncIterator[httpx2.AsyncClient]:
    async with api.client(tenant) as opened:
        yield opened


@pytest.fixture
async def client(api: LiveApi, tenant: str) -> AsyncIterator[AsyncOpenAI]:
    async with AsyncOpenAI(base_url=f"{api.url}/v1", api_key=key_of(tenant), max_retries=0) as opened:
        yield opened


async def test_model_list_combines_presets_and_collections(
    client: AsyncOpenAI, native: httpx2.AsyncClient, api: LiveApi, tenant: str
) -> None:
    assert [model.id async for model in client.models.list()] == []
    await new_collection(native, "team/handbook")
    await api.application.for_tenant(tenant).create_collection("people", by_profile=True)
    models = [model async for model in client.models.list()]
    assert [model.id for model in models] == ["vectorforge/team/handbook"]
    await new_collection(native, "default")
    listed = [model.id for model in (await client.models.list()).data]
    assert sorted(listed) == ["vectorforge/default", "vectorforge/team/handbook"]
    for preset in ("rag_query", "docrag"):  # valid, and not listed
        assert (await client.models.retrieve(f"{preset}/team/handbook")).id == f"{preset}/team/handbook"
    assert (await client.models.retrieve("vectorforge")).id == "vectorforge"  # the default collection's alias

    shown = await client.models.retrieve("vectorforge/team/handbook")
    assert shown == models[0]
    (row,) = [
        c for c in (await native.get("/v1/collections")).json()["collections"] if c["name"] == "team/handbook"
    ]
    assert shown.created == int(datetime.fromisoformat(row["created_at"]).timestamp())
    assert (await client.models.retrieve(f"vectorforge/{row['id']}")).created == shown.created
    assert (await client.models.retrieve("vectorforge/people")).object == "model"
    for name in ("vectorforge/none", "gpt-6", "profile/default"):
        with pytest.raises(openai.NotFoundError) as unknown:
            await client.models.retrieve(name)
        assert (unknown.value.code, unknown.value.param) == ("model_not_found", "model")


async def test_unknown_route_returns_openai_error(client: AsyncOpenAI) -> None:
    unsupported: list[Callable[[], Awaitable[object]]] = [
        lambda: client.moderations.create(input="x"),
        lambda: client.completions.create(model="vectorforge", prompt="x"),
        lambda: client.batches.retrieve("batch_1"),
        lambda: client.images.generate(prompt="x"),
        lambda: client.audio.speech.create(input="x", model="m", voice="alloy"),
        lambda: client.fine_tuning.jobs.list(),
        lambda: client.responses.cancel("resp_1"),
    ]
    for call in unsupported:
        with pytest.raises(openai.NotFoundError, match="This route is not supported") as unknown:
            await call()
        assert (unknown.value.code, unknown.value.type) == ("route_not_found", "invalid_request_error")


async def test_base_url_without_v1_is_named(client: AsyncOpenAI, api: LiveApi) -> None:
    root = client.with_options(base_url=api.url)
    messages: Any = [{"role": "user", "content": "x"}]
    calls: list[Callable[[], Awaitable[object]]] = [
        root.models.list,
        lambda: root.chat.completions.create(model="vectorforge", messages=messages),
        lambda: root.responses.create(model="vectorforge", input="x"),
        lambda: root.vector_stores.retrieve("vs_1"),
    ]
    for call in calls:
        with pytest.raises(openai.NotFoundError, match=f"base URL {api.url}/v1") as unknown:
            await call()
        assert (unknown.value.code, unknown.value.type) == ("route_not_found", "invalid_request_error")


TEXTS = ["The dough rises.", "Größe 🙂", "The dough rises."]


@pytest.mark.parametrize("options", [{}, {"encoding_format": "float"}, {"dimensions": 64}])
async def test_embeddings_match_the_provider_vectors(client: AsyncOpenAI, options: Any) -> None:
    response = await client.embeddings.create(model="hashing", input=TEXTS, **options)
    expected = [array("f", hashed_vector(text)).tolist() for text in TEXTS]  # as stored
    assert [data.embedding for data in response.data] == expected
    assert [data.index for data in response.data] == [0, 1, 2]
    estimated = sum(estimate_tokens(text, "hashing") for text in TEXTS)  # a local model reports none
    assert response.usage.prompt_tokens == response.usage.total_tokens == estimated > 0
    again = await client.embeddings.create(model=response.model, input=TEXTS[1], **options)
    assert [data.embedding for data in again.data] == expected[1:2]


async def test_embeddings_are_base64_only_on_request(native: httpx2.AsyncClient) -> None:
    body = {"model": "hashing", "input": "dough", "user": "ann"}
    numbers = (await native.post("/v1/embeddings", json=body)).json()["data"][0]["embedding"]
    packed = await native.post("/v1/embeddings", json={**body, "encoding_format": "base64"})
    assert isinstance(numbers, list)
    assert isinstance(packed.json()["data"][0]["embedding"], str)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"input": [1, 2, 3]}, "input"),
        ({"input": [[1, 2], [3]]}, "input"),
        ({"input": []}, "input"),
        ({"input": [""]}, "input.0"),
        ({"input": ["x", " \n"]}, "input.1"),
        ({"input": ["x"] * 2049}, "input"),
        ({"input": ["x" * 100_001]}, "input.0"),
        ({"input": ["x" * 100_000] * 11}, "input"),
        ({"input": None}, "input"),
        ({"dimensions": 32}, "dimensions"),
        ({"encoding_format": "int8"}, "encoding_format"),
    ],
)
async def test_invalid_embedding_input_is_rejected_by_name(
    client: AsyncOpenAI, fields: dict[str, Any], param: str
) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        await client.embeddings.create(**{"model": "hashing", "input": "x", **fields})
    assert refused.value.param == param
    assert refused.value.code == "invalid_input"


@pytest.mark.parametrize("name", ["none", "hashing/", "text-embedding-3-small", "vectorforge"])
async def test_unknown_embedding_model_lists_available_ones(client: AsyncOpenAI, name: str) -> None:
    with pytest.raises(openai.NotFoundError, match="hashing") as unknown:
        await client.embeddings.create(model=name, input="x")
    assert (unknown.value.code, unknown.value.param) == ("model_not_found", "model")
