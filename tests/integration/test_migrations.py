"""Migrations are applied once, in order, by one process at a time, and rejected when changed."""

import asyncio
import shutil
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from pydantic import SecretStr

from tests.support.postgres.pin_detector import PinDetector
from vectorforge.db.connection import Database
from vectorforge.db.login import LOGIN_ROLES
from vectorforge.db.schema.migrate import MIGRATIONS, migrate, pending, read_migrations
from vectorforge.errors import ConfigurationError, DatabaseUnavailableError, MigrationError
from vectorforge.local.postgres import EmbeddedPostgres

COUNT = len(read_migrations())


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Copy the migrations into a directory that a test may change."""
    return shutil.copytree(MIGRATIONS, tmp_path / "migrations")


def add(directory: Path, sql: str, name: str = "test") -> str:
    """Write the next migration."""
    number = len(list(directory.glob("*.sql"))) + 1
    path = directory / f"{number:04}_{name}.sql"
    path.write_text(sql)
    return path.name


def query(conninfo: str, statement: str) -> list[Any]:
    with psycopg.connect(conninfo, autocommit=True) as connection:
        return connection.execute(statement.encode()).fetchall()


async def test_migrate_empty_database_applies_every_file_once(make_database: Callable[..., str]) -> None:
    conninfo = make_database(empty=True)
    assert len(await pending(conninfo)) == COUNT
    seen: list[str] = []
    names = [migration.name for migration in read_migrations()]
    applied = await migrate(conninfo, on_progress=lambda migration: seen.append(migration.name))
    assert [migration.name for migration in applied] == seen == names
    assert await pending(conninfo) == []
    assert await migrate(conninfo) == []
    owners = query(
        conninfo,
        "SELECT DISTINCT pg_get_userbyid(relowner) FROM pg_class"
        " WHERE relnamespace = 'vectorforge'::regnamespace",
    )
    assert owners == [("vectorforge_migrator",)]


async def test_ten_concurrent_migrators_apply_each_file_once(make_database: Callable[..., str]) -> None:
    conninfo = make_database(empty=True)
    results = await asyncio.gather(*(migrate(conninfo) for _ in range(10)))
    assert sorted(len(applied) for applied in results) == [0] * 9 + [COUNT]


async def test_concurrent_databases_of_one_cluster_all_migrate(
    make_database: Callable[..., str], postgres_server: EmbeddedPostgres
) -> None:
    databases = [make_database(empty=True) for _ in range(4)]
    results = await asyncio.gather(*(migrate(conninfo) for conninfo in databases))
    assert [len(applied) for applied in results] == [COUNT] * 4


async def test_changed_file_is_rejected_by_name(make_database: Callable[..., str], directory: Path) -> None:
    conninfo = make_database()
    path = directory / read_migrations()[1].name
    path.write_text(path.read_text() + "\n-- changed")
    for call in (migrate, pending):
        with pytest.raises(MigrationError, match=path.name):
            await call(conninfo, directory=directory)


async def test_missing_file_is_rejected_by_name(make_database: Callable[..., str], directory: Path) -> None:
    conninfo = make_database()
    path = directory / read_migrations()[-1].name
    path.unlink()
    with pytest.raises(MigrationError, match=path.name):
        await migrate(conninfo, directory=directory)


@pytest.mark.parametrize("name", ["0999_gap.sql", "6_short.sql", "notes.sql", "0005_twice.sql"])
def test_invalid_file_name_is_rejected(directory: Path, name: str) -> None:
    (directory / name).write_text("SELECT 1")
    with pytest.raises(MigrationError):
        read_migrations(directory)


async def test_failing_file_is_rolled_back_and_earlier_ones_stay(
    make_database: Callable[..., str], directory: Path
) -> None:
    conninfo = make_database()
    good = add(directory, "CREATE TABLE vectorforge.good (id int);")
    bad = add(directory, "CREATE TABLE vectorforge.bad (id int); SELECT 1/0;")
    with pytest.raises(MigrationError, match=bad):
        await migrate(conninfo, directory=directory)
    assert [migration.name for migration in await pending(conninfo, directory=directory)] == [bad]
    assert query(conninfo, "SELECT to_regclass('vectorforge.bad')") == [(None,)]
    assert good in [name for (name,) in query(conninfo, "SELECT name FROM vectorforge.schema_migrations")]


async def test_concurrent_index_while_ten_wait_is_built_once(
    make_database: Callable[..., str], directory: Path
) -> None:
    conninfo = make_database()
    add(
        directory,
        "-- no-transaction\n-- Repeatable: an interrupted build leaves an invalid index.\n"
        "DROP INDEX CONCURRENTLY IF EXISTS vectorforge.by_title;\n"
        "CREATE INDEX CONCURRENTLY by_title ON vectorforge.documents (tenant_id, title);\n",
    )
    results = await asyncio.wait_for(
        asyncio.gather(*(migrate(conninfo, directory=directory) for _ in range(10))), 60
    )
    assert sorted(len(applied) for applied in results) == [0] * 9 + [1]
    valid = query(
        conninfo, "SELECT indisvalid FROM pg_index WHERE indexrelid = 'vectorforge.by_title'::regclass"
    )
    assert valid == [(True,)]


async def test_file_waiting_for_a_lock_is_retried(make_database: Callable[..., str], directory: Path) -> None:
    conninfo = make_database()
    name = add(directory, "ALTER TABLE vectorforge.documents ADD COLUMN extra int;")
    with psycopg.connect(conninfo) as other:
        other.execute("LOCK TABLE vectorforge.documents IN ACCESS SHARE MODE")
        task = asyncio.create_task(migrate(conninfo, directory=directory, lock_timeout_s=0.05))
        await asyncio.sleep(0.5)
        other.rollback()
        assert [migration.name for migration in await task] == [name]  # at a later attempt


async def test_file_without_its_lock_fails_by_name(
    make_database: Callable[..., str], directory: Path
) -> None:
    conninfo = make_database()
    name = add(directory, "ALTER TABLE vectorforge.documents ADD COLUMN extra int;")
    with psycopg.connect(conninfo) as other:
        other.execute("LOCK TABLE vectorforge.documents IN ACCESS SHARE MODE")
        with pytest.raises(MigrationError, match=name):
            await migrate(conninfo, directory=directory, lock_timeout_s=0.01, lock_patience_s=1)


async def test_second_migrator_past_its_wait_raises(
    make_database: Callable[..., str], directory: Path
) -> None:
    conninfo = make_database()
    add(directory, "SELECT pg_sleep(1);")
    first = asyncio.create_task(migrate(conninfo, directory=directory))
    await asyncio.sleep(0.3)
    with pytest.raises(MigrationError, match="Another process"):
        await migrate(conninfo, directory=directory, wait_s=0.2)
    await first


# tests/functions/test_migrate_login.py has one that created the roles itself.
async def test_role_like_rds_master_migrates(
    make_database: Callable[..., str], pin_detector: PinDetector
) -> None:
    """Not a superuser: CREATEROLE, owner of its database; the extension is there (RDS permits it)."""
    conninfo = make_database(empty=True)
    role = f"master_{uuid.uuid4().hex[:8]}"
    pin_detector.unjudged.add(role)  # migrations connect to the instance, past RDS Proxy
    with psycopg.connect(conninfo, autocommit=True) as connection:
        database = connection.info.dbname
        connection.execute(f"CREATE ROLE {role} LOGIN CREATEROLE CREATEDB".encode())
        connection.execute(f"ALTER DATABASE {database} OWNER TO {role}".encode())
        connection.execute("CREATE EXTENSION vector")
        # a superuser created the roles of this cluster; on RDS the master does
        for made in ("vectorforge_migrator", "vectorforge_dispatcher", "vectorforge_log_keeper"):
            connection.execute(f"GRANT {made} TO {role} WITH ADMIN TRUE, SET FALSE, INHERIT FALSE".encode())
        try:
            assert len(await migrate(make_conninfo(conninfo, user=role))) == COUNT
            app_url = make_conninfo(conninfo, user="vectorforge_app")
            async with Database(app_url, pool_size=1) as opened:
                await opened.for_tenant("a").execute(
                    "SELECT vectorforge.ensure_embedding_space('l2', 7, 'full')"
                )
        finally:
            connection.execute(f"ALTER DATABASE {database} OWNER TO postgres".encode())
            connection.execute(f"DROP OWNED BY {role}".encode())
            connection.execute(f"DROP ROLE {role}".encode())


async def test_passwords_are_sent_as_scram_verifiers(
    make_database: Callable[..., str], postgres_server: EmbeddedPostgres
) -> None:
    conninfo = make_database()
    password = f"pass-{uuid.uuid4()}"
    with psycopg.connect(conninfo, autocommit=True) as connection:
        database = connection.info.dbname
        connection.execute(f"ALTER DATABASE {database} SET log_statement = 'all'".encode())
    try:
        await migrate(conninfo, login_passwords={"vectorforge_eraser": SecretStr(password)})
        stored = "SELECT rolpassword FROM pg_authid WHERE rolname = 'vectorforge_eraser'"
        assert query(conninfo, stored)[0][0].startswith("SCRAM-SHA-256$")
        log = postgres_server.log_path.read_text()
        assert "ALTER ROLE" in log
        assert password not in log
    finally:
        with psycopg.connect(conninfo, autocommit=True) as connection:
            connection.execute("ALTER ROLE vectorforge_eraser PASSWORD NULL")
    with pytest.raises(MigrationError, match="postgres"):
        await migrate(conninfo, login_passwords={"postgres": SecretStr(password)})


async def test_login_roles_with_tokens_become_rds_iam_members(make_database: Callable[..., str]) -> None:
    conninfo = make_database()
    master = make_conninfo(conninfo, user=(role := f"master_{uuid.uuid4().hex[:8]}"))
    members = (
        "SELECT m.rolname FROM pg_auth_members JOIN pg_roles m ON m.oid = member"
        " JOIN pg_roles r ON r.oid = roleid WHERE r.rolname = 'rds_iam' ORDER BY m.rolname"
    )
    await migrate(conninfo, tokens=True)
    assert query(conninfo, members) == []  # without the role, the server is not RDS
    with psycopg.connect(conninfo, autocommit=True) as connection:
        connection.execute("CREATE ROLE rds_iam NOLOGIN")
        connection.execute(f"CREATE ROLE {role} LOGIN".encode())
        connection.execute(f"GRANT SELECT ON vectorforge.schema_migrations TO {role}".encode())
        connection.execute(f"GRANT USAGE ON SCHEMA vectorforge TO {role}".encode())
        try:
            with pytest.raises(MigrationError, match="rds_iam could not be granted to vectorforge_app"):
                await migrate(master, tokens=True)
            for _ in range(2):
                await migrate(conninfo, tokens=True)
                assert query(conninfo, members) == [(name,) for name in sorted(LOGIN_ROLES)]
        finally:
            connection.execute("DROP ROLE rds_iam")
            connection.execute(f"DROP OWNED BY {role}".encode())
            connection.execute(f"DROP ROLE {role}".encode())


class TestAppStartup:
    async def test_database_without_schema_is_rejected(self, make_database: Callable[..., str]) -> None:
        with pytest.raises(MigrationError, match="run `vectorforge migrate`"):
            await Database(make_conninfo(make_database(empty=True), user="vectorforge_app")).open()

    async def test_outdated_schema_is_rejected(self, make_database: Callable[..., str]) -> None:
        conninfo = make_database()
        query(conninfo, f"DELETE FROM vectorforge.schema_migrations WHERE version = {COUNT} RETURNING 1")
        with pytest.raises(
            MigrationError, match=f"version {COUNT - 1}, .*needs {COUNT}; run `vectorforge migrate`"
        ):
            await Database(make_conninfo(conninfo, user="vectorforge_app")).open()

    async def test_newer_schema_is_accepted(self, make_database: Callable[..., str], directory: Path) -> None:
        conninfo = make_database()
        add(directory, "SELECT 1;")
        await migrate(conninfo, directory=directory)
        async with Database(make_conninfo(conninfo, user="vectorforge_app"), pool_size=1) as database:
            assert (await database.health()).healthy

    async def test_unreachable_server_raises_without_password(self, tmp_path: Path) -> None:
        conninfo = make_conninfo(
            host=str(tmp_path), user="vectorforge_app", dbname="vectorforge", password="hush"
        )
        with pytest.raises(DatabaseUnavailableError) as caught:
            await Database(conninfo).open()
        assert "hush" not in str(caught.value)
        with pytest.raises(DatabaseUnavailableError):
            await migrate(conninfo)

    async def test_invalid_connection_string_raises(self) -> None:
        with pytest.raises(ConfigurationError):
            await Database("this is not one").open()
