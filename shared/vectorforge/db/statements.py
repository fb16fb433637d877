"""Statements as libpq takes them, and prepared ones where no pooler can come between.

A prepared statement is parsed and analyzed once for a connection, and planned once if its plan does not
depend on the values; docs/decisions/database.md says what that saves. Behind a pooler it may be missing on
the next backend, and RDS Proxy pins the connection
(https://docs.aws.amazon.com/AmazonRDS/latest/UserGuide/rds-proxy-pinning.html).
"""

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias, cast

from psycopg import ProgrammingError
from psycopg.adapt import PyFormat
from psycopg.errors import FeatureNotSupported, InvalidSqlStatementName
from psycopg.pq import ExecStatus

from vectorforge.db.tenant_database import Params

if TYPE_CHECKING:
    from psycopg import AsyncConnection
    from psycopg.pq.abc import PGconn, PGresult

OUTDATED: Final = (FeatureNotSupported, InvalidSqlStatementName)
"""Errors of a prepared statement whose result a migration has changed, or that its backend does not have."""
_MOST: Final = 64
"""Prepared statements of a connection; a search's takes some 100 kB of the backend's memory."""
_MOST_SEEN: Final = 1_000
_RDS_PROXY: Final = ".proxy-"
"""Part of each endpoint's name: https://docs.aws.amazon.com/AmazonRDS/latest/UserGuide/rds-proxy-connecting.html"""
_PLACEHOLDER = re.compile(r"%(?:%|(?:\((?P<name>\w+)\))?(?P<format>[sbt]))")

_Key: TypeAlias = tuple[bytes, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement's text with ``$1``, ``$2`` and so on in place of the driver's placeholders.

    The driver converts a text of more than 4,096 characters, such as a search's, at every execution.
    Placeholders: https://www.psycopg.org/psycopg3/docs/basic/params.html.
    """

    text: bytes
    formats: tuple[PyFormat, ...]
    """Formats of the parameters, in their order."""
    places: tuple[str | int, ...]
    """Names or positions of the parameters, in their order."""
    columns: list[str] = field(default_factory=list, compare=False)
    """Names of the result columns, filled by the first execution: they never change."""

    def values(self, params: Params) -> list[Any]:
        """Return the parameters in the statement's order, without named ones that it does not use.

        Raises:
            psycopg.ProgrammingError: One is missing, or there are too many positional ones.
        """
        if isinstance(params, Mapping) or len(params) == len(self.places):
            given = cast("Any", params)
            with suppress(KeyError, TypeError):  # a name that is missing, or is one of a sequence
                return [given[place] for place in self.places]
        raise ProgrammingError("The parameters do not match the statement.")


@lru_cache(maxsize=256)
def compiled(query: str) -> Statement:
    """Return the statement for a text with the driver's placeholders."""
    places: dict[str | int, int] = {}
    formats: list[PyFormat] = []

    def replacement(match: re.Match[str]) -> str:
        if match["format"] is None:
            return "%"
        place = places.setdefault(match["name"] or len(formats), len(formats))
        if place == len(formats):
            formats.append(PyFormat(match["format"]))
        return f"${place + 1}"

    text = _PLACEHOLDER.sub(replacement, query).encode()
    return Statement(text, tuple(formats), tuple(places))


class WireStatement(NamedTuple):
    """A statement as libpq's ``PQsendQueryParams`` takes it."""

    text: bytes
    values: Sequence[Any]
    types: tuple[int, ...]
    """Oid of each value's type."""
    formats: Sequence[Any]


async def is_direct(connection: "AsyncConnection[Any]") -> bool:
    """Return True if the connection is one backend's as long as it lasts.

    A pooler gives its clients cancellation keys of its own, with the process number of no backend.
    """
    if _RDS_PROXY in connection.info.host:
        return False
    row = await (await connection.execute("SELECT pg_backend_pid() AS pid")).fetchone()
    return row is not None and row["pid"] == connection.info.backend_pid


class PreparedStatements:
    """Sends the statements of one connection in pipeline mode, each prepared at its second execution."""

    def __init__(self) -> None:
        self._seen: set[int] = set()
        """Hashes of keys, which are texts of up to 16 KB; a collision prepares a statement too early."""
        self._names: dict[_Key, bytes] = {}  # the least recently used first
        self._made = 0
        self._expected: list[_Key | None] = []
        """For each result to come: what it prepares; None for an execution."""

    def send(self, pgconn: "PGconn", statements: Sequence[WireStatement]) -> None:
        """Send statements; ``executions`` takes all their results."""
        self._expected = []
        for statement in statements:
            key = (statement.text, statement.types)
            if (seen := hash(key)) in self._seen:
                name = self._names[key] = self._names.pop(key, b"") or self._prepare(pgconn, key)
                pgconn.send_query_prepared(name, statement.values, statement.formats)
            else:
                pgconn.send_query_params(*statement)
                if len(self._seen) >= _MOST_SEEN:
                    self._seen.clear()
                self._seen.add(seen)
            self._expected.append(None)

    def _prepare(self, pgconn: "PGconn", key: _Key) -> bytes:
        if len(self._names) >= _MOST:
            oldest = next(iter(self._names))
            pgconn.send_close_prepared(self._names.pop(oldest))
            self._expected.append(oldest)
        self._made += 1
        name = b"vf_%d" % self._made  # never used again: one whose end is unknown may still exist
        pgconn.send_prepare(name, *key)
        self._expected.append(key)
        return name

    def executions(self, results: "Sequence[PGresult]") -> "list[PGresult]":
        """Return the results of executions and the error that ended them, the last of ``results``."""
        expected, self._expected = self._expected, []
        executed = []
        for key, result in zip_longest(expected, results):
            is_error = result is None or result.status == ExecStatus.FATAL_ERROR
            if key is not None and is_error:
                self._names.pop(key, None)
            if result is not None and (key is None or is_error):
                executed.append(result)
        return executed
