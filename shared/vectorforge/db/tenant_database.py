"""Access to one tenant's rows: every transaction enters the tenant, and rechecks a cached API key."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from contextvars import ContextVar
from types import TracebackType
from typing import TYPE_CHECKING, ClassVar, Protocol

from vectorforge.db.errors import translated_errors
from vectorforge.db.types import Call, Outcome, Params, checked_tenant
from vectorforge.errors import AuthenticationError

if TYPE_CHECKING:
    from psycopg import AsyncConnection
    from psycopg.rows import DictRow

KEY_CHECK: ContextVar["KeyCheck | None"] = ContextVar("key_check", default=None)
"""Check due in the running request; None if its key was not accepted from the cache."""

_CHECK_KEYS = ", vectorforge.check_keys(%s::text[])"
"""Appended to the statement that enters a tenant: a select list is computed from left to right."""
_ENTER_TENANT = "SELECT vectorforge.enter_tenant(%s)"
_ENTER_SEARCH = "SELECT vectorforge.enter_search(%s, %s)"
_NOTHING_TO_CHECK = nullcontext()


class KeyCheck:
    """Check of keys accepted from the cache, made by the request's first transaction as it enters the tenant.

    Every transaction repeats it until one has passed, so no later step can skip it.

    Args:
        keys: Ids of the keys, all of one tenant.
        forget: Called with the id of each key when one is rejected.
    """

    __slots__ = ("_forget", "is_due", "keys")

    def __init__(self, keys: frozenset[str], forget: Callable[[str], None]) -> None:
        self.keys = sorted(keys)
        self._forget = forget
        self.is_due = True

    def added_to(self, enter: Call) -> Call:
        """Return the statement that enters the tenant of the keys and checks them."""
        query, params = enter
        return query + _CHECK_KEYS, (*params, self.keys)

    def __enter__(self) -> None:
        """Run the statement inside this context."""

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        if exc is None:
            self.is_due = False
        elif isinstance(exc, AuthenticationError):
            for key_id in self.keys:
                self._forget(key_id)  # the next request with one of them looks it up


def due_check() -> KeyCheck | None:
    """Return the running request's check unless one has passed."""
    check = KEY_CHECK.get()
    return check if check is not None and check.is_due else None


class Connections(Protocol):
    """The part of ``Database`` that a tenant's transactions need."""

    def connection(self) -> "AbstractAsyncContextManager[AsyncConnection[DictRow]]":
        """See ``Database.connection``."""

    async def run(self, calls: Sequence[Call], *, repeatable: bool = False) -> list[Outcome]:
        """See ``Database.run``."""


class TenantDatabase:
    """A database restricted to one tenant: every transaction enters the tenant first.

    Statements carry the predicate ``tenant_id = %s`` as well, so that a leak takes two mistakes.
    """

    _enter: ClassVar[str] = _ENTER_TENANT

    def __init__(self, database: Connections, tenant_id: str) -> None:
        self._database = database
        self.tenant_id = checked_tenant(tenant_id)

    @asynccontextmanager
    async def transaction(self) -> "AsyncIterator[AsyncConnection[DictRow]]":
        """Open a transaction of this tenant; commit it at the end, roll it back if the body raises.

        Raises:
            DatabaseUnavailableError: No connection, or it was lost.
            TenantBeingErasedError: The tenant is being erased.
            AuthenticationError: A cached key of the running request is revoked or expired.
            InvalidInputError: A value that PostgreSQL cannot store.
            DatabaseError: The database rejected a statement.
        """
        with translated_errors():
            async with self._database.connection() as connection, connection.transaction():
                check = due_check()
                enter: Call = (self._enter, (self.tenant_id,))
                query, params = enter if check is None else check.added_to(enter)
                with check or _NOTHING_TO_CHECK, translated_errors():
                    await connection.execute(query.encode(), params)
                yield connection

    async def fetch_all(
        self, query: str, params: Params = (), *, ef_search: int | None = None, repeatable: bool = False
    ) -> "list[DictRow]":
        """Run one statement in its own transaction and one round trip, and return all rows.

        Args:
            query: The statement.
            params: Its parameters.
            ef_search: Size of the candidate list of a search in an HNSW index, 1 to 1,000.
            repeatable: See ``Database.run``.

        Raises:
            As ``transaction``.
        """
        ((rows, _),) = await self._run([(query, params)], ef_search, repeatable=repeatable)
        return rows

    async def fetch_one(
        self, query: str, params: Params = (), *, repeatable: bool = False
    ) -> "DictRow | None":
        """Like ``fetch_all``; return the first row, or None."""
        rows = await self.fetch_all(query, params, repeatable=repeatable)
        return rows[0] if rows else None

    async def execute(self, query: str, params: Params = (), *, repeatable: bool = False) -> int:
        """Like ``fetch_all``, for a statement without rows; return the number of rows changed."""
        (count,) = await self.execute_all([(query, params)], repeatable=repeatable)
        return count

    async def execute_all(self, statements: Sequence[Call], *, repeatable: bool = False) -> list[int]:
        """Like ``execute``, for several statements in one transaction; return each one's number of rows."""
        return [count for _, count in await self._run(statements, repeatable=repeatable)]

    async def run(self, calls: Sequence[Call], *, repeatable: bool = False) -> list[Outcome]:
        """Run statements in one transaction and one round trip, and return their outcomes.

        Raises:
            As ``transaction``.
        """
        return await self._run(calls, repeatable=repeatable)

    async def _run(
        self, calls: Sequence[Call], ef_search: int | None = None, *, repeatable: bool
    ) -> list[Outcome]:
        if ef_search is None:
            enter: Call = (self._enter, (self.tenant_id,))
        else:
            enter = (_ENTER_SEARCH, (self.tenant_id, ef_search))
        check = due_check()
        entering = enter if check is None else check.added_to(enter)
        with check or _NOTHING_TO_CHECK, translated_errors():
            return (await self._database.run([entering, *calls], repeatable=repeatable))[1:]
