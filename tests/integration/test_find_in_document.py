"""Texts found by an agent's tool in a document of several megabytes."""

import tracemalloc

from tests.integration.repository_rows import add_document, make_collection
from vectorforge.db.repositories.collection_repo import CollectionRepository
from vectorforge.db.repositories.document_repo import DocumentRepository
from vectorforge.db.tenant_database import TenantDatabase
from vectorforge.tools.document_schemas import FindArguments
from vectorforge.tools.documents import DocumentTools
from vectorforge.types import Collection

_WORD = "Rotor  Blade"
_AT = [3, 499_990, 500_020, 999_400, 1_999_999, 3_999_980]
"""Places, some across the parts in which the document is read."""


def _text() -> str:
    text = "lorem ipsum\n" * 333_334
    for at in _AT:
        text = text[:at] + _WORD + text[at + len(_WORD) :]
    return text


async def _tools(db: TenantDatabase, text: str) -> DocumentTools:
    collection = await make_collection(db)
    document_id, _ = await add_document(db, collection)
    await db.execute(
        "UPDATE vectorforge.documents SET text = %s, size_chars = %s WHERE id = %s",
        (text, len(text), document_id),
    )

    async def find_collection(_: str | None) -> Collection:
        return collection

    return DocumentTools(CollectionRepository(db), DocumentRepository(db), find_collection)


async def test_text_in_long_document_is_found_at_all_places(tenant_db: TenantDatabase) -> None:
    text = _text()
    tools = await _tools(tenant_db, text)
    found = await tools.find_in_document(FindArguments(document="a.txt", text="rotor BLADE", limit=5))
    assert found.total == len(_AT)
    assert [match.start for match in found.matches] == _AT[:5]
    for match in found.matches:
        assert text[match.start : match.end] == _WORD
        assert match.excerpt == text[max(match.start - 120, 0) : match.end + 120]


async def test_search_of_long_document_holds_a_part_of_it_in_memory(tenant_db: TenantDatabase) -> None:
    text = _text()
    tools = await _tools(tenant_db, text)
    tracemalloc.start()
    try:
        await tools.find_in_document(FindArguments(document="a.txt", text="rotor blade"))
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < len(text) / 2


async def test_overlapping_repetitions_across_parts_count_once(tenant_db: TenantDatabase) -> None:
    tools = await _tools(tenant_db, "a " * 500_001)
    found = await tools.find_in_document(FindArguments(document="a.txt", text="a a a", limit=1))
    assert found.total == 500_001 // 3
