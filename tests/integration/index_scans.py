"""Number of PostgreSQL's index scans, by its own statistics."""

import psycopg


def index_scans(owner_url: str, index: str) -> int:
    """Return the scans of an index, after ending all other connections to the database.

    A connection may report its counts only when it ends, which is later than its client's close.
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
