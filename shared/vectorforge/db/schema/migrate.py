"""Bring the database schema up to date: numbered SQL files, each applied once, in order, never reverted.

The first files are the baseline of version 0.1.0, one subject each; later versions add files and never
change one. A file ``NNNN_name.sql`` runs in one transaction together with the record that it was applied. A
file whose first line is ``-- no-transaction`` runs statement by statement (each ends with ``;`` at the end of
a line), for ``CREATE INDEX CONCURRENTLY``; its statements must be repeatable, since a crash may leave some of
them applied.
"""

import asyncio
import hashlib
import itertools
import re
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import SecretStr

from vectorforge.db.errors import connect_error
from vectorforge.db.login import let_in_with_tokens, set_passwords
from vectorforge.errors import DatabaseLoginError, MigrationError

if TYPE_CHECKING:
    from psycopg import AsyncConnection

MIGRATIONS = Path(__file__).parents[1] / "migrations"

_FILE_NAME = re.compile(r"(\d{4})_[a-z0-9_]+\.sql")
_NO_TRANSACTION = "-- no-transaction"
_LOCK_KEY = int.from_bytes(hashlib.sha256(b"vectorforge.migrations").digest()[:8], "big", signed=True)
_LONGEST_PAUSE_S = 4.0
"""Longest backoff between two attempts to get the locks."""

_TRY_LOCK = f"SELECT pg_try_advisory_xact_lock({_LOCK_KEY})"
_RECORD_EXISTS = "SELECT to_regclass('vectorforge.schema_migrations') IS NOT NULL"
_APPLIED = "SELECT version, name, sha256 FROM vectorforge.schema_migrations ORDER BY version"
_MISSING_ROLES = """
SELECT role FROM unnest(ARRAY[
    'vectorforge_app', 'vectorforge_log_writer', 'vectorforge_eraser',
    'vectorforge_migrator', 'vectorforge_dispatcher', 'vectorforge_log_keeper'
]) AS role WHERE to_regrole(role) IS NULL
"""
_RECORD = "INSERT INTO vectorforge.schema_migrations (version, name, sha256) VALUES (%s, %s, %s)"


@dataclass(frozen=True, slots=True)
class Migration:
    """One numbered SQL file."""

    version: int
    name: str
    """File name."""
    sql: str

    @property
    def sha256(self) -> bytes:
        """Checksum of the file's text, 32 bytes."""
        return hashlib.sha256(self.sql.encode()).digest()

    @property
    def in_transaction(self) -> bool:
        """True if the whole file runs in one transaction."""
        return not self.sql.startswith(_NO_TRANSACTION)


@dataclass(frozen=True, slots=True)
class AppliedMigration:
    """A migration applied by a call of ``migrate``."""

    version: int
    name: str
    duration_ms: float


def read_migrations(directory: Path = MIGRATIONS) -> list[Migration]:
    """Return the migrations of a directory, by number.

    Raises:
        MigrationError: A file name is not ``NNNN_name.sql``, or a number is missing or used twice.
    """
    migrations = []
    for path in sorted(directory.glob("*.sql")):
        match = _FILE_NAME.fullmatch(path.name)
        if match is None:
            raise MigrationError(f"Migration files must be named NNNN_name.sql; found {path.name}.")
        migrations.append(Migration(int(match[1]), path.name, path.read_text(encoding="utf-8")))
    for expected, migration in enumerate(migrations, start=1):
        if migration.version != expected:
            raise MigrationError(f"Expected migration {expected:04}, found {migration.name}.")
    return migrations


async def migrate(
    conninfo: str,
    *,
    on_progress: Callable[[Migration], None] | None = None,
    login_passwords: Mapping[str, SecretStr] | None = None,
    tokens: bool = False,
    accept_newer: bool = False,
    directory: Path = MIGRATIONS,
    lock_timeout_s: float = 1.5,
    lock_patience_s: float = 30.0,
    wait_s: float = 600.0,
) -> list[AppliedMigration]:
    """Apply the pending migrations. Concurrent calls are safe: one process applies, the others wait.

    Args:
        conninfo: Connection string of a role with CREATEROLE that may create the schema and the ``vector``
            extension.
        on_progress: Called before each migration is applied.
        login_passwords: New passwords of ``LOGIN_ROLES``; sent as SCRAM verifiers, never in plain text.
        tokens: True if these roles log in with IAM tokens. On RDS they must be members of the role
            ``rds_iam``; it is granted to them where it exists.
        accept_newer: Accept a database that a newer version has migrated, which also serves this version
            (see ``check_schema``); otherwise it is an error.
        directory: Directory of the migration files.
        lock_timeout_s: Longest wait for a table lock in one attempt; queries queue behind the wait.
        lock_patience_s: Seconds after which a file that cannot get its locks fails. Between attempts it backs
            off, outside of every queue.
        wait_s: Longest wait for another process that is migrating.

    Returns:
        The migrations applied by this call, in order; empty if none was pending.

    Raises:
        MigrationError: An applied file has changed or is missing, the roles are missing, a file failed (the
            earlier ones stay applied), or a wait timed out.
        DatabaseUnavailableError: No connection; see ``connect_error`` for its kinds.
    """
    migrations = read_migrations(directory)
    applied = []
    async with (
        migrator_connection(conninfo) as connection,
        migrator_connection(conninfo) as guard,
        _alone(guard, wait_s),
    ):
        for migration in await _pending(connection, migrations, accept_newer=accept_newer):
            if on_progress:
                on_progress(migration)
            started = time.perf_counter()
            await _apply(connection, migration, lock_timeout_s, lock_patience_s)
            elapsed_ms = (time.perf_counter() - started) * 1000
            applied.append(AppliedMigration(migration.version, migration.name, elapsed_ms))
        await set_passwords(connection, login_passwords or {})
        if tokens:
            await let_in_with_tokens(connection)
    return applied


async def pending(
    conninfo: str, *, directory: Path = MIGRATIONS, accept_newer: bool = False
) -> list[Migration]:
    """Return the migrations that are not applied yet, in order; ``accept_newer`` as for ``migrate``.

    Raises:
        MigrationError: An applied file has changed or is missing.
        DatabaseUnavailableError: No connection.
    """
    migrations = read_migrations(directory)
    async with migrator_connection(conninfo) as connection:
        return await _pending(connection, migrations, accept_newer=accept_newer)


@asynccontextmanager
async def migrator_connection(conninfo: str) -> "AsyncIterator[AsyncConnection[Any]]":
    """Connect as the migrating role, with autocommit.

    Raises:
        DatabaseUnavailableError: No connection; see ``connect_error`` for its kinds.
    """
    import psycopg

    try:
        connection = await psycopg.AsyncConnection.connect(
            conninfo, autocommit=True, prepare_threshold=None, connect_timeout=10
        )
    except psycopg.Error as exc:
        error = connect_error(exc, conninfo)
        if isinstance(error, DatabaseLoginError):
            raise DatabaseLoginError("The database rejected the migrator's role or password.") from exc
        raise error from exc
    async with connection:
        yield connection


@asynccontextmanager
async def _alone(guard: "AsyncConnection[Any]", wait_s: float) -> AsyncIterator[None]:
    """Hold the migrators' lock, in a transaction of a separate connection.

    The lock is not session state, so it works through a pooler, and it ends if this process is killed.

    ``CREATE INDEX CONCURRENTLY`` waits for every transaction that holds a snapshot when it starts. So no
    process may wait for the lock inside a transaction: each attempt is a separate one. And the statement has
    no parameters, because a statement with parameters leaves an open portal, which holds its snapshot.
    """
    give_up_at = time.monotonic() + wait_s
    while True:
        async with guard.transaction():
            if (await _fetch(guard, _TRY_LOCK))[0][0]:
                yield
                return
        if time.monotonic() > give_up_at:
            raise MigrationError(f"Another process is still migrating after {wait_s:g} s.")
        await asyncio.sleep(0.1)


async def _pending(
    connection: "AsyncConnection[Any]", migrations: Sequence[Migration], *, accept_newer: bool = False
) -> list[Migration]:
    applied: dict[int, tuple[str, bytes]] = {}
    if (await _fetch(connection, _RECORD_EXISTS))[0][0]:
        applied = {version: (name, digest) for version, name, digest in await _fetch(connection, _APPLIED)}
    if applied and (missing := await _fetch(connection, _MISSING_ROLES)):
        raise MigrationError(
            f"The database was restored without the roles {', '.join(role for (role,) in missing)}, and "
            "without their permissions. Create the roles with `vectorforge migrate` on an empty database of "
            "this server, then restore the dump again."
        )
    known = {migration.version: migration for migration in migrations}
    for version, (name, digest) in applied.items():
        if version not in known:
            if accept_newer and version > len(migrations):
                continue
            raise MigrationError(f"The database has migration {name}, which this version does not include.")
        if known[version].sha256 != digest:
            raise MigrationError(f"Migration {known[version].name} was changed after it was applied.")
    return [migration for migration in migrations if migration.version not in applied]


async def _apply(
    connection: "AsyncConnection[Any]", migration: Migration, lock_timeout_s: float, patience_s: float
) -> None:
    import psycopg

    give_up_at = time.monotonic() + patience_s
    for attempt in itertools.count(1):
        try:
            if migration.in_transaction:
                await _run_in_transaction(connection, migration, lock_timeout_s)
            else:
                await _run_by_statement(connection, migration)
        except (psycopg.errors.LockNotAvailable, psycopg.errors.DeadlockDetected) as exc:
            pause_s = min(0.2 * 2**attempt, _LONGEST_PAUSE_S)
            if time.monotonic() + pause_s > give_up_at:
                raise MigrationError(
                    f"Migration {migration.name} could not get its locks in {attempt} attempts; retry later."
                ) from exc
            await asyncio.sleep(pause_s)
        except psycopg.Error as exc:
            raise MigrationError(f"Migration {migration.name} failed ({type(exc).__name__}).") from exc
        else:
            return


async def _run_in_transaction(
    connection: "AsyncConnection[Any]", migration: Migration, lock_timeout_s: float
) -> None:
    async with connection.transaction():
        timeout = f"{int(lock_timeout_s * 1000)}ms"
        await connection.execute("SELECT set_config('lock_timeout', %s, true)", (timeout,))
        await connection.execute(migration.sql.encode())
        await _record(connection, migration)


async def _run_by_statement(connection: "AsyncConnection[Any]", migration: Migration) -> None:
    # No lock_timeout: CONCURRENTLY waits by design, and blocks no other statement.
    for statement in re.split(r";[ \t]*$", migration.sql, flags=re.MULTILINE):
        if re.sub(r"--.*$", "", statement, flags=re.MULTILINE).strip():
            await connection.execute(statement.encode())
    async with connection.transaction():
        await _record(connection, migration)


async def _record(connection: "AsyncConnection[Any]", migration: Migration) -> None:
    await connection.execute("SET LOCAL ROLE vectorforge_migrator")
    await connection.execute(_RECORD, (migration.version, migration.name, migration.sha256))


async def _fetch(connection: "AsyncConnection[Any]", query: str) -> list[Any]:
    cursor = await connection.execute(query.encode())
    return await cursor.fetchall()
