"""Documents and chunks in PostgreSQL, directly and through PgBouncer."""

from uuid import uuid4

import pytest

from tests.integration.repository_rows import INSERT_CHUNK, add_document, count, make_collection
from vectorforge.db.repositories.document_repo import CitedChunk, DocumentRepository
from vectorforge.db.tenant_database import TenantDatabase
from vectorforge.errors import InvalidInputError
from vectorforge.vectorstore.pgvector import PgVectorStore


class TestDocuments:
    async def test_stored_document_is_returned_by_all_read_methods(self, tenant_db: TenantDatabase) -> None:
        repo = DocumentRepository(tenant_db)
        collection = await make_collection(tenant_db)
        document_id, chunk_id = await add_document(tenant_db, collection)
        document = await repo.find_by_id(document_id)
        assert document is not None
        assert (document.source, document.title, document.metadata) == ("a.txt", "A title", {"lang": "de"})
        assert await repo.find_by_source(collection.id, "a.txt") == document
        assert await repo.find_by_source(collection.id, "b.txt") is None
        assert await repo.text(document_id) == "text"
        assert await repo.list(collection.id) == ([document], 1)
        (chunk,) = await repo.chunks(document_id)
        assert (chunk.id, chunk.index, chunk.document_id) == (chunk_id, 0, document_id)
        assert await repo.chunk(chunk_id) == CitedChunk(chunk, retired=False, document_version=1)
        current = await repo.current_hashes(collection.id, "a.txt")
        assert current is not None
        assert (current.document_id, current.version, len(current.chunk_hashes)) == (document_id, 1, 1)
        assert await repo.current_hashes(collection.id, "b.txt") is None

    async def test_retired_chunk_is_still_readable(self, tenant_db: TenantDatabase) -> None:
        collection = await make_collection(tenant_db)
        await add_document(tenant_db, collection)
        retired = await tenant_db.fetch_one("SELECT id FROM vectorforge.chunks WHERE to_version IS NOT NULL")
        assert retired is not None
        assert await DocumentRepository(tenant_db).chunk(retired["id"]) is not None

    async def test_list_returns_pages_newest_first(self, tenant_db: TenantDatabase) -> None:
        repo = DocumentRepository(tenant_db)
        collection = await make_collection(tenant_db)
        for number in range(5):
            await add_document(tenant_db, collection, str(number))
        first, total = await repo.list(collection.id, limit=3)
        second, _ = await repo.list(collection.id, limit=3, offset=3)
        assert [document.source for document in first + second] == ["4", "3", "2", "1", "0"]
        assert total == 5
        for limit, offset in ((0, 0), (1001, 0), (1, -1)):
            with pytest.raises(InvalidInputError):
                await repo.list(collection.id, limit=limit, offset=offset)

    async def test_source_of_2000_wide_characters_is_found(self, tenant_db: TenantDatabase) -> None:
        collection = await make_collection(tenant_db)
        source = "".join(chr(0x10000 + n % 1000) for n in range(2000))
        await add_document(tenant_db, collection, source)
        assert await DocumentRepository(tenant_db).find_by_source(collection.id, source) is not None

    async def test_deleted_document_leaves_no_chunks(self, tenant_db: TenantDatabase) -> None:
        store = PgVectorStore(tenant_db)
        document_id, _ = await add_document(tenant_db, await make_collection(tenant_db))
        assert await store.delete_document(document_id)
        assert not await store.delete_document(document_id)
        assert [await count(tenant_db, t) for t in ("documents", "chunks", "embeddings")] == [0, 0, 0]

    async def test_second_current_chunk_at_one_ordinal_is_rejected(self, tenant_db: TenantDatabase) -> None:
        collection = await make_collection(tenant_db)
        document_id, _ = await add_document(tenant_db, collection)
        values = (tenant_db.tenant_id, uuid4(), collection.id, document_id, 0, b"3", None)
        with pytest.raises(Exception, match="a constraint forbids it"):
            await tenant_db.execute(INSERT_CHUNK, values)
