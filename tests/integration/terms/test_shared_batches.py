"""Documents stored together share rows of postings, and are deleted independently."""

import asyncio
import random
from collections.abc import Sequence
from uuid import UUID

import pytest

from tests.integration.terms.conftest import Check, Store, document
from tests.support.postgres.pin_rules import PinRule
from vectorforge.db.tenant_database import TenantDatabase

DELETE = "DELETE FROM vectorforge.documents WHERE tenant_id = %s AND source = %s"
RETITLE = "UPDATE vectorforge.documents SET title = 'kestrels' WHERE tenant_id = %s AND source = %s"
ROWS = """
SELECT count(*) AS rows, coalesce(sum(cardinality(postings)), 0) AS postings FROM vectorforge.grouped_postings
WHERE term IN (vectorforge.term_hash('cat'), vectorforge.term_hash('dog'))
"""


async def put_together(store: Store, texts: Sequence[str]) -> list[UUID]:
    """Store documents of one chunk each, with the sources 0, 1, 2 and so on, in one statement."""
    documents = [document([text], str(number), title=None) for number, text in enumerate(texts)]
    stored = await store.vectors.add_documents(store.id, documents)
    return [one.document_id for one in stored if one is not None]


async def shared_rows(db: TenantDatabase) -> tuple[int, int]:
    row = await db.fetch_one(ROWS)
    assert row is not None
    return row["rows"], row["postings"]


async def test_documents_stored_together_share_rows(store: Store, check: Check) -> None:
    await put_together(store, ["cats", "cats dogs", "cats dogs", "birds"])
    await check(store.db)
    assert await shared_rows(store.db) == (2, 5)


async def test_deleted_document_leaves_the_others_postings(store: Store, check: Check) -> None:
    ids = await put_together(store, ["cats", "cats dogs", "cats dogs", "birds"])
    for document_id, rows in zip(ids, [(2, 4), (2, 2), (0, 0), (0, 0)], strict=True):
        assert await store.vectors.delete_document(document_id)
        await check(store.db)
        assert await shared_rows(store.db) == rows


async def test_replaced_document_leaves_the_others_postings(store: Store, check: Check) -> None:
    await put_together(store, ["cats", "cats dogs", "cats dogs"])
    await store.put(["horses"], "1", title=None)
    await check(store.db)
    assert await shared_rows(store.db) == (2, 3)


# Each transaction changes two documents; the other one's lie between them in every order
@pytest.mark.parametrize("statement", [DELETE, RETITLE])
async def test_interleaved_transactions_neither_wait_nor_deadlock(
    store: Store, check: Check, statement: str
) -> None:
    await put_together(store, ["ants cats", "bees cats", "ants dogs", "bees dogs"])
    tenant = store.db.tenant_id
    async with asyncio.timeout(20):
        async with store.db.transaction() as first, store.db.transaction() as second:
            await first.execute(DELETE, (tenant, "0"))
            await second.execute(statement.encode(), (tenant, "1"))
            await first.execute(statement.encode(), (tenant, "3"))
            await second.execute(DELETE, (tenant, "2"))
    await check(store.db)


# The second one finds the row as it was before the first one's commit
@pytest.mark.pins(PinRule.SETTING)
async def test_deletion_during_settlement_leaves_no_empty_row(store: Store, check: Check) -> None:
    await put_together(store, ["ants cats", "bees cats"])
    tenant = store.db.tenant_id
    async with asyncio.timeout(20):
        async with store.db.transaction() as first:
            await first.execute(DELETE, (tenant, "0"))
            await first.execute("SET CONSTRAINTS ALL IMMEDIATE")
            second = asyncio.create_task(store.db.execute(DELETE, (tenant, "1")))
            await asyncio.wait({second}, timeout=1)
        await second
    assert await check(store.db) == 0


async def test_concurrent_deletions_and_replacements_leave_exact_postings(store: Store, check: Check) -> None:
    generator = random.Random(5)
    words = ["ants", "bees", "cats", "dogs", "emus", "foxes", "goats", "hens"]
    ids = await put_together(store, [" ".join(generator.sample(words, 5)) for _ in range(40)])

    async def change(number: int) -> None:
        if number % 3:
            await store.vectors.delete_document(ids[number])
        else:
            await store.put([" ".join(generator.sample(words, 3))], str(number), title=f"owls {number}")

    await asyncio.gather(*(change(number) for number in generator.sample(range(40), 36)))
    assert await check(store.db) > 0
