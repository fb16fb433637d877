"""What a tenant may be called.

Statements as one transaction: sent at once where that is one, else between BEGIN and COMMIT.

The only way to data, which is with a tenant.
"""

import logging
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, nullcontext
from typing import TYPE_CHECKING, Any, ClassVar

from vectorforge.db.key_check import due_check
from vectorforge.errors import DatabaseUnavailableError, InvalidInputError

if TYPE_CHECKING:
    from psycopg import AsyncConnection
    from psycopg.rows import DictRow

    from vectorforge.db.connection import Database
    from vectorforge.db.session import Session
    from vectorforge.db.wire import Call, Outcome


MAX_TENANT_BYTES = 128
"""Longest tenant id, in UTF-8 bytes; the tables check the same."""


def checked_tenant(tenant_id: str) -> str:
    """The same tenant id, if the tables can hold it.

    Raises:
        InvalidInputError: It is empty, too long, or not text that PostgreSQL can hold.
    """
    try:
        size = len(tenant_id.encode())
    except UnicodeEncodeError as exc:
        raise InvalidInputError("tenant_id is not valid text.", field="tenant_id") from exc
    if not 1 <= size <= MAX_TENANT_BYTES or "\0" in tenant_id:
        raise InvalidInputError(
            f"tenant_id must have 1 to {MAX_TENANT_BYTES} bytes and no NUL.", field="tenant_id"
        )
    return tenant_id


logger = logging.getLogger(__name__)

_ENTER = "SELECT vectorforge.enter_tenant(%s)"
_READ = "SELECT current_setting('vectorforge.tenant', true) AS tenant"


async def run_together(session: "Session", calls: "Sequence[Call]", *, pipeline: bool) -> "list[Outcome]":
    """Run statements in one transaction.

    Args:
        session: Used by nobody else meanwhile, and outside a transaction.
        calls: Statements and their values.
        pipeline: Send them at once, in libpq's pipeline mode; else one by one, between BEGIN and COMMIT.

    Returns:
        The outcome of each statement.

    Raises:
        psycopg.Error: A statement failed; nothing of any is left.
    """
    if pipeline:
        return await session.exchange.run(calls)
    async with session.transaction():
        cursors = [await session.execute(query.encode(), params) for query, params in calls]
        return [
            (await cursor.fetchall() if cursor.description else [], cursor.rowcount) for cursor in cursors
        ]


async def check_transactions(
    session: "Session", connect: "Callable[[], Awaitable[Session]]", *, pipeline: bool
) -> bool:
    """Prove that the statements of a transaction stay together on the way to the server.

    A proxy may put a Sync between statements that were sent at once. Each is a transaction of its own then:
    the tenant that the first enters is gone at the second, and row-level security shows no rows.

    Args:
        session: A connection, which may be closed afterwards.
        connect: Makes another one.
        pipeline: Try pipeline mode first.

    Returns:
        Whether pipeline mode can be used.

    Raises:
        DatabaseUnavailableError: Not even the statements between BEGIN and COMMIT stay together.
        psycopg.OperationalError: No other connection.
    """
    if pipeline:
        together = await _stay_together(session, pipeline=True)
        if together is None and not session.was_cut:  # one connection may be lost for any reason
            async with await connect() as another:
                together = await _stay_together(another, pipeline=True)
        if together:
            return True
        async with await connect() as session:
            together = await _stay_together(session, pipeline=False)
    else:
        together = await _stay_together(session, pipeline=False)
    if not together:
        raise DatabaseUnavailableError(
            "The database, or a proxy before it, does not keep the statements of a transaction together; "
            "use a proxy that pools by transaction or by session."
        )
    if pipeline:
        logger.warning(
            "The database proxy splits statements that are sent at once: transactions use BEGIN and COMMIT "
            "now, which takes four round trips instead of one."
        )
    return False


async def _stay_together(session: "Session", *, pipeline: bool) -> bool | None:
    """Whether a second statement reads what the first set for their transaction; None: connection lost."""
    import psycopg

    tenant = f"probe {secrets.token_hex(8)}"
    calls: list[Call] = [(_ENTER, (tenant,)), (_READ, ())]
    try:
        _, (rows, _) = await run_together(session, calls, pipeline=pipeline)
    except (psycopg.OperationalError, psycopg.InterfaceError):
        return None
    return rows == [{"tenant": tenant}]


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
