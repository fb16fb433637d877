"""A replica that is away, fails, or must not be used costs a search nothing but the writer's work."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration.readers.conftest import OpenApplication, find, new_collection, searches, write
from tests.support.postgres.standby import Replicated
from vectorforge.db.connection import Database
from vectorforge.db.reader import ReaderDatabase
from vectorforge.db.tenant_database import KEY_CHECK, KeyCheck
from vectorforge.errors import AuthenticationError, DatabaseUnavailableError
from vectorforge.types import DistanceMetric


async def test_search_without_replica_is_answered_by_writer(
    open_application: OpenApplication, tenant: str, private_dir: Callable[[str], Path]
) -> None:
    application = await open_application(reader=str(private_dir("away")))
    collection_id = await new_collection(application, tenant)
    for number in range(3):
        await write(application.for_tenant(tenant), collection_id, number)
        assert await find(application.for_tenant(tenant), collection_id, number)
    assert searches(application, "unavailable") == 3


async def test_search_uses_replica_again_after_its_restart(
    open_application: OpenApplication,
    replicated: Replicated,
    tenant: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    application = await open_application()
    services = application.for_tenant(tenant)
    collection_id = await new_collection(application, tenant)
    await write(services, collection_id, 1)
    replicated.catch_up()
    assert await find(services, collection_id, 1)
    assert searches(application, "answered") == 1
    replicated.standby.stop(force=True)
    try:
        for _ in range(20):
            assert await find(services, collection_id, 1)
        assert searches(application, "failed") == 1
        assert "The writer answers searches for 0.1 s" in caplog.text
    finally:
        replicated.standby.start()
    give_up_at = time.monotonic() + 30
    while searches(application, "answered") == 1:
        assert time.monotonic() < give_up_at
        assert await find(services, collection_id, 1)


async def test_replica_never_checks_a_key_first(open_application: OpenApplication, tenant: str) -> None:
    """It may not know of a revocation: the writer does the transaction that checks the key."""
    application = await open_application()
    services = application.for_tenant(tenant)
    collection_id = await new_collection(application, tenant)
    await write(services, collection_id, 1)
    store = services.vector_store.at_version(collection_id, 0)
    token = KEY_CHECK.set(KeyCheck(frozenset({"revoked"}), lambda key_id: None))
    try:
        with pytest.raises(AuthenticationError):
            await store.search(
                query_vector=None,
                query_text="word1",
                top_k=1,
                collection_id=collection_id,
                metric=DistanceMetric.COSINE,
            )
    finally:
        KEY_CHECK.reset(token)
    assert searches(application, "unavailable") == 1


async def test_transaction_of_reader_cannot_write_on_writer(replicated: Replicated, tenant: str) -> None:
    """The host of the replicas may lead to the writer."""
    async with Database(replicated.writer.app_url) as database:
        reader = ReaderDatabase(database, tenant)
        with pytest.raises(DatabaseUnavailableError, match="read-only"):
            await reader.execute("DELETE FROM vectorforge.documents WHERE tenant_id = %s", (tenant,))
