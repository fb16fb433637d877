"""Rows that PostgreSQL reads for each transaction of an application, by its own statistics.

They are exact: each transaction of ``CountedDatabase`` reports its counts before the next one begins, instead
of once in a second (https://www.postgresql.org/docs/current/monitoring-stats.html).
"""

from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import psycopg

from vectorforge.db.connection import Database

if TYPE_CHECKING:
    from vectorforge.db.session import Session
    from vectorforge.db.tenant_database import Call, Outcome

_REPORT = "SELECT pg_stat_force_next_flush()"
_READ = """
SELECT relname AS name, seq_tup_read AS rows FROM pg_stat_user_tables WHERE schemaname = 'vectorforge'
UNION ALL
SELECT indexrelname, idx_tup_read FROM pg_stat_user_indexes WHERE schemaname = 'vectorforge'
"""


class CountedDatabase(Database):
    """A database whose connections report what they have read after each transaction."""

    @asynccontextmanager
    async def connection(self) -> "AsyncIterator[Session]":
        """See ``Database.connection``."""
        async with super().connection() as connection:
            yield connection
            await connection.execute(_REPORT)

    async def run(self, calls: "Sequence[Call]", *, repeatable: bool = False) -> "list[Outcome]":
        """See ``Database.run``."""
        return (await super().run([*calls, (_REPORT, ())], repeatable=repeatable))[:-1]


def rows_read(owner_url: str) -> Counter[str]:
    """Return the rows and index entries that were read, by table (without an index) and by index."""
    with psycopg.connect(owner_url, autocommit=True) as connection:
        return Counter(dict(connection.execute(_READ).fetchall()))
