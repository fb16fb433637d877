"""Vector stores, their search and their files with the unmodified ``openai`` package."""

import json
from collections.abc import Callable, Sequence
from typing import Any
from uuid import uuid4

import openai
import pytest
from openai import AsyncOpenAI

from tests.integration.openai_vector_stores.conftest import HANDBOOK, TEXTS, Door, client_of, fill, valid
from tests.support.http.live_api import live_api, settings_for


def names(files: Sequence[Any]) -> list[str]:
    return [file.filename for file in files]


async def test_vector_store_shows_its_collection(door: Door) -> None:
    store = valid(await door.client.vector_stores.retrieve(door.store))
    assert (store.id, store.name, store.status) == (door.store, "handbook", "completed")
    assert store.usage_bytes == sum(len(text.encode()) for text in TEXTS.values())
    counts = store.file_counts
    assert (counts.completed, counts.in_progress, counts.failed, counts.total) == (3, 0, 0, 3)
    assert store.created_at > 1_700_000_000
    assert (await door.client.vector_stores.retrieve("handbook")).id == door.store  # names work, too


async def test_file_counts_include_documents_in_progress(door: Door) -> None:
    await door.api.application.background.worker.stop()
    async with door.api.client(None) as client:
        client.headers["Authorization"] = f"Bearer {door.client.api_key}"
        body = {"documents": [{"source": "late.md", "text": "Later."}]}
        await client.post("/v1/collections/handbook/documents", json=body)
    store = valid(await door.client.vector_stores.retrieve(door.store))
    assert (store.status, store.file_counts.in_progress, store.file_counts.total) == ("in_progress", 1, 4)


async def test_vector_store_is_created_and_deleted(door: Door) -> None:
    stores = door.client.vector_stores
    made = valid(await stores.create(name=" Press ", description="About the press."))
    assert (made.name, made.description, made.file_counts.total) == ("Press", "About the press.", 0)
    assert (await stores.create(extra_body={"colour": "red"})).name.startswith("vector-store-")
    with pytest.raises(openai.ConflictError):
        await stores.create(name="Press")
    deleted = valid(await stores.delete(made.id))
    assert (deleted.id, deleted.deleted) == (made.id, True)
    with pytest.raises(openai.NotFoundError) as caught:
        await stores.retrieve(made.id)
    assert caught.value.code == "not_found"


REFUSED_STORES: list[tuple[Any, Any]] = [
    ("metadata", {"team": 1}),
    ("file_ids", ["file-1"]),
    ("expires_after", {"anchor": "last_active_at", "days": 1}),
    ("chunking_strategy", {"type": "static", "static": {}}),
    ("name", "x" * 201),
]


async def test_unsupported_store_field_is_rejected_by_name(door: Door, subtests: pytest.Subtests) -> None:
    for field, value in REFUSED_STORES:
        with subtests.test(msg=str(field)):
            with pytest.raises(openai.BadRequestError) as caught:
                await door.client.vector_stores.create(**{"name": "other", field: value})
            assert str(caught.value.param).startswith(field)
            assert [store.name async for store in door.client.vector_stores.list()] == ["handbook"]


async def test_lists_are_paginated_forwards(door: Door) -> None:
    stores, files = door.client.vector_stores, door.client.vector_stores.files
    for number in range(4):
        await stores.create(name=f"store {number}")
    newest_first = ["store 3", "store 2", "store 1", "store 0", "handbook"]
    assert [store.name async for store in stores.list(limit=2)] == newest_first
    assert [store.name async for store in stores.list(limit=3, order="asc")] == newest_first[::-1]
    assert names([file async for file in files.list(door.store, limit=1)]) == [*HANDBOOK][::-1]
    page = await files.list(door.store, limit=2, order="asc")
    assert (names(page.data), page.has_more) == (["pump.md", "valve.md"], True)
    ends = page.to_dict()
    assert (ends["first_id"], ends["last_id"]) == (page.data[0].id, page.data[1].id)
    rest = await files.list(door.store, after=page.data[1].id, order="asc")
    assert (names(rest.data), rest.has_more) == (["gauge.md"], False)


async def test_lists_are_paginated_backwards(door: Door) -> None:
    files = door.client.vector_stores.files
    pump, valve, gauge = (await files.list(door.store, order="asc")).data
    page = await files.list(door.store, before=gauge.id, limit=1, order="asc")
    assert (names(page.data), page.has_more) == (["valve.md"], True)
    page = await files.list(door.store, before=gauge.id, order="asc")
    assert (names(page.data), page.has_more) == (["pump.md", "valve.md"], False)
    page = await files.list(door.store, before=pump.id)  # newest first: the others are before it
    assert names(page.data) == ["gauge.md", "valve.md"]
    assert (await files.list(door.store, before=pump.id, order="asc")).data == []
    assert valve.id not in (pump.id, gauge.id)


REFUSED_PAGES: list[tuple[Any, Any]] = [
    ({"after": "file-1"}, "after"),
    ({"before": str(uuid4())}, "before"),
    ({"after": str(uuid4()), "before": str(uuid4())}, "before"),
    ({"limit": 0}, "limit"),
    ({"limit": 101}, "limit"),
    ({"order": "up"}, "order"),
]


async def test_invalid_pagination_parameter_is_rejected(door: Door, subtests: pytest.Subtests) -> None:
    for parameters, param in REFUSED_PAGES:
        with subtests.test(msg=str(parameters)):
            for call in (
                door.client.vector_stores.list,
                lambda **p: door.client.vector_stores.files.list(door.store, **p),
            ):
                with pytest.raises(openai.BadRequestError) as caught:
                    await call(**parameters)
                assert caught.value.param == param


async def test_document_is_listed_retrieved_and_deleted_as_file(door: Door) -> None:
    files = door.client.vector_stores.files
    (pump, *_) = (await files.list(door.store, filter="completed", order="asc")).data
    assert [file async for file in files.list(door.store, filter="failed")] == []
    found = valid(await files.retrieve(pump.id, vector_store_id=door.store))
    assert (found.status, found.vector_store_id, found.last_error) == ("completed", door.store, None)
    assert found.usage_bytes == len(TEXTS["pump.md"].encode())
    assert found.attributes == {"year": 2024, "kind": "manual", "draft": False, "place.hall": "A"}
    content = await files.content(pump.id, vector_store_id="handbook")
    (part,) = [valid(part) async for part in content]
    assert (part.type, part.text) == ("text", TEXTS["pump.md"])
    assert (await files.poll(pump.id, vector_store_id=door.store)).id == pump.id
    deleted = valid(await files.delete(pump.id, vector_store_id=door.store))
    assert (deleted.id, deleted.deleted) == (pump.id, True)
    for call in (files.retrieve, files.content, files.delete):
        with pytest.raises(openai.NotFoundError):
            await call(pump.id, vector_store_id=door.store)
        with pytest.raises(openai.NotFoundError):
            await call("file-abc", vector_store_id=door.store)
    assert (await door.client.vector_stores.retrieve(door.store)).file_counts.completed == 2


# The package sends unknown fields unchanged; OpenAI's own ``filter`` is the status
async def test_files_are_filtered_by_attributes(door: Door) -> None:
    files = door.client.vector_stores.files

    async def listed(filters: Any, **more: Any) -> list[str]:
        extra = {"filters": json.dumps(filters)}
        return names([file async for file in files.list(door.store, order="asc", extra_query=extra, **more)])

    manual = {"type": "eq", "key": "kind", "value": "manual"}
    old = {"type": "lt", "key": "year", "value": 2022}
    assert await listed(manual) == ["pump.md", "valve.md"]
    assert await listed(manual, limit=1) == ["pump.md", "valve.md"]  # on every page
    assert await listed({"type": "and", "filters": [manual, old]}, filter="completed") == ["valve.md"]
    assert await listed({"type": "eq", "key": "year", "value": "2024"}) == []
    for wrong in ({"type": "near", "key": "year", "value": 1}, {"kind": "manual"}, [1]):
        with pytest.raises(openai.BadRequestError) as caught:
            await listed(wrong)
        assert str(caught.value.param).startswith("filters")


async def test_attaching_file_of_other_collection_is_rejected(door: Door) -> None:
    files = door.client.vector_stores.files
    (file, *_) = (await files.list(door.store)).data
    attached = valid(await files.create(door.store, file_id=file.id, chunking_strategy={"type": "auto"}))
    assert attached == file
    other = await door.client.vector_stores.create(name="other")
    for file_id, message in ((file.id, "vector store already"), ("file-1", "file-1")):
        with pytest.raises(openai.BadRequestError, match=message) as caught:
            await files.create(other.id, file_id=file_id)
        assert caught.value.param == "file_id"
    with pytest.raises(openai.NotFoundError):  # a document belongs to its own vector store only
        await files.retrieve(file.id, vector_store_id=other.id)


async def test_vector_store_of_other_tenant_is_inaccessible(
    app_url: str, make_tenant: Callable[[], str]
) -> None:
    alice, bob = make_tenant(), make_tenant()
    async with live_api(settings_for(app_url, [alice, bob])) as api:
        store = await fill(api, alice, "handbook")
        async with client_of(api, alice) as as_alice, client_of(api, bob) as as_bob:
            (file, *_) = (await as_alice.vector_stores.files.list(store)).data
            own = await as_bob.vector_stores.create(name="handbook")
            assert [s.id async for s in as_bob.vector_stores.list()] == [own.id]
            with pytest.raises(openai.NotFoundError):
                await as_bob.vector_stores.search(store, query="pump")
            assert (await as_bob.vector_stores.search("handbook", query="pump")).data == []
            with pytest.raises(openai.BadRequestError, match="does not exist"):
                await as_bob.vector_stores.files.create(own.id, file_id=file.id)
            with pytest.raises(openai.BadRequestError):  # not even as a cursor in a list
                await as_bob.vector_stores.files.list(own.id, after=file.id)
            assert len((await as_alice.vector_stores.files.list(store)).data) == 3


async def test_invalid_key_raises_authentication_error(door: Door) -> None:
    stranger = AsyncOpenAI(base_url=f"{door.api.url}/v1", api_key="wrong", max_retries=0)
    async with stranger:
        with pytest.raises(openai.AuthenticationError) as caught:
            await stranger.vector_stores.list()
    assert caught.value.code == "unauthenticated"
