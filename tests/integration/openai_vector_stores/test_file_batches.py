"""Batches of files, metadata of vector stores and the lifetime of uploaded files."""

from collections.abc import Callable
from typing import Any
from uuid import UUID

import openai
import pytest

from tests.integration.openai_vector_stores.conftest import Door, client_of, fill, valid
from tests.support.http.live_api import live_api, settings_for
from vectorforge.db.repositories.file_repo import MAX_WAITING_FILES
from vectorforge.db.repositories.job_repo import JobDispatcher
from vectorforge.db.tenant_database import TenantDatabase


def database_of(door: Door) -> TenantDatabase:
    return door.api.application.database.for_tenant(door.client.api_key.removeprefix("key-of-"))


def page(number: int) -> Any:
    return (f"page{number}.md", f"Page {number} of the manual has the number {number}.".encode())


async def test_batch_is_uploaded_and_counted(door: Door) -> None:
    batches = door.client.vector_stores.file_batches
    unreadable: Any = ("broken.pdf", b"%PDF-1.7 no")
    batch = valid(await batches.upload_and_poll(door.store, files=[page(1), page(2), unreadable]))
    assert batch.id.startswith("vsfb_")
    counts = batch.file_counts
    assert (batch.status, counts.completed, counts.failed, counts.total) == ("completed", 2, 1, 3)
    assert valid(await batches.retrieve(batch.id, vector_store_id="handbook")) == batch
    listed = [file async for file in batches.list_files(batch.id, vector_store_id=door.store, limit=1)]
    assert sorted(str(file.to_dict()["filename"]) for file in listed) == [
        "broken.pdf",
        "page1.md",
        "page2.md",
    ]
    failed = batches.list_files(batch.id, vector_store_id=door.store, filter="failed")
    assert [file.to_dict()["filename"] async for file in failed] == ["broken.pdf"]
    store = await door.client.vector_stores.retrieve(door.store)
    assert (store.file_counts.completed, store.file_counts.failed) == (5, 1)
    contents = await database_of(door).fetch_all("SELECT content FROM vectorforge.uploaded_files")
    assert [row["content"] for row in contents] == [None] * 3
    for id_ in ("vsfb_x", f"vsfb_{'0' * 32}"):
        with pytest.raises(openai.NotFoundError):
            await batches.retrieve(id_, vector_store_id=door.store)


async def test_batch_files_have_attributes_of_their_own(door: Door) -> None:
    client = door.client
    ids = [(await client.files.create(file=page(n), purpose="assistants")).id for n in (1, 2, 3)]
    batches = client.vector_stores.file_batches
    files: Any = [{"file_id": ids[0], "attributes": {"n": 1}}, {"file_id": ids[1]}]
    await batches.poll((await batches.create(door.store, files=files)).id, vector_store_id=door.store)
    batch = await batches.create_and_poll(door.store, file_ids=ids[2:], extra_body={"attributes": {"n": 3}})
    assert batch.file_counts.completed == 1
    attributes = [
        (await client.vector_stores.files.retrieve(id_, vector_store_id=door.store)).attributes for id_ in ids
    ]
    assert attributes == [{"n": 1}, {}, {"n": 3}]
    for wrong in ({}, {"file_ids": ids, "files": files}, {"file_ids": [*ids, "file-1"]}):
        with pytest.raises(openai.BadRequestError):
            await batches.create(door.store, **wrong)


async def test_cancelled_batch_ingests_nothing_more(door: Door) -> None:
    worker = door.api.application.background.worker
    await worker.stop()
    client, batches = door.client, door.client.vector_stores.file_batches
    ids = [(await client.files.create(file=page(n), purpose="assistants")).id for n in (1, 2)]
    batch = await batches.create(door.store, file_ids=ids)
    assert (batch.status, batch.file_counts.in_progress) == ("in_progress", 2)
    waiting = await client.vector_stores.files.retrieve(ids[0], vector_store_id=door.store)
    assert waiting.status == "in_progress"
    await client.vector_stores.files.delete(ids[0], vector_store_id=door.store)
    cancelled = valid(await batches.cancel(batch.id, vector_store_id=door.store))
    assert (cancelled.status, cancelled.file_counts.cancelled, cancelled.file_counts.total) == (
        "cancelled",
        1,
        1,
    )
    worker.start()
    await client.vector_stores.files.upload_and_poll(vector_store_id=door.store, file=page(3))
    again = await batches.retrieve(batch.id, vector_store_id=door.store)
    assert (again.status, again.file_counts.completed) == ("cancelled", 0)
    file = valid(await client.vector_stores.files.retrieve(ids[1], vector_store_id=door.store))
    assert (file.status, file.last_error) == ("cancelled", None)
    counts = (await client.vector_stores.retrieve(door.store)).file_counts
    assert (counts.completed, counts.cancelled, counts.failed) == (4, 1, 0)


async def test_store_name_and_metadata_are_updated(door: Door) -> None:
    stores = door.client.vector_stores
    made = valid(await stores.create(name="press", metadata={"team": "A"}))
    assert made.metadata == {"team": "A"}
    renamed = valid(await stores.update(made.id, name="print", metadata={"floor": "2"}))
    assert (renamed.name, renamed.metadata) == ("print", {"floor": "2"})
    assert (await stores.update("print", name="print")).metadata == {"floor": "2"}
    assert [s.metadata async for s in stores.list()] == [{"floor": "2"}, {}]
    with pytest.raises(openai.ConflictError):
        await stores.update(made.id, name="handbook")
    with pytest.raises(openai.NotFoundError):
        await stores.retrieve("press")
    refused: list[tuple[str, Any]] = [
        ("metadata", {str(n): "x" for n in range(17)}),
        ("metadata", {"team": "x" * 513}),
        ("metadata", {"t" * 65: "x"}),
        ("expires_after", {"anchor": "last_active_at", "days": 1}),
        ("name", ""),
    ]
    for field, value in refused:
        with pytest.raises(openai.BadRequestError) as caught:
            await stores.update(made.id, **{field: value})
        assert str(caught.value.param).startswith(field)


async def test_batch_and_store_of_other_tenant_are_inaccessible(
    app_url: str, make_tenant: Callable[[], str]
) -> None:
    alice, bob = make_tenant(), make_tenant()
    async with live_api(settings_for(app_url, [alice, bob])) as api:
        store = await fill(api, alice, "handbook")
        async with client_of(api, alice) as as_alice, client_of(api, bob) as as_bob:
            batch = await as_alice.vector_stores.file_batches.upload_and_poll(store, files=[page(1)])
            own = (await as_bob.vector_stores.create(name="own")).id
            batches = as_bob.vector_stores.file_batches
            for target in (own, store):
                for call in (batches.retrieve, batches.cancel, batches.list_files):
                    with pytest.raises(openai.NotFoundError):
                        await call(batch.id, vector_store_id=target)
            with pytest.raises(openai.NotFoundError):
                await as_bob.vector_stores.update(store, name="mine")
            assert (await as_alice.vector_stores.retrieve(store)).name == "handbook"


async def test_expired_file_is_gone_and_deleted(door: Door) -> None:
    client, database = door.client, database_of(door)
    file = await client.files.create(file=page(1), purpose="assistants")
    fresh = await client.files.create(file=page(2), purpose="assistants")
    await database.execute(
        "UPDATE vectorforge.uploaded_files SET expires_at = now() - interval '1 s' "
        "WHERE tenant_id = %(tenant_id)s AND filename = 'page1.md'",
        {},
    )
    with pytest.raises(openai.NotFoundError):
        await client.files.retrieve(file.id)
    with pytest.raises(openai.BadRequestError):
        await client.vector_stores.files.create(door.store, file_id=file.id)
    await JobDispatcher(door.api.application.database).delete_expired_files()
    rows = await database.fetch_all("SELECT filename FROM vectorforge.uploaded_files")
    assert [row["filename"] for row in rows] == ["page2.md"]
    assert (await client.files.retrieve(fresh.id)).id == fresh.id


async def test_waiting_files_of_tenant_are_limited(door: Door) -> None:
    await door.client.files.create(file=page(1), purpose="assistants")
    await database_of(door).execute(
        "INSERT INTO vectorforge.uploaded_files (tenant_id, id, filename, purpose, size_bytes, content, "
        "expires_at) SELECT f.tenant_id, gen_random_uuid(), 'x', 'assistants', 1, 'x', f.expires_at "
        "FROM vectorforge.uploaded_files AS f, generate_series(2, %(most)s) WHERE f.filename = 'page1.md'",
        {"most": MAX_WAITING_FILES},
    )
    with pytest.raises(openai.ConflictError, match="At most 1,000 files"):
        await door.client.files.create(file=page(2), purpose="assistants")


async def test_erased_tenant_has_no_files(door: Door) -> None:
    client = door.client
    await client.files.create(file=page(1), purpose="assistants")
    await client.vector_stores.files.upload_and_poll(vector_store_id=door.store, file=page(2))
    tenant = client.api_key.removeprefix("key-of-")
    async with door.api.client(tenant) as native:
        erased = (await native.delete("/v1/tenant", params={"confirm": tenant})).json()
    assert (erased["status"], erased["erased"]["uploaded_files"]) == ("done", 2)
    assert [file async for file in client.files.list()] == []


async def test_deleted_store_takes_its_files_along(door: Door) -> None:
    client = door.client
    file = await client.vector_stores.files.upload_and_poll(vector_store_id=door.store, file=page(2))
    broken: Any = ("broken.pdf", b"%PDF-1.7 no")
    failed = await client.vector_stores.files.upload_and_poll(vector_store_id=door.store, file=broken)
    waiting = await client.files.create(file=page(1), purpose="assistants")
    await client.vector_stores.delete(door.store)
    for id_ in (file.id, failed.id):
        with pytest.raises(openai.NotFoundError):
            await client.files.retrieve(id_)
    assert [one.id async for one in client.files.list()] == [waiting.id]


async def test_file_of_deleted_document_does_not_exist(door: Door) -> None:
    client, path = door.client, "/v1/collections/handbook/documents/delete"
    upload = client.vector_stores.files.upload_and_poll
    files = [await upload(vector_store_id=door.store, file=page(number)) for number in (1, 2)]
    erased, deleted = files
    await client.vector_stores.files.update(deleted.id, vector_store_id=door.store, attributes={"n": 2})
    async with door.api.client(client.api_key.removeprefix("key-of-")) as native:
        document = UUID(erased.id.removeprefix("file-"))
        certificate = (await native.delete(f"/v1/documents/{document}")).json()
        found = (await native.post(path, json={"filters": {"n": 2}})).json()
    assert (certificate["erased"]["uploaded_files"], found["deleted"]) == (1, 1)
    for file in files:
        with pytest.raises(openai.NotFoundError):
            await client.files.retrieve(file.id)
        with pytest.raises(openai.NotFoundError):
            await client.vector_stores.files.retrieve(file.id, vector_store_id=door.store)
    assert (await client.vector_stores.retrieve(door.store)).file_counts.total == 3
