"""Filters on documents: counting and deleting those whose own metadata match."""

from collections.abc import Mapping
from typing import Any, Final
from uuid import UUID

from vectorforge.db.repositories.paging import SqlCondition
from vectorforge.errors import FilterError
from vectorforge.vectorstore.filters.language import Filter
from vectorforge.vectorstore.filters.parse import parse
from vectorforge.vectorstore.filters.sql import FilterCompiler
from vectorforge.vectorstore.validation import checked_profile
from vectorforge.vectorstore.writes.document import OF_PROFILE, DocumentWriter

_MAX_DOCUMENTS: Final = 200
"""Deleted in one transaction, so that it ends well within a statement's timeout ..."""
_MAX_CHUNKS: Final = 2_000
"""... and no more of them than have this many chunks, or one."""

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


def checked_selection(filters: Mapping[str, Any], profile_id: int | None) -> Filter:
    """Return the parsed filter of a deletion.

    Raises:
        FilterError: It cannot be understood, or is empty and so would select every document.
        InvalidInputError: ``profile_id`` is not usable.
    """
    if not filters:
        raise FilterError(
            "filters must have a condition; delete the collection to delete all.", field="filters"
        )
    if profile_id is not None:
        checked_profile(profile_id)
    return parse(filters)


def _compiled(condition: Filter) -> SqlCondition:
    compiler = FilterCompiler("d.metadata")
    return SqlCondition(compiler.compile(condition), compiler.params)


async def count_selected(writer: DocumentWriter, selection: Filter) -> int:
    """Count the documents of ``checked_selection``; see ``VectorStore.count_documents``."""
    await writer.lock_collection()
    matching, params = _matching(writer, selection)
    row = await (await writer.execute(_COUNT.format(matching=matching), params)).fetchone()
    return int(row["total"])


async def delete_selected(writer: DocumentWriter, selection: Filter) -> int:
    """Delete some of the documents of ``checked_selection``; see ``VectorStore.delete_documents``."""
    await writer.lock_collection()
    matching, params = _matching(writer, selection)
    locked = await writer.execute(_LOCK.format(matching=matching), {**params, "limit": _MAX_DOCUMENTS})
    ids: list[UUID] = []
    chunks = 0
    for row in await locked.fetchall():
        chunks += row["chunk_count"]
        if ids and chunks > _MAX_CHUNKS:
            break
        ids.append(row["id"])
    return int((await writer.execute(_DELETE, {"ids": ids})).rowcount) if ids else 0


def _matching(writer: DocumentWriter, selection: Filter) -> tuple[str, Mapping[str, Any]]:
    condition = _compiled(selection)
    profile = "TRUE" if writer.profile_id is None else OF_PROFILE
    return _MATCHING.format(profile=profile, filter=condition.text), condition.params
