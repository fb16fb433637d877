"""Filters on documents: counting and deleting those whose own metadata match."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from vectorforge.db.repositories.paging import SqlCondition
from vectorforge.errors import FilterError
from vectorforge.vectorstore.filters.language import Filter
from vectorforge.vectorstore.filters.parse import parse
from vectorforge.vectorstore.filters.sql import FilterCompiler
from vectorforge.vectorstore.writes.document import DocumentWriter

if TYPE_CHECKING:
    from psycopg import AsyncConnection

_MAX_DOCUMENTS: Final = 200
"""Deleted in one transaction, so that it ends well within a statement's timeout ..."""
_MAX_CHUNKS: Final = 2_000
"""... and no more of them than have this many chunks, or one."""

_OF_PROFILE = """
d.id = ANY (ARRAY(
    SELECT p.document_id FROM vectorforge.profile_documents p
    WHERE p.tenant_id = %(tenant)s AND p.collection_id = %(collection)s AND p.profile_id = %(profile)s
))
"""
_MATCHING = """
FROM vectorforge.documents d
WHERE d.tenant_id = %(tenant)s AND d.collection_id = %(collection)s AND {profile} AND {filter}
"""
# In the order in which every writer of several documents locks them.
_LOCK = 'SELECT d.id, d.chunk_count {matching} ORDER BY d.source COLLATE "C" LIMIT %(limit)s FOR UPDATE'
_COUNT = "SELECT count(*) AS total {matching}"
_DELETE = "DELETE FROM vectorforge.documents WHERE tenant_id = %(tenant)s AND id = ANY (%(ids)s)"


def condition_on_documents(filters: Mapping[str, Any] | None) -> SqlCondition:
    """Return the filter as a condition on ``vectorforge.documents d``; without a filter, on every one.

    Raises:
        FilterError: The filter cannot be understood.
    """
    return _compiled(parse(filters))


def checked_selection(filters: Mapping[str, Any]) -> Filter:
    """Return the parsed filter of a deletion.

    Raises:
        FilterError: It cannot be understood, or is empty and so would select every document.
    """
    if not filters:
        raise FilterError(
            "filters must have a condition; delete the collection to delete all.", field="filters"
        )
    return parse(filters)


def _compiled(condition: Filter) -> SqlCondition:
    compiler = FilterCompiler("d.metadata")
    return SqlCondition(compiler.compile(condition), compiler.params)


class SelectedDocuments:
    """Documents of a collection, or of one profile there, whose own metadata match a filter.

    Args:
        connection: Inside a transaction that has entered the tenant.
        tenant_id: The tenant.
        collection_id: The collection.
        selection: Result of ``checked_selection``.
        profile_id: Profile of the documents; required in a collection for profiles.
    """

    def __init__(
        self,
        connection: "AsyncConnection[dict[str, Any]]",
        tenant_id: str,
        collection_id: UUID,
        selection: Filter,
        profile_id: int | None,
    ) -> None:
        condition = _compiled(selection)
        self._connection = connection
        self._writer = DocumentWriter(connection, tenant_id, collection_id, profile_id)
        self._params = {
            **condition.params,
            "tenant": tenant_id,
            "collection": collection_id,
            "profile": profile_id,
        }
        self._matching = _MATCHING.format(
            profile="TRUE" if profile_id is None else _OF_PROFILE, filter=condition.text
        )

    async def count(self) -> int:
        """Count the documents; see ``VectorStore.count_documents``."""
        await self._writer.lock_collection()
        row = await (await self._execute(_COUNT.format(matching=self._matching))).fetchone()
        return int(row["total"])

    async def delete_some(self) -> int:
        """Delete some of them; see ``VectorStore.delete_documents``."""
        await self._writer.lock_collection()
        statement = _LOCK.format(matching=self._matching)
        rows = await (await self._execute(statement, {"limit": _MAX_DOCUMENTS})).fetchall()
        ids: list[UUID] = []
        chunks = 0
        for row in rows:
            chunks += row["chunk_count"]
            if ids and chunks > _MAX_CHUNKS:
                break
            ids.append(row["id"])
        if not ids:
            return 0
        return int((await self._execute(_DELETE, {"ids": ids})).rowcount)

    async def _execute(self, statement: str, params: Mapping[str, Any] | None = None) -> Any:
        return await self._connection.execute(statement.encode(), {**self._params, **(params or {})})
