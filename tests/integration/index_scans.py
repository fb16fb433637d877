"""How often PostgreSQL searched with an index, as its own statistics say."""

import psycopg


def index_scans(owner_url: str, index: str) -> int:
    """Scans of an index in a database, after ending all other connections to it.

    A connection may keep what it counted to itself until it ends, which is later than its client's close.
    """
    with psycopg.connect(owner_url, autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
        found = connection.execute(
            "SELECT idx_scan FROM pg_stat_user_indexes WHERE indexrelname = %s", (index,)
        ).fetchone()
    assert found is not None, f"there is no index {index}"
    scans: int = found[0]
    return scans
