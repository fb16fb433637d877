"""A full dump of a database, to be searched for erased data."""

import os
import subprocess

import psycopg
from psycopg.conninfo import conninfo_to_dict

from vectorforge.local.cluster import binaries

_POSTGRES = 18
"""The embedded server's version; its ``pg_dump`` reads older ones, too."""
_PASSED_ON = ("dbname", "host", "hostaddr", "port", "user", "password", "sslmode")


def dump_database(conninfo: str) -> bytes:
    """Return a dump by ``pg_dump``, with bytea values also decoded as text.

    Args:
        conninfo: Connection string of a superuser: row-level security would hide rows.
    """
    given = {name: value for name, value in conninfo_to_dict(conninfo).items() if name in _PASSED_ON}
    environment = os.environ | {f"PG{_VARIABLES[name]}": str(value) for name, value in given.items()}
    command = [str(binaries(_POSTGRES) / "pg_dump"), "--inserts"]
    dumped = subprocess.run(command, env=environment, capture_output=True, check=True)
    return dumped.stdout + _decoded(conninfo)


_VARIABLES = {
    "dbname": "DATABASE",
    "host": "HOST",
    "hostaddr": "HOSTADDR",
    "port": "PORT",
    "user": "USER",
    "password": "PASSWORD",
    "sslmode": "SSLMODE",
}


def _decoded(conninfo: str) -> bytes:
    """Return all bytea values, which a dump writes in hex."""
    columns = (
        "SELECT c.relname, a.attname FROM pg_attribute AS a JOIN pg_class AS c ON c.oid = a.attrelid"
        " WHERE c.relnamespace = 'vectorforge'::regnamespace AND c.relkind = 'r'"
        " AND a.atttypid = 'bytea'::regtype AND a.attnum > 0"
    )
    values: list[bytes] = []
    with psycopg.connect(conninfo) as connection:
        for table, column in connection.execute(columns).fetchall():
            rows = connection.execute(f'SELECT "{column}" FROM vectorforge."{table}"'.encode())
            values += [value for (value,) in rows if value is not None]
    return b"\n".join(values)
