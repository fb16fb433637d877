"""``client.files`` and the files of vector stores with the unmodified ``openai`` package."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any
from uuid import UUID

import openai
import pytest

from tests.integration.openai_vector_stores.conftest import Door, client_of, fill, valid
from tests.support.http.live_api import LiveApi, live_api, settings_for
from vectorforge.api.middleware.guards import JSON_BODY_BYTES
from vectorforge.config import IngestionSettings

PRESS = ("press.md", b"# Press\n\nThe press is oiled with seven drops on Mondays.\n")


@pytest.fixture
async def empty(app_url: str, make_tenant: Callable[[], str]) -> AsyncIterator[Door]:
    tenant = make_tenant()
    settings = settings_for(app_url, [tenant], ingestion=IngestionSettings(max_document_bytes=2_000))
    async with live_api(settings) as api, client_of(api, tenant) as client:
        yield Door(api, client, (await client.vector_stores.create(name="manuals")).id)


async def test_uploaded_file_becomes_document_with_its_id(empty: Door) -> None:
    client = empty.client
    uploaded = valid(await client.files.create(file=PRESS, purpose="user_data"))
    assert uploaded.id.startswith("file-")
    assert (uploaded.bytes, uploaded.filename, uploaded.purpose) == (len(PRESS[1]), "press.md", "user_data")
    assert uploaded.expires_at - uploaded.created_at == 24 * 3600
    assert (await client.files.content(uploaded.id)).read() == PRESS[1]
    assert valid(await client.files.wait_for_processing(uploaded.id)).status == "processed"

    attached = valid(
        await client.vector_stores.files.create_and_poll(
            uploaded.id, vector_store_id=empty.store, attributes={"year": 2024, "place.hall": "B"}
        )
    )
    assert (attached.id, attached.status, attached.last_error) == (uploaded.id, "completed", None)
    assert attached.attributes == {"year": 2024, "place.hall": "B"}
    (found,) = (await client.vector_stores.search(empty.store, query="How many drops of oil?")).data
    assert (found.file_id, found.filename) == (uploaded.id, "press.md")
    nested: Any = {"type": "eq", "key": "place.hall", "value": "B"}
    assert (await client.vector_stores.search(empty.store, query="oil", filters=nested)).data
    kept = valid(await client.files.retrieve(uploaded.id))
    assert (kept.expires_at, kept.bytes, kept.purpose) == (None, len(PRESS[1]), "user_data")
    assert (await client.files.content(uploaded.id)).read() == PRESS[1]  # the document's original


async def test_ids_are_accepted_with_and_without_prefix(empty: Door) -> None:
    stores, files = empty.client.vector_stores, empty.client.files
    file = await stores.files.upload_and_poll(vector_store_id=empty.store, file=PRESS)
    store_id, file_id = UUID(empty.store.removeprefix("vs_")), UUID(file.id.removeprefix("file-"))
    assert empty.store == f"vs_{store_id.hex}"
    for store in (empty.store, str(store_id), store_id.hex, "manuals"):
        for one in (file.id, str(file_id), file_id.hex):
            assert (await stores.files.retrieve(one, vector_store_id=store)).id == file.id
            assert (await files.retrieve(one)).id == file.id
        assert (await stores.retrieve(store)).id == empty.store
    assert [f.id async for f in stores.files.list(empty.store, after=str(file_id))] == []


async def test_file_may_be_larger_than_a_request_without_documents(
    app_url: str, make_tenant: Callable[[], str]
) -> None:
    tenant, content = make_tenant(), b"x" * (JSON_BODY_BYTES + 1)
    async with live_api(settings_for(app_url, [tenant])) as api, client_of(api, tenant) as client:
        uploaded = await client.files.create(file=("large.txt", content), purpose="user_data")
        assert uploaded.bytes == len(content)
        await client.files.delete(uploaded.id)


async def test_file_that_cannot_be_read_fails_with_its_reason(empty: Door) -> None:
    stores = empty.client.vector_stores
    broken = valid(
        await stores.files.upload_and_poll(vector_store_id=empty.store, file=("a.pdf", b"%PDF-1.7 no"))
    )
    assert (broken.status, broken.last_error.code) == ("failed", "invalid_file")
    assert broken.last_error.message
    other = await stores.files.upload_and_poll(vector_store_id=empty.store, file=("a.bin", b"\x7fELF\0\0"))
    assert other.last_error is not None
    assert other.last_error.code == "unsupported_file"
    counts = (await stores.retrieve(empty.store)).file_counts
    assert (counts.failed, counts.total) == (2, 2)
    assert [f.id async for f in stores.files.list(empty.store, filter="failed", order="asc")] == [
        broken.id,
        other.id,
    ]
    assert (await empty.client.files.retrieve(broken.id)).status == "error"
    with pytest.raises(openai.NotFoundError):
        await empty.client.files.content(broken.id)
    with pytest.raises(openai.ConflictError):
        await stores.files.update(broken.id, vector_store_id=empty.store, attributes={"a": 1})
    await stores.files.delete(broken.id, vector_store_id=empty.store)
    await empty.client.files.delete(other.id)
    assert (await stores.retrieve(empty.store)).file_counts.total == 0
    with pytest.raises(openai.NotFoundError):
        await empty.client.files.retrieve(broken.id)


REFUSED: list[tuple[Any, dict[str, Any], str]] = [
    (PRESS, {"purpose": "fine-tune"}, "purpose"),
    (PRESS, {"expires_after": {"anchor": "created_at", "seconds": 3600}}, "expires_after[anchor]"),
    (("lines.jsonl", b'{"text": "x"}\n'), {}, "file"),
    (("all.zip", b"PK\x03\x04"), {}, "file"),
    ((" ", b"x"), {}, "file"),
]


async def test_unsupported_upload_is_rejected_by_name(empty: Door, subtests: pytest.Subtests) -> None:
    for file, options, param in REFUSED:
        with subtests.test(msg=param):
            with pytest.raises(openai.BadRequestError) as caught:
                await empty.client.files.create(**{"file": file, "purpose": "assistants", **options})
            assert caught.value.param == param
    with pytest.raises(openai.APIStatusError) as large:
        await empty.client.files.create(file=("x.txt", b"x" * 2_001), purpose="assistants")
    assert large.value.status_code == 413
    assert [file async for file in empty.client.files.list()] == []


async def test_files_list_has_uploads_and_documents(door: Door) -> None:
    uploaded = await door.client.files.create(file=PRESS, purpose="user_data")
    listed = [file async for file in door.client.files.list(limit=2)]
    names = [file.filename for file in listed]
    assert names == ["press.md", "gauge.md", "valve.md", "pump.md"]
    assert listed[0].id == uploaded.id
    assert [f.filename async for f in door.client.files.list(purpose="user_data")] == ["press.md"]
    assert valid(listed[1]).purpose == "assistants"
    deleted = valid(await door.client.files.delete(listed[1].id))
    assert (deleted.id, deleted.deleted) == (listed[1].id, True)
    await door.client.files.delete(uploaded.id)
    assert len([file async for file in door.client.files.list()]) == 2


async def test_file_is_attached_to_one_store_once(empty: Door) -> None:
    stores = empty.client.vector_stores
    file = await stores.files.upload_and_poll(vector_store_id=empty.store, file=PRESS)
    assert (await stores.files.create(empty.store, file_id=file.id)).id == file.id
    other = await stores.create(name="other")
    for file_id, message in ((file.id, "already"), ("file-abc", "does not exist")):
        with pytest.raises(openai.BadRequestError, match=message) as caught:
            await stores.files.create(other.id, file_id=file_id)
        assert caught.value.param == "file_id"
        with pytest.raises(openai.BadRequestError) as caught:
            await stores.create(name="third", file_ids=[file_id])
        assert caught.value.param == "file_ids"
    with pytest.raises(openai.BadRequestError, match="at least 1 character"):
        await stores.create(name="fourth", file_ids=[""])
    assert sorted([store.name async for store in stores.list()]) == ["manuals", "other"]
    uploaded = await empty.client.files.create(file=PRESS, purpose="assistants")
    made = await stores.create(name="filled", file_ids=[uploaded.id])
    assert made.file_counts.total == 1
    assert (await stores.files.poll(uploaded.id, vector_store_id=made.id)).status == "completed"


async def test_files_of_same_name_are_documents_of_their_own(empty: Door) -> None:
    stores = empty.client.vector_stores
    texts = [b"The first press is red.", b"The second press is green.", b"The third press is blue."]

    async def upload(text: bytes) -> str:
        file = await stores.files.upload_and_poll(vector_store_id=empty.store, file=("press.md", text))
        return file.id

    first = await upload(texts[0])
    others = await asyncio.gather(*map(upload, texts[1:]))
    sources = {f.id: f.to_dict()["filename"] async for f in stores.files.list(empty.store)}
    assert sources == {first: "press.md", **{id_: f"{id_}/press.md" for id_ in others}}
    content = await stores.files.content(others[1], vector_store_id=empty.store)
    assert [part.text async for part in content] == [texts[2].decode()]
    assert (await empty.client.files.retrieve(others[0])).filename == "press.md"


async def test_attributes_are_replaced_and_filter_at_once(door: Door) -> None:
    files, search = door.client.vector_stores.files, door.client.vector_stores.search
    (pump, *_) = (await files.list(door.store, order="asc")).data
    changed: Any = {"year": 2030, "place.hall": "C"}
    updated = valid(await files.update(pump.id, vector_store_id=door.store, attributes=changed))
    assert updated.attributes == changed

    async def found(key: str, value: Any) -> list[str]:
        page = await search(door.store, query="oil", filters={"type": "eq", "key": key, "value": value})
        return [result.filename for result in page.data]

    assert await found("year", 2030) == await found("place.hall", "C") == ["pump.md"]
    assert await found("place.hall", "A") == []
    assert await found("kind", "manual") == ["valve.md"]
    assert (await files.update(pump.id, vector_store_id=door.store, attributes=None)).attributes == {}
    for wrong in ({"a" * 65: 1}, {"a": "x" * 513}, {str(n): n for n in range(17)}, {"a": 1, "a.b": 2}):
        with pytest.raises(openai.BadRequestError) as caught:
            await files.update(pump.id, vector_store_id=door.store, attributes=wrong)  # type: ignore[arg-type]
        assert str(caught.value.param).startswith("attributes")
    for value in ("x" * 513, [1]):
        with pytest.raises(openai.BadRequestError, match="at most 512 characters, a number") as caught:
            await files.update(pump.id, vector_store_id=door.store, attributes={"a": value})  # type: ignore[dict-item]
        assert caught.value.param == "attributes.a"


async def test_file_of_other_tenant_is_inaccessible(app_url: str, make_tenant: Callable[[], str]) -> None:
    alice, bob = make_tenant(), make_tenant()
    async with live_api(settings_for(app_url, [alice, bob])) as api:
        store = await fill(api, alice, "handbook")
        async with client_of(api, alice) as as_alice, client_of(api, bob) as as_bob:
            waiting = await as_alice.files.create(file=PRESS, purpose="assistants")
            own = await as_bob.vector_stores.create(name="own")
            files = [file.id async for file in as_alice.files.list()]
            assert len(files) == 4
            for file_id in files:
                await _refused(as_bob, api, own.id, store, file_id)
            assert [file async for file in as_bob.files.list()] == []
            assert [file.id async for file in as_alice.files.list()] == files
            assert (await as_alice.files.content(waiting.id)).read() == PRESS[1]


async def _refused(client: openai.AsyncOpenAI, api: LiveApi, own: str, store: str, file_id: str) -> None:
    in_store = client.vector_stores.files
    for call in (client.files.retrieve, client.files.content, client.files.delete):
        with pytest.raises(openai.NotFoundError):
            await call(file_id)
    for target in (own, store):
        for one in (in_store.retrieve, in_store.content, in_store.delete):
            with pytest.raises(openai.NotFoundError):
                await one(file_id, vector_store_id=target)
        with pytest.raises(openai.NotFoundError):
            await in_store.update(file_id, vector_store_id=target, attributes={"a": 1})
    with pytest.raises(openai.BadRequestError, match="does not exist"):
        await in_store.create(own, file_id=file_id)
    with pytest.raises(openai.BadRequestError, match="does not exist"):
        await client.vector_stores.file_batches.create(own, file_ids=[file_id])
    with pytest.raises(openai.BadRequestError):
        await client.files.list(after=file_id)
