"""A collection's embedding model is changed while it is asked and written, and nobody notices."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from uuid import UUID

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from tests.support.vendors.hashing_embedder import HashingEmbedder
from vectorforge.config import IngestionSettings
from vectorforge.db.connection import Database
from vectorforge.db.repositories.collection_repo import CollectionRepository
from vectorforge.db.repositories.document_repo import DocumentRepository
from vectorforge.db.repositories.embedding_space_repo import EmbeddingModelRepository
from vectorforge.db.tenant_database import TenantDatabase
from vectorforge.embedding.registry import EmbeddingProviderRegistry
from vectorforge.embedding_switch.repo import EmbeddingSwitchRepository
from vectorforge.embedding_switch.types import EmbeddingSwitch, SwitchState
from vectorforge.errors import (
    ConflictError,
    EmbeddingModelChangedError,
    EmbeddingRateLimitError,
    NotFoundError,
)
from vectorforge.ingestion.embedding_backfill import EmbeddingBackfill
from vectorforge.ingestion.pipeline import IngestionPipeline
from vectorforge.ingestion.types import DocumentResult, DocumentStatus
from vectorforge.local.postgres import EmbeddedPostgres
from vectorforge.retriever.dense import DenseRetriever
from vectorforge.types import Collection, DistanceMetric, Vector
from vectorforge.vectorstore.pgvector import PgVectorStore

OLD, NEW = 64, 96
MILL = "a chimney beside the mill by the river"
SETTINGS = IngestionSettings(chunk_size_chars=100, chunk_overlap_chars=0)


class FailingEmbedder(HashingEmbedder):
    """Refuses while ``fails`` is set."""

    fails = False

    async def _call_api(self, texts: Sequence[str], model: str) -> Sequence[Vector]:
        if self.fails:
            raise EmbeddingRateLimitError
        return await super()._call_api(texts, model)


@dataclass
class Room:
    """A tenant with a collection embedded by "old", and a "new" embedder to change to."""

    database: Database
    db: TenantDatabase
    collection: Collection
    old: FailingEmbedder
    new: FailingEmbedder

    def __post_init__(self) -> None:
        self.registry = EmbeddingProviderRegistry()
        for embedder in (self.old, self.new):
            self.registry.register(embedder)
        self.switches = EmbeddingSwitchRepository(self.db)
        self.store = PgVectorStore(self.db)
        self.pipeline = IngestionPipeline(
            self.store,
            DocumentRepository(self.db),
            self.registry,
            SETTINGS,
            models=EmbeddingModelRepository(self.db),
        )
        self.retriever = DenseRetriever(
            self.registry, self.store, CollectionRepository(self.db), preprocess=str
        )

    @property
    def backfill(self) -> EmbeddingBackfill:
        return EmbeddingBackfill(self.database, self.registry, batch=8)

    async def ingest(self, source: str, text: str) -> DocumentResult:
        current = await self.current()
        [result] = await self.pipeline.ingest_bytes(current, text.encode(), source)
        assert result.status is not DocumentStatus.FAILED, result.error
        return result

    async def current(self) -> Collection:
        found = await CollectionRepository(self.db).find_by_id(self.collection.id)
        assert found is not None
        return found

    async def start(self, embedder: HashingEmbedder | None = None) -> EmbeddingSwitch:
        embedder = embedder or self.new
        return await self.switches.start(
            self.collection.id,
            provider=embedder.provider_name(),
            model=embedder.default_model,
            dimension=embedder.dimension() or 0,
            query_prefix="",
            document_prefix="",
        )

    async def fill(self) -> None:
        """Work for this collection only: the database is shared with the tests beside."""
        for _ in range(200):
            found = await self.switches.find(self.collection.id)
            if found is None or (found.state is not SwitchState.REMOVING and found.complete):
                return
            await self.backfill.work_for(self.db.tenant_id, self.collection.id)
        raise AssertionError("the backfill comes to no end")

    async def vectors(self, space: str) -> set[UUID]:
        """Passages with a vector in a space."""
        rows = await self.db.fetch_all(
            "SELECT chunk_id FROM vectorforge.embeddings WHERE tenant_id = %s AND space = %s",
            (self.db.tenant_id, space),
        )
        return {row["chunk_id"] for row in rows}

    async def passages(self) -> set[UUID]:
        rows = await self.db.fetch_all(
            "SELECT id FROM vectorforge.chunks WHERE tenant_id = %s AND to_version IS NULL",
            (self.db.tenant_id,),
        )
        return {row["id"] for row in rows}

    async def ask(self, text: str = MILL) -> str:
        found = await self.retriever.retrieve(text, self.collection.id, 1, min_score=None)
        return found[0].chunk.text


async def make_room(db: TenantDatabase, database: Database, new_dimension: int = NEW) -> Room:
    old = FailingEmbedder(name="old", dimension=OLD)
    new = FailingEmbedder(name="new", dimension=new_dimension)
    collection = await CollectionRepository(db).create(
        "houses",
        embedding_provider="old",
        embedding_model=old.default_model,
        dimension=OLD,
        distance_metric=DistanceMetric.COSINE,
    )
    return Room(database, db, collection, old, new)


def passage(number: int) -> str:
    return MILL if number == 7 else f"the boiler of house {number}"


@pytest.fixture
async def room(tenant_db: TenantDatabase, database: Database) -> Room:
    room = await make_room(tenant_db, database)
    for number in range(20):
        await room.ingest(f"{number}.txt", passage(number))
    return room


async def test_embedding_model_is_switched_and_rolled_back(room: Room) -> None:
    before = room.collection.space
    started = await room.start()
    assert started.state is SwitchState.FILLING
    assert (started.passages, started.vectors) == (20, 0)
    await room.fill()
    ready = await room.switches.get(room.collection.id)
    assert (ready.state, ready.vectors) == (SwitchState.READY, 20)
    asked_of_old = len(room.old.texts)

    switched = await room.switches.switch(room.collection.id)
    assert switched.state is SwitchState.SWITCHED
    assert switched.other.provider == "old"
    current = await room.current()
    assert (current.embedding_provider, current.dimension) == ("new", NEW)
    assert current.space == started.other.space
    assert current.data_version > room.collection.data_version  # answers of the old model are not repeated
    assert await room.ask() == MILL
    assert len(room.old.texts) == asked_of_old

    await room.switches.rollback(room.collection.id)  # nothing is embedded for it
    assert await room.ask() == MILL
    assert len(room.old.texts) == asked_of_old + 1
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
    asked_of_new = len(room.new.texts)
    await room.ingest("new.txt", "the boiler of house 100")
    await room.ingest("3.txt", "the chimney of house 3")  # replaces a passage
    await room.ingest("4.txt", "the boiler of house 4")  # changes nothing
    assert len(room.new.texts) == asked_of_new + 2
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
    with psycopg.connect(postgres_server.migrator_url) as connection:  # who builds indexes sees it coming
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


async def test_search_in_other_vector_space_is_rejected(room: Room) -> None:
    with pytest.raises(EmbeddingModelChangedError):
        await room.store.search(
            query_vector=[1.0] * OLD,
            top_k=1,
            collection_id=room.collection.id,
            metric=DistanceMetric.COSINE,
            space="cosine_64_alt",
        )


async def test_document_in_flight_during_switch_is_reembedded(
    tenant_db: TenantDatabase, database: Database
) -> None:
    """Embedded by the old model alone, stored after the exchange: equal lengths would hide it."""
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


async def test_vectors_of_outdated_writers_are_repaired_before_switch(room: Room) -> None:
    """The version before retires passages without a look at it, and adds them with one vector."""
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


async def test_rate_limit_applies_across_processes(room: Room) -> None:
    """Eight passages, then nobody takes the change up for the rest of their time."""
    await room.start()
    limited = EmbeddingBackfill(room.database, room.registry, batch=8, per_minute=60)
    await limited.work_for(room.db.tenant_id, room.collection.id)
    pause_s = limited.take_pause_s()
    assert pause_s == pytest.approx(8, abs=2)  # less what the embedding took
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
    assert (await room.switches.get(room.collection.id)).vectors == 11  # never more than a minute's


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
