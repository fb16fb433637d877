"""Statements as one transaction: sent at once where that is one, else between BEGIN and COMMIT."""

import logging
import secrets
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

from vectorforge.errors import DatabaseUnavailableError

if TYPE_CHECKING:
    from vectorforge.db.exchange import Call, Outcome
    from vectorforge.db.session import Session

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
