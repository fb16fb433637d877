"""Rows 29 and 31: search among many tenants, and during a change of its model."""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Literal
from uuid import UUID

import httpx2
import psycopg

from tests.campaigns.faults.database_faults import background
from tests.campaigns.faults.fault import Fault
from tests.campaigns.faults.ingestion_faults import collection_for, ended, submit
from tests.campaigns.faults.load import Answer, Load
from tests.campaigns.faults.system import System
from tests.campaigns.faults.vendor_faults import VendorFault
from tests.support.postgres.vector_indexes import index_space
from tests.support.rag.collections import insert_collection
from tests.support.rag.drafts import chunk_drafts, document_draft, random_vector
from tests.support.vendors.fake_embeddings import FakeEmbeddingsServer
from tests.support.vendors.fake_vendor import Reply
from tests.support.vendors.vendor_behaviour import Behaviour
from vectorforge.db.connection import Database
from vectorforge.db.tenant_database import TenantDatabase
from vectorforge.types import DistanceMetric
from vectorforge.vectorstore.pgvector import PgVectorStore

_TENANTS = 200
_LARGEST = 2_000
"""Chunks of the first tenant; the n-th tenant has an n-th of them."""
_SMALL = 24
"""Dimensions: in a separate partition, so that no other row uses its index."""
_SHARES = {"": 1, "half": 2, "hundredth": 100}
"""Metadata keys: every n-th chunk of a tenant has the key."""
_WANTED = 10
_EXACT = 20
"""Maximum vectors of an exact search, far fewer than by default, so that the index is used."""
_SEARCHES_AT_ONCE = 4


class FilteredSearches(Fault):
    number = 29
    name = f"filtered searches of {_TENANTS} tenants of uneven size through one index, during the load"
    client_sees = "a full answer; as many passages as wanted, or all that match"

    @asynccontextmanager
    async def inject(self, system: System, load: Load) -> AsyncIterator[None]:
        self._short: list[str] = []
        self._ways: Counter[str] = Counter()
        # From here on new connections use an ordered index wherever one fits.
        _execute(system, "ALTER ROLE vectorforge_app SET enable_sort = off")
        try:
            async with Database(system.postgres.app_url, pool_size=_SEARCHES_AT_ONCE) as database:
                stores = [await self._fill(database, rank) for rank in range(1, _TENANTS + 1)]
                await asyncio.to_thread(index_space, system.admin_url, f"cosine_{_SMALL}")
                await asyncio.to_thread(_execute, system, "ANALYZE")
                async with background(self._search_all(stores)):
                    yield
        finally:
            _execute(system, "ALTER ROLE vectorforge_app RESET enable_sort")

    async def _fill(self, database: Database, rank: int) -> tuple[PgVectorStore, UUID, int]:
        db: TenantDatabase = database.for_tenant(f"fault-29-{rank}")
        generator, count = random.Random(rank), max(1, _LARGEST // rank)
        vectors = [random_vector(generator, _SMALL) for _ in range(count)]
        metadata = [{name: n % every for name, every in _SHARES.items() if name} for n in range(count)]
        chunks = chunk_drafts([str(n) for n in range(count)], vectors, metadata)
        collection = await insert_collection(db, _SMALL, DistanceMetric.COSINE)
        store = PgVectorStore(db, exact_scan_limit=_EXACT)
        await store.replace_document(collection, document_draft(chunks), chunks)
        return store, collection, count

    async def _search_all(self, stores: Sequence[tuple[PgVectorStore, UUID, int]]) -> None:
        """Search as each tenant with each filter, twice: the second time the collection is cached."""
        waiting = iter([(*store, name) for _ in range(2) for store in stores for name in _SHARES])
        generator = random.Random(29)

        async def one_after_another() -> None:
            for store, collection, count, name in waiting:
                found = await store.search(
                    query_vector=random_vector(generator, _SMALL),
                    top_k=_WANTED,
                    collection_id=collection,
                    metric=DistanceMetric.COSINE,
                    filters={name: 0} if name else None,
                )
                self._ways[found.scan.method if found.scan else "none"] += 1
                expected = min(_WANTED, -(-count // _SHARES[name]))
                if len(found) != expected:
                    self._short.append(f"{len(found)} of {expected} ({count} passages, filter {name!r})")

        async with asyncio.TaskGroup() as tasks:
            for _ in range(_SEARCHES_AT_ONCE):
                tasks.create_task(one_after_another())

    async def audit(self, system: System, answers: Sequence[Answer]) -> list[str]:
        found = [f"{len(self._short)} x too few rows: {'; '.join(self._short[:5])}"] if self._short else []
        if self._ways.total() != 2 * _TENANTS * len(_SHARES) or not self._ways["index"]:
            found.append(f"searches by their way: {dict(self._ways)}")
        return found


def _execute(system: System, statement: str) -> None:
    with psycopg.connect(system.admin_url, autocommit=True) as connection:
        connection.execute(statement.encode())


class ChangedModel(VendorFault):
    number = 31
    name = "a switch to an embedding model of another dimension, under load"
    client_sees = "a full answer; 409 for a vector of the wrong dimension"
    at_once = 4

    def request(self, number: int) -> Mapping[str, Any]:
        return {"collection": "fault-31"}

    def behaviour(self, number: int, attempt: int) -> Behaviour:
        return Reply(pause_s=0.2)  # the load continues before, during and after the change

    @asynccontextmanager
    async def serve(self, system: System) -> AsyncIterator[httpx2.AsyncClient]:
        fields = {"input_type": Literal["search_document", "search_query"], "output_dimension": int}
        async with FakeEmbeddingsServer(dimension=96, api_key="co-test", fields=fields) as self._new:
            settings = {
                "cohere_api_key": "co-test",
                "cohere_base_url": self._new.base_url,
                "cohere_embedding_dimension": "96",
            }
            async with system.serving(settings) as client:
                yield client

    @asynccontextmanager
    async def inject(self, system: System, load: Load) -> AsyncIterator[None]:
        self._refusals: list[tuple[int, str]] = []
        self._path = f"/v1/collections/{await collection_for(load.client, 'fault-31')}"
        documents = [
            {"source": f"fault-31/{n}", "text": f"Refund {n} does take {n} days."} for n in range(40)
        ]
        job = await submit(load.client, self._path.rpartition("/")[2], documents)
        await ended(load.client, job)
        system.surroundings.embeddings.requests.clear()
        async with super().inject(system, load), background(self._change(load)):
            yield
        self._asked = [_questions(one) for one in (system.surroundings.embeddings, self._new)]
        self._collection = (await load.client.get(self._path)).json()

    async def _change(self, load: Load) -> None:
        await load.until_ended(0.1)
        await self._ask_by(load.client, "cohere")
        started = await self._step(load.client, "", embedding_provider="cohere")
        assert started["change"]["other_dimension"] == 96
        while (await self._state(load.client)) != "ready":  # noqa: ASYNC110 - of another process
            await asyncio.sleep(0.1)
        await self._ask_by(load.client, "cohere")
        await load.until_ended(0.4)
        await self._step(load.client, "/switch", skip_comparison=True)
        await self._ask_by(load.client, "http")
        await load.until_ended(0.7)
        await self._step(load.client, "/finish")

    async def _step(self, client: httpx2.AsyncClient, path: str, **body: Any) -> dict[str, Any]:
        response = await client.post(f"{self._path}/embedding-switch{path}", json=body or None)
        response.raise_for_status()
        state: dict[str, Any] = response.json()
        return state

    async def _state(self, client: httpx2.AsyncClient) -> str:
        return str((await client.get(f"{self._path}/embedding-switch")).json()["state"])

    async def _ask_by(self, client: httpx2.AsyncClient, provider: str) -> None:
        """Search with a vector of a model other than the collection's current one."""
        body = {"query": "How long?", "embedding_provider": provider, "search_mode": "dense"}
        response = await client.post(f"{self._path}/query", json=body)
        self._refusals.append((response.status_code, response.json().get("code", "")))

    async def audit(self, system: System, answers: Sequence[Answer]) -> list[str]:
        found = []
        if set(self._refusals) != {(409, "dimension_mismatch")}:
            found.append(f"vectors of the wrong dimension: {self._refusals}")
        if not all(self._asked):
            found.append(f"questions that the old and the new model embedded: {self._asked}")
        if (self._collection["embedding_provider"], self._collection["dimension"]) != ("cohere", 96):
            found.append(f"the collection has {self._collection['embedding_provider']}")
        return found


def _questions(server: FakeEmbeddingsServer) -> int:
    """Return the load's queries that a model was requested to embed."""
    texts = [text for request in server.requests for text in request["input"]]
    return sum(text.startswith("Fault 31, request") for text in texts)


SEARCH_FAULTS: tuple[type[Fault], ...] = (FilteredSearches, ChangedModel)
