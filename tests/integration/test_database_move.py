"""Move of a stage's rows into another stage's database, by the commands of the documentation."""

import os
import re
import subprocess
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from tests.integration.repository_rows import add_document, count, make_collection
from tests.support.postgres.pin_detector import PinDetector
from vectorforge.db.connection import Database
from vectorforge.db.schema.migrate import migrate
from vectorforge.local.cluster import binaries
from vectorforge.local.postgres import EmbeddedPostgres

PAGE = Path(__file__).parents[2] / "docs" / "operate" / "readers.md"
_FORCED = """
SELECT count(*), count(*) FILTER (WHERE relforcerowsecurity) FROM pg_class
WHERE relnamespace = 'vectorforge'::regnamespace AND relrowsecurity
"""
_CREATORS = """
SELECT count(*) FROM unnest(ARRAY['vectorforge_dispatcher', 'vectorforge_log_keeper']) AS role
WHERE has_schema_privilege(role, 'vectorforge', 'CREATE')
"""


@pytest.fixture
def owner(postgres_server: EmbeddedPostgres, pin_detector: PinDetector) -> Iterator[str]:
    """Create a role like RDS's master user: it may create roles, but is not a superuser."""
    role = f"owner_{uuid.uuid4().hex[:8]}"
    pin_detector.unjudged.add(role)  # migrations connect to the instance, past RDS Proxy
    with psycopg.connect(postgres_server.migrator_url, autocommit=True) as connection:
        connection.execute(f"CREATE ROLE {role} LOGIN CREATEROLE CREATEDB".encode())
        for made in ("vectorforge_migrator", "vectorforge_dispatcher", "vectorforge_log_keeper"):
            connection.execute(f"GRANT {made} TO {role} WITH ADMIN TRUE, SET FALSE, INHERIT FALSE".encode())
        yield role
        connection.execute(f"DROP OWNED BY {role}".encode())
        connection.execute(f"DROP ROLE {role}".encode())


@pytest.fixture
def databases(owner: str, make_database: Callable[..., str]) -> Iterator[list[str]]:
    """Create the old database and the new one, as the owner's, and return their connection strings."""
    urls = [make_database(empty=True) for _ in range(2)]
    for url in urls:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("CREATE EXTENSION vector")
            connection.execute(f"ALTER DATABASE {connection.info.dbname} OWNER TO {owner}".encode())
    yield urls
    for url in urls:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(f"ALTER DATABASE {connection.info.dbname} OWNER TO postgres".encode())
            connection.execute(f"DROP OWNED BY {owner}".encode())


def commands() -> str:
    """Return the page's commands, which share their variables."""
    move = PAGE.read_text(encoding="utf-8").split("### Move from RDS to Aurora")[1].split("\n## ")[0]
    return "\n".join(re.findall(r"```bash\n(.*?)```", move, re.DOTALL))


def run_commands(script: str, folder: Path, *, socket: Path, owner: str, old: str, new: str) -> None:
    """Run a script of the page with ``as-owner``, for which a socket and a database stand for a host."""
    command = folder / "as-owner"
    # The copy has its own host there, and here its own database.
    command.write_text(
        '#!/bin/bash\n[ "$PGHOST" != copy ] || { PGDATABASE=$OLD; PGHOST=$SOCKET; }\nexec "$@"\n'
    )
    command.chmod(0o755)
    environment = {
        "PATH": f"{folder}:{binaries(18)}:{os.environ['PATH']}",
        "COPY": "copy",
        "OLD": old,
        "SOCKET": str(socket),
        "PGHOST": str(socket),
        "PGDATABASE": new,
        "PGUSER": owner,
    }
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=folder, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


async def test_documented_move_keeps_rows_and_isolation_of_all_tenants(
    databases: list[str], owner: str, postgres_server: EmbeddedPostgres, tmp_path: Path
) -> None:
    old, new = databases
    tenants = ("acme", "umbrella")
    for url in databases:
        await migrate(make_conninfo(url, user=owner))
    async with Database(make_conninfo(old, user="vectorforge_app"), pool_size=1) as opened:
        for tenant in tenants:
            db = opened.for_tenant(tenant)
            await add_document(db, await make_collection(db))
    names = [str(conninfo_to_dict(url)["dbname"]) for url in databases]
    run_commands(
        commands(), tmp_path, socket=postgres_server.data_dir, owner=owner, old=names[0], new=names[1]
    )
    assert await migrate(make_conninfo(new, user=owner)) == []
    with psycopg.connect(new) as connection:
        forced = connection.execute(_FORCED).fetchone()
        assert forced is not None
        assert forced[0] == forced[1] > 30
        assert connection.execute(_CREATORS).fetchone() == (0,)
    async with Database(make_conninfo(new, user="vectorforge_app"), pool_size=1) as opened:
        for tenant in (*tenants, "other"):
            db = opened.for_tenant(tenant)
            expected = 0 if tenant == "other" else 1
            assert await count(db, "documents") == expected
            assert await count(db, "embeddings") == expected
        await add_document(db, await make_collection(db))  # triggers and partitions are there, too
        assert await count(db, "embeddings") == 1
