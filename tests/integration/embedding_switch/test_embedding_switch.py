"""A collection's embedding model changes during queries and writes, unnoticed by clients."""

import psycopg
import pytest

from tests.integration.embedding_switch.conftest import MILL, NEW, OLD, Room, make_room, passage
from vectorforge.db.connection import Database
from vectorforge.db.repositories.collection_repo import CollectionRepository
from vectorforge.db.tenant_database import TenantDatabase
from vectorforge.embedding_switch.repo import SwitchState
from vectorforge.errors import (
    ConflictError,
    EmbeddingModelChangedError,
    EmbeddingRateLimitError,
    NotFoundError,
)
from vectorforge.ingestion.types import DocumentStatus
from vectorforge.local.postgres import EmbeddedPostgres
from vectorforge.types import DistanceMetric


async def test_embedding_model_is_switched_and_rolled_back(room: Room) -> None:
    before = room.collection.space
    started = await room.start()
    assert started.state is SwitchState.FILLING
    assert (started.passages, started.vectors) == (20, 0)
    await room.fill()
    ready = await room.switches.get(room.collection.id)
    assert (ready.state, ready.vectors) == (SwitchState.READY, 20)
    calls_of_old = len(room.old.texts)

    switched = await room.switches.switch(room.collection.id)
    assert switched.state is SwitchState.SWITCHED
    assert switched.other.provider == "old"
    current = await room.current()
    assert (current.embedding_provider, current.dimension) == ("new", NEW)
    assert current.space == started.other.space
    assert current.data_version > room.collection.data_version  # answers of the old model are not reused
    assert await room.ask() == MILL
    assert len(room.old.texts) == calls_of_old

    await room.switches.rollback(room.collection.id)  # nothing is embedded for it
    assert await room.ask() == MILL
    assert len(room.old.texts) == calls_of_old + 1
    assert (await room.current()).space == before
    await room.switches.switch(room.collection.id)
    await room.switches.finish(room.collection.id)
    await room.fill()
    assert await room.switches.find(room.collection.id) is None
    assert await room.vectors(before) == set()
    assert await room.vectors(current.space) == await room.passages()
    assert await room.ask() == MILL


async def test_writers_store_vectors_of_both_models(room: Room) -> None:
    other = (await room.start()).other.space
    await room.fill()
    calls_of_new = len(room.new.texts)
    await room.ingest("new.txt", "the boiler of house 100")
    await room.ingest("3.txt", "the chimney of house 3")  # replaces a chunk
    await room.ingest("4.txt", "the boiler of house 4")  # changes nothing
    assert len(room.new.texts) == calls_of_new + 2
    found = await room.switches.get(room.collection.id)
    assert found.state is SwitchState.READY
    passages = await room.passages()
    assert await room.vectors(other) == await room.vectors(room.collection.space) == passages
    await room.switches.switch(room.collection.id)
    await room.ingest("newer.txt", "a well in the yard")
    assert len(await room.vectors(room.collection.space)) == len(passages) + 1  # the rollback would find it
    await room.switches.rollback(room.collection.id)
    assert await room.ask("the well in the yard") == "a well in the yard"


async def test_unavailable_new_model_does_not_block_writers(room: Room) -> None:
    await room.start()
    await room.fill()
    room.new.fails = True
    await room.ingest("new.txt", "the boiler of house 100")
    assert (await room.switches.get(room.collection.id)).state is SwitchState.FILLING
    with pytest.raises(ConflictError, match="1 chunks have no vector"):
        await room.switches.switch(room.collection.id)
    await room.backfill.work_for(room.db.tenant_id, room.collection.id)
    waiting = await room.switches.get(room.collection.id)
    assert (waiting.failures, waiting.error_code) == (1, EmbeddingRateLimitError.code)
    room.new.fails = False
    await room.fill()
    recovered = await room.switches.get(room.collection.id)
    assert (recovered.state, recovered.failures, recovered.error_code) == (SwitchState.READY, 0, None)
    await room.switches.switch(room.collection.id)


async def test_other_model_of_same_dimension_uses_its_own_space(
    tenant_db: TenantDatabase, database: Database, postgres_server: EmbeddedPostgres
) -> None:
    room = await make_room(tenant_db, database, new_dimension=OLD)
    await room.ingest("7.txt", MILL)
    first = await room.start()
    assert first.other.space == f"{room.collection.space}_alt"
    await room.fill()
    with psycopg.connect(postgres_server.migrator_url) as connection:  # visible to index builders in advance
        sizes = connection.execute(
            "SELECT largest FROM vectorforge.embedding_space_sizes() WHERE space = %s", (first.other.space,)
        )
        assert sizes.fetchone() is not None
    await room.switches.switch(room.collection.id)
    await room.switches.finish(room.collection.id)
    await room.fill()
    back = await room.start(room.old)
    assert back.other.space == room.collection.space
    await room.fill()
    await room.switches.switch(room.collection.id)
    assert await room.ask() == MILL


async def test_search_in_other_vector_space_is_rejected(room: Room) -> None:
    with pytest.raises(EmbeddingModelChangedError):
        await room.store.search(
            query_vector=[1.0] * OLD,
            top_k=1,
            collection_id=room.collection.id,
            metric=DistanceMetric.COSINE,
            space="cosine_64_alt",
        )


async def test_steps_in_wrong_state_are_rejected(room: Room) -> None:
    steps = (room.switches.switch, room.switches.rollback, room.switches.finish, room.switches.cancel)
    for step in steps:
        with pytest.raises(NotFoundError):
            await step(room.collection.id)
    await room.start()
    with pytest.raises(ConflictError, match="already open"):
        await room.start()
    for step in (room.switches.rollback, room.switches.finish):
        with pytest.raises(ConflictError, match="not switched"):
            await step(room.collection.id)
    with pytest.raises(ConflictError, match="20 chunks"):
        await room.switches.switch(room.collection.id)
    await room.fill()
    await room.switches.switch(room.collection.id)
    for step in (room.switches.switch, room.switches.cancel):
        with pytest.raises(ConflictError, match="switched already"):
            await step(room.collection.id)


async def test_cancelled_switch_leaves_no_vectors(room: Room) -> None:
    other = (await room.start()).other.space
    await room.fill()
    await room.switches.cancel(room.collection.id)
    assert (await room.switches.get(room.collection.id)).state is SwitchState.REMOVING
    await room.ingest("new.txt", "the boiler of house 100")
    await room.fill()
    assert await room.switches.find(room.collection.id) is None
    assert await room.vectors(other) == set()
    assert await room.vectors(room.collection.space) == await room.passages()
    await room.start()  # and another may begin


async def test_deleted_collection_deletes_its_switch(room: Room) -> None:
    await room.start()
    await room.fill()
    await CollectionRepository(room.db).delete(room.collection.id)
    await room.backfill.work_for(room.db.tenant_id, room.collection.id)
    for table in ("embedding_switches", "embeddings"):
        row = await room.db.fetch_one(
            f"SELECT count(*) AS n FROM vectorforge.{table} WHERE tenant_id = %s", (room.db.tenant_id,)
        )
        assert row == {"n": 0}


async def test_reingested_documents_after_switch_are_not_reembedded(room: Room) -> None:
    await room.start()
    await room.fill()
    await room.switches.switch(room.collection.id)
    await room.switches.finish(room.collection.id)
    await room.fill()
    embedded = len(room.new.texts)
    again = await room.ingest("5.txt", passage(5))
    assert again.status is DocumentStatus.UNCHANGED
    await room.ingest("6.txt", f"{passage(6)}\n\n{'And a garden behind it, with a pear tree. ' * 3}")
    await room.ingest("6.txt", passage(6))
    assert len([text for text in room.new.texts[embedded:] if text == passage(6)]) <= 1
    assert len(room.old.texts) == 20
