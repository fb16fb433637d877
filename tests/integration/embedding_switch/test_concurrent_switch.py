"""A switch of the embedding model under concurrent queries, writers and workers, and its rate limit."""

import asyncio
from collections.abc import Callable, Sequence

import pytest
from psycopg.conninfo import make_conninfo

from tests.integration.embedding_switch.conftest import (
    MILL,
    NEW,
    OLD,
    FailingEmbedder,
    Room,
    make_room,
    passage,
)
from tests.support.vendors.hashing_embedder import HashingEmbedder
from vectorforge.db.connection import Database
from vectorforge.db.tenant_database import TenantDatabase
from vectorforge.embedding_switch.repo import SwitchState
from vectorforge.errors import (
    ConflictError,
)
from vectorforge.ingestion.embedding_backfill import EmbeddingBackfill
from vectorforge.types import Vector


async def test_query_in_flight_during_switch_is_reembedded(room: Room) -> None:
    await room.start()
    await room.fill()

    class Overtaken(FailingEmbedder):
        async def _call_api(self, texts: Sequence[str], model: str) -> Sequence[Vector]:
            vectors = await super()._call_api(texts, model)
            await room.switches.switch(room.collection.id)
            return vectors

    room.registry.register(Overtaken(name="old", dimension=OLD))
    assert await room.ask() == MILL
    assert (await room.switches.get(room.collection.id)).state is SwitchState.SWITCHED


async def test_document_in_flight_during_switch_is_reembedded(
    tenant_db: TenantDatabase, database: Database
) -> None:
    """Embedded by the old model, stored after the switch: equal lengths would hide it."""
    room = await make_room(tenant_db, database, new_dimension=OLD)
    await room.ingest("0.txt", "the boiler of house 0")

    class Overtaken(FailingEmbedder):
        meanwhile = True

        async def _call_api(self, texts: Sequence[str], model: str) -> Sequence[Vector]:
            vectors = await super()._call_api(texts, model)
            if self.meanwhile:
                self.meanwhile = False
                await room.start()
                await room.fill()
                await room.switches.switch(room.collection.id)
            return vectors

    room.registry.register(Overtaken(name="old", dimension=OLD))
    await room.ingest("7.txt", MILL)
    assert await room.vectors((await room.current()).space) == await room.passages()
    assert MILL in room.new.texts


async def test_vectors_of_outdated_writers_are_repaired_before_switch(room: Room) -> None:
    """The previous version retires chunks without regard to the switch, and adds them with one vector."""
    other = (await room.start()).other.space
    await room.fill()
    retired = (await room.passages()).pop()
    await room.db.execute(
        "WITH gone AS (DELETE FROM vectorforge.embeddings WHERE tenant_id = %(t)s AND space = %(s)s"
        " AND chunk_id = %(c)s) UPDATE vectorforge.chunks SET to_version = 2"
        " WHERE tenant_id = %(t)s AND id = %(c)s",
        {"t": room.db.tenant_id, "s": room.collection.space, "c": retired},
    )
    lacking = (await room.passages()).pop()
    await room.db.execute(
        "DELETE FROM vectorforge.embeddings WHERE tenant_id = %s AND space = %s AND chunk_id = %s",
        (room.db.tenant_id, other, lacking),
    )
    with pytest.raises(ConflictError, match="1 chunks"):
        await room.switches.switch(room.collection.id)
    await room.fill()
    await room.switches.switch(room.collection.id)
    assert await room.vectors(other) == await room.passages()


async def test_concurrent_workers_embed_no_chunk_twice(make_database: Callable[..., str]) -> None:
    async with Database(make_conninfo(make_database(), user="vectorforge_app"), pool_size=5) as database:
        room = await make_room(database.for_tenant("a"), database)
        for number in range(20):
            await room.ingest(f"{number}.txt", passage(number))
        await several_workers(room)


async def several_workers(room: Room) -> None:
    await room.start()

    async def work() -> None:
        while not (await room.switches.get(room.collection.id)).complete:
            await room.backfill.step()
            await asyncio.sleep(0.01)

    await asyncio.gather(*(work() for _ in range(4)))
    assert sorted(room.new.texts) == sorted(passage(number) for number in range(20))


async def test_killed_step_is_resumed_by_another_worker(room: Room) -> None:
    await room.start()
    claimed = EmbeddingBackfill(room.database, room.registry, batch=8, lease_s=0.2)
    room.registry.register(HashingEmbedder(name="new", dimension=NEW, delay_s=60))
    killed = asyncio.create_task(claimed.step())
    await asyncio.sleep(0.5)
    killed.cancel()
    await asyncio.gather(killed, return_exceptions=True)
    room.registry.register(room.new)
    await room.fill()
    assert (await room.switches.get(room.collection.id)).vectors == 20


async def test_locked_document_is_deferred_to_the_next_pass(room: Room) -> None:
    await room.start()
    held = "SELECT FROM vectorforge.documents WHERE tenant_id = %s AND source = '7.txt' FOR UPDATE"
    async with room.db.transaction() as connection:
        await connection.execute(held.encode(), (room.db.tenant_id,))
        for _ in range(4):
            await room.backfill.work_for(room.db.tenant_id, room.collection.id)
        found = await room.switches.get(room.collection.id)
        assert (found.vectors, found.complete) == (19, False)
    await room.fill()
    assert (await room.switches.get(room.collection.id)).vectors == 20


async def test_rate_limit_applies_across_processes(room: Room) -> None:
    """Eight chunks, then no worker continues for the rest of the time."""
    await room.start()
    limited = EmbeddingBackfill(room.database, room.registry, batch=8, per_minute=60)
    await limited.work_for(room.db.tenant_id, room.collection.id)
    pause_s = limited.take_pause_s()
    assert pause_s == pytest.approx(8, abs=2)  # minus the duration of the embedding
    assert limited.take_pause_s() is None
    held = await room.db.fetch_one(
        "SELECT extract(epoch FROM leased_until - now())::float8 AS s FROM vectorforge.embedding_switches"
        " WHERE tenant_id = %s",
        (room.db.tenant_id,),
    )
    assert held is not None
    assert held["s"] == pytest.approx(8, abs=2)
    assert (await room.switches.get(room.collection.id)).vectors == 8

    slow = EmbeddingBackfill(room.database, room.registry, batch=8, per_minute=3)
    await slow.work_for(room.db.tenant_id, room.collection.id)
    assert (await room.switches.get(room.collection.id)).vectors == 11  # at most one minute's budget


async def test_rate_limit_delays_no_other_work(make_database: Callable[..., str]) -> None:
    async with Database(make_conninfo(make_database(), user="vectorforge_app"), pool_size=5) as database:
        room = await make_room(database.for_tenant("a"), database)
        other = await make_room(database.for_tenant("b"), database)
        for one in (room, other):
            for number in range(10):
                await one.ingest(f"{number}.txt", passage(number))
            await one.start()
        limited = EmbeddingBackfill(database, room.registry, batch=4, per_minute=4)
        assert [await limited.step() for _ in range(3)] == [True, True, False]  # one batch of each tenant
        assert len(room.new.texts) + len(other.new.texts) == 8
