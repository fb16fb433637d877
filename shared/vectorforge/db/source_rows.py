"""Rows of the user's own PostgreSQL, read for ingestion. Nothing is written there.

The connection string holds a password: no error of this module, and none of its causes, repeats any of it.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Self

from vectorforge.errors import ConfigurationError, DatabaseError, DatabaseUnavailableError, InvalidInputError

if TYPE_CHECKING:
    from psycopg import AsyncConnection
    from psycopg.rows import DictRow
    from psycopg.sql import Composed

_CONNECT_TIMEOUT_S: Final = 10
_KEYS_BATCH: Final = 5_000
"""Rows of the first pass fetched at a time."""
_STATEMENT_ERRORS: Final = {"42601", "42P01", "42703", "42883", "42501"}
"""Found before a row is read: wrong syntax, names or privileges."""


@dataclass(frozen=True, slots=True)
class RowKey:
    """Key and last change of a row."""

    key: Any
    """Value from the driver; ``str(key)`` identifies the row."""
    updated: Any = None
    """Value of the column with the last change; None without such a column."""


class SourceRows:
    """The rows of a query or table; use ``open``.

    Args:
        connection: Read-only.
        query: A SELECT without a semicolon at its end.
    """

    def __init__(self, connection: "AsyncConnection[DictRow]", query: str, columns: Sequence[str]) -> None:
        self._connection = connection
        self._query = query
        self.columns = columns

    @classmethod
    @asynccontextmanager
    async def open(cls, dsn: str, query: str) -> AsyncIterator[Self]:
        """Connect with a URL or key-value string, and try a SELECT without fetching a row.

        Raises:
            ConfigurationError: The connection string is not one.
            DatabaseUnavailableError: No connection, or it was lost.
            InvalidInputError: The query was refused; the text has PostgreSQL's code, not its text.
        """
        import psycopg
        from psycopg.rows import dict_row

        query = query.strip().rstrip(";")
        try:
            connection = await psycopg.AsyncConnection.connect(
                dsn, row_factory=dict_row, connect_timeout=_CONNECT_TIMEOUT_S, prepare_threshold=None
            )
        except psycopg.ProgrammingError:
            raise ConfigurationError(
                "The connection string is not one that PostgreSQL understands."
            ) from None
        except psycopg.Error:  # libpq's text has the host and the role
            raise DatabaseUnavailableError(
                "The source database cannot be reached, or refuses the login."
            ) from None
        async with _hiding_secrets(), connection:
            await connection.set_read_only(True)
            cursor = await connection.execute(
                _statement("SELECT * FROM ({query}\n) AS source LIMIT 0", query)
            )
            columns = [column.name for column in cursor.description or ()]
            await connection.rollback()
            yield cls(connection, query, columns)

    async def keys(self, key: str, updated: str | None) -> AsyncGenerator[RowKey, None]:
        """Yield the values of the key column, and of the column ``updated`` if any, of every row.

        Raises:
            DatabaseUnavailableError: The connection was lost.
        """
        names = [key] if updated is None else [key, updated]
        statement = _statement("SELECT {columns} FROM ({query}\n) AS source", self._query, columns=names)
        async with _hiding_secrets(), self._connection.cursor(name="vectorforge_keys") as cursor:
            await cursor.execute(statement)
            while rows := await cursor.fetchmany(_KEYS_BATCH):
                for row in rows:
                    yield RowKey(row[key], row[updated] if updated is not None else None)
        await self._connection.rollback()

    async def rows(self, key: str, keys: Sequence[Any]) -> "list[DictRow]":
        """Return the rows with these keys; those deleted meanwhile are not among them.

        Raises:
            DatabaseUnavailableError: The connection was lost.
        """
        statement = _statement(
            "SELECT * FROM ({query}\n) AS source WHERE {columns} = ANY (%s)", self._query, columns=[key]
        )
        async with _hiding_secrets():
            rows = await (await self._connection.execute(statement, (list(keys),))).fetchall()
            await self._connection.rollback()
        return rows


def table_query(table: str) -> str:
    """Return the query for all rows of a table, named with or without a schema before a dot; quotes the name.

    Raises:
        InvalidInputError: It is no name.
    """
    parts = table.split(".")
    if not 1 <= len(parts) <= 2 or not all(parts) or "\0" in table:
        raise InvalidInputError("The table must be named as table or schema.table.", field="--table")
    quoted = ".".join('"' + part.replace('"', '""') + '"' for part in parts)
    return f"SELECT * FROM {quoted}"  # noqa: S608 -- quoted, so that each part is a name


def _statement(template: str, query: str, *, columns: Iterable[str] = ()) -> "Composed":
    from psycopg import sql

    names = sql.SQL(", ").join(map(sql.Identifier, columns))
    # The query is the operator's own; a percent sign in it is no placeholder.
    inner = sql.SQL(query.replace("%", "%%") if "%s" in template else query)
    return sql.SQL(template).format(query=inner, columns=names)


@asynccontextmanager
async def _hiding_secrets() -> AsyncIterator[None]:
    """Translate the driver's errors; texts may hold rows of the source, except those about the statement."""
    import psycopg

    try:
        yield
    except (psycopg.OperationalError, psycopg.InterfaceError):
        raise DatabaseUnavailableError("The connection to the source database was lost.") from None
    except psycopg.ProgrammingError as exc:
        cause = f"{type(exc).__name__}, SQLSTATE {exc.sqlstate}"
        if exc.sqlstate in _STATEMENT_ERRORS:
            cause = f"{exc.diag.message_primary} ({cause})"
        raise InvalidInputError(
            f"The source database refused the query: {cause}.",
            field="--query",
        ) from None
    except psycopg.Error as exc:
        raise DatabaseError(
            f"The source database could not answer the query: {type(exc).__name__}, SQLSTATE {exc.sqlstate}."
        ) from None
