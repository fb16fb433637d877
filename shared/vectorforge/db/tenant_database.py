"""The only way to data, which is with a tenant."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, nullcontext
from typing import TYPE_CHECKING, Any, ClassVar

from vectorforge.db.key_check import due_check
from vectorforge.db.tenant_id import checked_tenant

if TYPE_CHECKING:
    from psycopg import AsyncConnection
    from psycopg.rows import DictRow

    from vectorforge.db.connection import Database
    from vectorforge.db.exchange import Call, Outcome

_NOTHING_TO_CHECK = nullcontext()

Params = Sequence[Any] | Mapping[str, Any]

_ENTER_TENANT = "SELECT vectorforge.enter_tenant(%s)"
_ENTER_SEARCH = "SELECT vectorforge.enter_search(%s, %s)"


class TenantDatabase:
    """A database as one tenant sees it: every transaction enters the tenant first.

    Statements carry the predicate ``tenant_id = %s`` as well, so that two mistakes are needed for a leak.
    """

    _enter: ClassVar[str] = _ENTER_TENANT

    def __init__(self, database: "Database", tenant_id: str) -> None:
        self._database = database
        self.tenant_id = checked_tenant(tenant_id)

    @asynccontextmanager
    async def transaction(self) -> "AsyncIterator[AsyncConnection[DictRow]]":
        """A transaction of this tenant; committed at the end, rolled back if the body raises.

        Raises:
            DatabaseUnavailableError: No connection, or it was lost.
            TenantBeingErasedError: Nobody may enter the tenant now.
            AuthenticationError: A key that the running request was let in with is revoked or over.
            InvalidInputError: A value that PostgreSQL cannot store.
            DatabaseError: The database refused a statement.
        """
        from vectorforge.db.session import translated_errors

        with translated_errors():
            async with self._database.connection() as connection, connection.transaction():
                check = due_check()
                enter: Call = (self._enter, (self.tenant_id,))
                query, params = enter if check is None else check.beside(enter)
                with check or _NOTHING_TO_CHECK, translated_errors():
                    await connection.execute(query.encode(), params)
                yield connection

    async def fetch_all(
        self, query: str, params: Params = (), *, ef_search: int | None = None, repeatable: bool = False
    ) -> "list[DictRow]":
        """Run one statement in a transaction of its own, in one round trip; all its rows.

        Args:
            query: The statement.
            params: Its values.
            ef_search: For a search through an HNSW index: the candidates it keeps in sight, 1 to 1,000.
            repeatable: See ``Database.run``.

        Raises:
            As ``transaction``.
        """
        ((rows, _),) = await self._run([(query, params)], ef_search, repeatable=repeatable)
        return rows

    async def fetch_one(
        self, query: str, params: Params = (), *, repeatable: bool = False
    ) -> "DictRow | None":
        """Like ``fetch_all``; the first row, or None if there is none."""
        rows = await self.fetch_all(query, params, repeatable=repeatable)
        return rows[0] if rows else None

    async def execute(self, query: str, params: Params = (), *, repeatable: bool = False) -> int:
        """Like ``fetch_all``, for a statement without rows; how many rows it changed."""
        (count,) = await self.execute_all([(query, params)], repeatable=repeatable)
        return count

    async def execute_all(self, statements: "Sequence[Call]", *, repeatable: bool = False) -> list[int]:
        """Like ``execute``, for several statements in one transaction; how many rows each changed."""
        return [count for _, count in await self._run(statements, repeatable=repeatable)]

    async def run(self, calls: "Sequence[Call]", *, repeatable: bool = False) -> "list[Outcome]":
        """Run statements in one transaction and one round trip; the outcome of each.

        Raises:
            As ``transaction``.
        """
        return await self._run(calls, repeatable=repeatable)

    async def _run(
        self, calls: "Sequence[Call]", ef_search: int | None = None, *, repeatable: bool
    ) -> "list[Outcome]":
        from vectorforge.db.session import translated_errors

        if ef_search is None:
            enter: Call = (self._enter, (self.tenant_id,))
        else:
            enter = (_ENTER_SEARCH, (self.tenant_id, ef_search))
        check = due_check()
        entering = enter if check is None else check.beside(enter)
        with check or _NOTHING_TO_CHECK, translated_errors():
            return (await self._database.run([entering, *calls], repeatable=repeatable))[1:]
