"""Connections that the functions of a stage without RDS Proxy may open, and that PostgreSQL accepts.

A function has as many processes as concurrent invocations, and each keeps its pool open while it is frozen.
The server ends a connection that was idle for ``IDLE_S``, so a process that is gone holds none for longer.
"""

from typing import Final

from infra.setting_types import DatabaseSettings, FunctionSettings

QUERY_CONNECTIONS: Final = 2
"""Pool of one process, which serves one query at a time."""
INGEST_CONNECTIONS: Final = 4
"""One runs a job and one renews its lease; a bulk load ingests four objects at a time."""
LOG_WRITER_CONNECTIONS: Final = 2
"""One, and another while the first is checked."""
RESERVED: Final = 15
"""PostgreSQL's three and RDS's two for superusers, three of RDS itself, six of migrations, one operator."""
IDLE_S: Final = 120
"""Seconds until the server ends an idle connection; the next query then opens one."""
GENERATIONS: Final = 2
"""After a deployment, processes of the previous version hold their connections for ``IDLE_S``."""
_LOOKS: Final = 1
"""Concurrent invocations of the ingest function by its schedule."""


def most_connections(
    query: FunctionSettings, log_writer: FunctionSettings, ingest: FunctionSettings
) -> int | None:
    """Return the connections of all functions at their bounds; None if one has no bound.

    The ingest function has two callers that are bounded alike: its queue and the bulk load.
    """
    bounds = (query.max_concurrency, log_writer.max_concurrency, ingest.max_concurrency)
    if None in bounds:
        return None
    queries, writers, jobs = (bound or 0 for bound in bounds)
    return GENERATIONS * (
        queries * QUERY_CONNECTIONS
        + writers * LOG_WRITER_CONNECTIONS
        + (2 * jobs + _LOOKS) * INGEST_CONNECTIONS
    )


def connection_problem(
    database: DatabaseSettings,
    *,
    query: FunctionSettings,
    log_writer: FunctionSettings,
    ingest: FunctionSettings,
) -> str | None:
    """Return why the functions could exhaust the instance's connections; None if they cannot."""
    if database.proxy:
        return None
    opened = most_connections(query, log_writer, ingest)
    if opened is None:
        return (
            "database.proxy=False requires max_concurrency of query, log_writer and ingest: each process "
            "holds connections of the instance."
        )
    free = database.max_connections - RESERVED
    if opened <= free:
        return None
    possible = (query.max_concurrency or 0) - -(-(opened - free) // (GENERATIONS * QUERY_CONNECTIONS))
    remedy = f"lower query.max_concurrency to at most {possible}, " if possible > 0 else ""
    return (
        f"The functions could open {opened} connections; db.{database.instance_type} has {free} for them "
        f"({database.max_connections}, less {RESERVED} reserved): {remedy}choose a larger instance_type, or "
        "set database.proxy."
    )
