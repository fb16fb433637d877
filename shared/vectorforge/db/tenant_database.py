"""Access to one tenant's rows: every transaction enters the tenant, and rechecks a cached API key."""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from contextvars import ContextVar
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeAlias

from vectorforge.db.errors import translated, translated_errors
from vectorforge.errors import AuthenticationError, InvalidInputError

if TYPE_CHECKING:
    from psycopg import AsyncConnection
    from psycopg.rows import DictRow

Params: TypeAlias = Sequence[Any] | Mapping[str, Any]
"""Parameters of a statement, by position or by name."""
Call: TypeAlias = tuple[str, Params]
"""A statement with the driver's placeholders, and its parameters."""
Outcome: TypeAlias = "tuple[list[DictRow], int]"
"""The rows of a statement, and the number of rows that it returned or changed."""

MAX_TENANT_BYTES = 128
"""Longest tenant id, in UTF-8 bytes; the tables check the same."""

KEY_CHECK: ContextVar["KeyCheck | None"] = ContextVar("key_check", default=None)
"""Check due in the running request; None if its key was not accepted from the cache."""

_CHECK_KEYS = ", vectorforge.check_keys(%s::text[])"
"""Appended to the statement that enters a tenant: a select list is computed from left to right."""
_NOTHING_TO_CHECK = nullcontext()


def storable_text(text: str) -> str:
    """Return the text with U+FFFD for what PostgreSQL cannot hold: NUL and halves of surrogate pairs."""
    # UTF-16 has one unit for half a pair, so that one U+FFFD takes its place (in UTF-8 it would be three).
    return text.replace("\0", "\ufffd").encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def checked_tenant(tenant_id: str) -> str:
    """Return the tenant id unchanged if the tables can hold it.

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

    Statements carry the predicate ``tenant_id = %(tenant_id)s`` as well, so that a leak takes two mistakes;
    methods add ``tenant_id`` to named parameters.
    """

    _enter: ClassVar[str] = "SELECT vectorforge.enter_tenant(%s)"

    def __init__(self, database: Connections, tenant_id: str) -> None:
        self._database = database
        self.tenant_id = checked_tenant(tenant_id)

    def named(self, **values: Any) -> dict[str, Any]:
        """Return the parameters of a statement in ``transaction``, with ``tenant_id``."""
        return {**values, "tenant_id": self.tenant_id}

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
                check, (query, params) = self._entering()
                with check, translated_errors():
                    await connection.execute(query.encode(), params)
                yield connection

    async def fetch_all(
        self, query: str, params: Params = (), *, repeatable: bool = False
    ) -> "list[DictRow]":
        """Run one statement in its own transaction and one round trip, and return all rows; see ``run``."""
        ((rows, _),) = await self.run([(query, params)], repeatable=repeatable)
        return rows

    async def fetch_one(
        self, query: str, params: Params = (), *, repeatable: bool = False
    ) -> "DictRow | None":
        """Like ``fetch_all``; return the first row, or None."""
        rows = await self.fetch_all(query, params, repeatable=repeatable)
        return rows[0] if rows else None

    async def execute(self, query: str, params: Params = (), *, repeatable: bool = False) -> int:
        """Like ``fetch_all``, for a statement without rows; return the number of rows changed."""
        ((_, count),) = await self.run([(query, params)], repeatable=repeatable)
        return count

    async def run(self, calls: Sequence[Call], *, repeatable: bool = False) -> list[Outcome]:
        """Run statements in one transaction and one round trip, and return their outcomes.

        ``repeatable`` as for ``Database.run``.

        Raises:
            As ``transaction``.
        """
        check, entering = self._entering()
        own = [
            (query, {**params, "tenant_id": self.tenant_id} if isinstance(params, Mapping) else params)
            for query, params in calls
        ]
        with check:
            try:
                return (await self._database.run([entering, *own], repeatable=repeatable))[1:]
            except Exception as exc:  # not ``translated_errors``, which costs every statement
                if (error := translated(exc)) is None:
                    raise
                raise error from exc

    def _entering(self) -> "tuple[KeyCheck | nullcontext[None], Call]":
        check, enter = due_check(), (self._enter, (self.tenant_id,))
        return (_NOTHING_TO_CHECK, enter) if check is None else (check, check.added_to(enter))
