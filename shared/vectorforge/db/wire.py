"""Statements as libpq takes them: the driver's placeholders become PostgreSQL's, once for each text.

Several statements in one round trip and one transaction, past the driver's cursors.

In libpq's pipeline mode all statements up to a Sync are one transaction, which needs no BEGIN and no COMMIT:
https://www.postgresql.org/docs/17/protocol-flow.html#PROTOCOL-FLOW-PIPELINING. The driver's own pipeline
takes several times the processor time, in tasks and objects for what may come.
"""

import asyncio
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias

import psycopg
from psycopg import errors
from psycopg.adapt import PyFormat, Transformer
from psycopg.pq import ConnStatus, ExecStatus

from vectorforge.db.tenant_database import Params

if TYPE_CHECKING:
    from psycopg.pq.abc import PGresult
    from psycopg.rows import DictRow

    from vectorforge.db.session import Session


_PLACEHOLDER = re.compile(r"%(?:%|(?:\((?P<name>\w+)\))?(?P<format>[sbt]))")
_FORMATS = {"s": PyFormat.AUTO, "b": PyFormat.BINARY, "t": PyFormat.TEXT}


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement's text with ``$1``, ``$2`` and so on in place of the driver's placeholders.

    The driver itself converts a text of more than 4,096 characters at every execution, as those of searches
    are. What the placeholders mean: https://www.psycopg.org/psycopg3/docs/basic/params.html.
    """

    text: bytes
    formats: tuple[PyFormat, ...]
    """Of the values, in their order."""
    names: tuple[str, ...] | None
    """Of the values, in their order; None: they are known by their places."""
    columns: list[str] = field(default_factory=list, compare=False)
    """Names of its results' columns, once it has given some: a statement's are always the same."""

    def values(self, params: Params) -> Sequence[Any]:
        """The values in the statement's order; named ones that it does not ask for are left out.

        Raises:
            psycopg.ProgrammingError: One is missing, or there are too many by place.
        """
        if self.names is not None and isinstance(params, Mapping):
            try:
                return [params[name] for name in self.names]
            except KeyError as exc:
                raise psycopg.ProgrammingError("A value of the statement is missing.") from exc
        if isinstance(params, Mapping) and not self.formats:
            return ()
        if self.names is not None or isinstance(params, Mapping) or len(params) != len(self.formats):
            raise psycopg.ProgrammingError("The values are not those of the statement.")
        return params


@lru_cache(maxsize=256)
def compiled(query: str) -> Statement:
    """The statement of a text with the driver's placeholders."""
    places: dict[str, int] = {}
    formats: list[PyFormat] = []
    is_named = False

    def replacement(match: re.Match[str]) -> str:
        nonlocal is_named
        if match["format"] is None:
            return "%"
        is_named = is_named or match["name"] is not None
        place = places.setdefault(match["name"] or f"{len(formats)}", len(formats))
        if place == len(formats):
            formats.append(_FORMATS[match["format"]])
        return f"${place + 1}"

    text = _PLACEHOLDER.sub(replacement, query).encode()
    return Statement(text, tuple(formats), tuple(places) if is_named else None)


Call: TypeAlias = "tuple[str, Params]"
"""A statement with the driver's placeholders, and its values."""
Outcome: TypeAlias = "tuple[list[DictRow], int]"
"""The rows of a statement, and how many they are, or how many it changed."""
_VOID = 2278
"""Type of what a function returns that is only called (pg_type.dat): no row of anything."""
_SUCCESSES = (ExecStatus.TUPLES_OK, ExecStatus.COMMAND_OK)


class Exchange:
    """Sends statements over one connection, which no one else uses meanwhile, and reads their results.

    Args:
        session: Used by nobody else while statements run, and outside a transaction.
    """

    def __init__(self, session: "Session") -> None:
        self._session = session
        self._transformer = Transformer(session)

    async def run(self, calls: "Sequence[Call]") -> "list[Outcome]":
        """The outcomes of all, committed; when one fails, nothing of any is left.

        When the task is cancelled, the server is asked to stop, and the connection is given up if it does
        not soon.

        Raises:
            psycopg.Error: What the first statement to fail failed with.
        """
        statements = [compiled(query) for query, _ in calls]
        dumped = [
            self._dumped(statement, params) for statement, (_, params) in zip(statements, calls, strict=True)
        ]
        session, pgconn = self._session, self._session.pgconn
        session.watch(session.timeout_s)
        try:
            pgconn.enter_pipeline_mode()
            for arguments in dumped:
                pgconn.send_query_params(*arguments)
            pgconn.pipeline_sync()
            results = await self._results()
            pgconn.exit_pipeline_mode()
        except asyncio.CancelledError:
            await self._stop()
            raise
        except BaseException:
            session.give_up()  # what it would say next belongs to nobody
            raise
        finally:
            session.watch(None)
        for result in results:
            if result.status not in _SUCCESSES:
                raise errors.error_from_result(result, self._transformer.encoding)
        return [
            (self._rows(statement, result), result.ntuples or result.command_tuples or 0)
            for statement, result in zip(statements, results, strict=True)
        ]

    def _rows(self, statement: Statement, result: "PGresult") -> "list[DictRow]":
        """What the driver's ``dict_row`` makes of a result."""
        if not result.ntuples or result.ftype(0) == _VOID:
            return []
        names = statement.columns
        if len(names) != result.nfields:
            names[:] = [(result.fname(column) or b"").decode() for column in range(result.nfields)]
        transformer = self._transformer
        transformer.set_pgresult(result)
        try:
            return transformer.load_rows(0, result.ntuples, lambda row: dict(zip(names, row, strict=True)))
        finally:
            transformer.set_pgresult(None)

    def _dumped(self, statement: Statement, params: "Params") -> tuple[Any, ...]:
        """The arguments of libpq's ``PQsendQueryParams``."""
        values = statement.values(params)
        if not values:
            return (statement.text, None)
        transformer = self._transformer
        dumped = transformer.dump_sequence(values, statement.formats)
        return (statement.text, dumped, transformer.types, transformer.formats)

    async def _results(self) -> "list[PGresult]":
        """What comes until the Sync is answered."""
        session, pgconn = self._session, self._session.pgconn
        while pgconn.flush():
            await session.until_ready(to_write=True)
            pgconn.consume_input()
        results: list[PGresult] = []
        while True:
            while not pgconn.is_busy():
                result = pgconn.get_result()
                if result is None:
                    if pgconn.status != ConnStatus.OK:
                        raise psycopg.OperationalError("The connection was lost.")
                elif result.status == ExecStatus.PIPELINE_SYNC:
                    return results
                elif result.status != ExecStatus.PIPELINE_ABORTED:
                    results.append(result)
            await session.until_ready()
            pgconn.consume_input()

    async def _stop(self) -> None:
        pgconn = self._session.pgconn
        try:
            await self._session.cancel_safe()
            await self._results()
            pgconn.exit_pipeline_mode()
        except psycopg.Error:
            self._session.give_up()
        except BaseException:
            self._session.give_up()
            raise
