"""A certificate waits until a replica has replayed the deletions."""

import asyncio

import pytest

from tests.integration.readers.conftest import OpenApplication, new_collection, write
from tests.support.postgres.standby import Replicated
from vectorforge.erasure.repo import Subject


async def test_certificate_is_issued_after_replay(
    open_application: OpenApplication, replicated: Replicated, tenant: str
) -> None:
    application = await open_application(database_reader_lag_s=0)
    services = application.for_tenant(tenant)
    collection_id = await new_collection(application, tenant)
    await write(services, collection_id, 1)
    eraser = services.eraser
    with replicated.standby.paused():
        erasure_id = await eraser.begin(
            Subject("collection", collection_id), logs="rows", requested_by="test"
        )
        erasing = asyncio.create_task(eraser.run(erasure_id))
        while (await eraser.find(erasure_id)).stage != "objects":  # noqa: ASYNC110 - the database has the stage
            await asyncio.sleep(0.01)
        await asyncio.wait([erasing], timeout=0.5)
        assert not erasing.done()
    erasure = await erasing
    assert erasure.is_done
    assert "read replicas other than" in (erasure.certificate or "")


async def test_erasure_without_reachable_replica_stays_open(
    open_application: OpenApplication,
    replicated: Replicated,
    tenant: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    application = await open_application(database_reader_lag_s=0)
    services = application.for_tenant(tenant)
    collection_id = await new_collection(application, tenant)
    subject = Subject("collection", collection_id)
    replicated.standby.stop(force=True)
    try:
        erasure_id = await services.eraser.begin(subject, logs="rows", requested_by="test")
        assert (await services.eraser.run(erasure_id)).stage == "objects"
        assert f"No read replica confirms erasure {erasure_id}" in caplog.text
    finally:
        replicated.standby.start()
    replicated.catch_up()
    async with asyncio.timeout(30):  # the refusal is remembered for a second
        while not (await services.eraser.run(erasure_id)).is_done:  # noqa: ASYNC110 - it has no event for it
            await asyncio.sleep(0.1)
