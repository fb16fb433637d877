"""A real PostgreSQL for the tests: one embedded server per session, direct and through PgBouncer."""

import asyncio
import logging
import os
import shutil
import tempfile
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import hypothesis
import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from tests.support.postgres.databases import TEMPLATE, create_database, drop_database
from tests.support.postgres.pgbouncer import PGBOUNCER, PgBouncer
from tests.support.postgres.pin_detector import PinDetector
from tests.support.postgres.standby import Replicated, Standby
from vectorforge.db.connection import Database
from vectorforge.db.schema.migrate import migrate
from vectorforge.db.tenant_database import TenantDatabase
from vectorforge.local.postgres import EmbeddedPostgres

pytest_plugins = [
    "tests.support.postgres.pin_plugin",
    "tests.support.aws.service_models_plugin",
    "tests.flaky_plugin",
    "tests.collection_plugin",
]

# No test depends on tiktoken's tables, which `make run` may have fetched on this machine.
os.environ.setdefault("TIKTOKEN_CACHE_DIR", "/no/tables")
# Nor on the settings of the shell, such as the key of a model that `make run` is to use.
for variable in [name for name in os.environ if name.startswith("VECTORFORGE_")]:
    del os.environ[variable]

# A busy machine must not fail a test. Each run draws other examples.
hypothesis.settings.register_profile("suite", deadline=None, max_examples=40)
hypothesis.settings.load_profile("suite")


_MEMORY_BYTES = 6 * 1024**3
"""Free space that the databases of all workers and the shared memory of other programs need together."""


class ObservedPostgres(EmbeddedPostgres):
    """An embedded server whose connection strings all lead through a pin detector.

    This includes the migrator's, which the detector does not judge: tests derive the app's from it.
    """

    def __init__(self, data_dir: Path, detector: PinDetector, *, settings: dict[str, str]) -> None:
        super().__init__(data_dir, settings=settings)
        self._detector = detector

    def start(self) -> None:
        super().start()
        self._detector.listen(self.socket)

    @property
    def socket(self) -> Path:
        """The server's own socket, which bypasses the detector."""
        return Path(str(conninfo_to_dict(super().app_url)["host"]), ".s.PGSQL.5432")

    @property
    def app_url(self) -> str:
        return self._observed(super().app_url)

    @property
    def migrator_url(self) -> str:
        return self._observed(super().migrator_url)

    @property
    def log_writer_url(self) -> str:
        return self._observed(super().log_writer_url)

    def _observed(self, conninfo: str) -> str:
        return make_conninfo(conninfo, host=str(self._detector.directory))


@pytest.fixture(autouse=True)
def library_logger() -> Iterator[None]:
    """Restore the library's logger after a Lambda function has configured it in this process."""
    logger = logging.getLogger("vectorforge")
    before = (logger.level, logger.propagate, logger.handlers[:])
    yield
    level, logger.propagate, logger.handlers[:] = before
    for mark in (
        "init",
        "powertools_handler",
    ):  # marks by which Powertools recognizes a logger that it has set up
        vars(logger).pop(mark, None)
    logger.setLevel(level)  # also clears the levels cached by its children


def _memory() -> Path | None:
    """Return Linux's file system in memory, where a database is copied in an eighth of the time, or None."""
    folder = Path("/dev/shm")  # noqa: S108 - directories in it are created by mkdtemp
    enough = folder.is_dir() and os.access(folder, os.W_OK) and shutil.disk_usage(folder).free > _MEMORY_BYTES
    return folder if enough else None


@pytest.fixture(scope="session")
def private_dir() -> Iterator[Callable[[str], Path]]:
    """Create directories with short paths (for Unix sockets) that other accounts may traverse."""
    made: list[Path] = []
    parent = _memory()

    def make(name: str) -> Path:
        made.append(Path(tempfile.mkdtemp(prefix=f"vf-{name}-", dir=parent)))
        made[-1].chmod(0o755)
        return made[-1]

    yield make
    for directory in made:
        shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture(scope="session")
def postgres_server(
    private_dir: Callable[[str], Path], pin_detector: PinDetector
) -> Iterator[ObservedPostgres]:
    """Start the embedded server of this session, with a migrated database ``vectorforge``."""
    settings = {"max_connections": "300", "fsync": "off", "max_wal_size": "256MB"}
    server = ObservedPostgres(private_dir("pg") / "data", pin_detector, settings=settings)
    server.start()
    asyncio.run(migrate(server.migrator_url))
    with psycopg.connect(
        make_conninfo(server.migrator_url, dbname="postgres"), autocommit=True
    ) as connection:
        connection.execute(f"CREATE DATABASE {TEMPLATE} TEMPLATE vectorforge")
    yield server
    server.stop(force=True)


@pytest.fixture(scope="session")
def replicated(private_dir: Callable[[str], Path]) -> Iterator[Replicated]:
    """Start a server with a migrated database, and a physical standby of it."""
    settings = {"max_connections": "100", "fsync": "off"}
    writer = EmbeddedPostgres(private_dir("writer") / "data", settings=settings)
    writer.start()
    asyncio.run(migrate(writer.migrator_url))
    standby = Standby(writer.data_dir / ".s.PGSQL.5432", private_dir("standby") / "data", settings=settings)
    standby.start()
    yield Replicated(writer, standby)
    standby.stop(force=True)
    writer.stop(force=True)


@pytest.fixture(scope="session")
def pgbouncer(
    postgres_server: ObservedPostgres, pin_detector: PinDetector, private_dir: Callable[[str], Path]
) -> Iterator[PgBouncer]:
    """Start PgBouncer in front of ``postgres_server``, with five server connections per database and role.

    The pin detector is between PgBouncer and its clients, since PgBouncer's own statements do not matter.
    """
    if not Path(PGBOUNCER).exists() and "CI" not in os.environ:
        pytest.skip("PgBouncer is not installed: apt-get install pgbouncer")
    with PgBouncer(private_dir("pgb"), postgres_server.socket) as bouncer:
        pin_detector.listen(bouncer.socket)
        bouncer.host = pin_detector.directory
        yield bouncer


@pytest.fixture(params=["direct", pytest.param("pgbouncer", marks=pytest.mark.pgbouncer)])
def each_app_url(request: pytest.FixtureRequest, postgres_server: EmbeddedPostgres) -> str:
    """Return the connection string of the app role, once direct and once through PgBouncer.

    For tests of transactions, tenants and connections, and for the vector store's contract. Others use
    ``app_url``: the same statements, in the way that restricts them more.
    """
    if request.param == "direct":
        return postgres_server.app_url
    bouncer: PgBouncer = request.getfixturevalue("pgbouncer")
    return bouncer.route(postgres_server.app_url)


@pytest.fixture(scope="session")
def app_url(request: pytest.FixtureRequest, postgres_server: EmbeddedPostgres) -> str:
    """Return the connection string of the app role through PgBouncer, or direct where it is missing."""
    if not Path(PGBOUNCER).exists() and "CI" not in os.environ:
        return postgres_server.app_url
    bouncer: PgBouncer = request.getfixturevalue("pgbouncer")
    return bouncer.route(postgres_server.app_url)


@pytest.fixture
def database_url(app_url: str) -> str:
    """Return the connection string of ``database``; modules that also test direct connections override it."""
    return app_url


@pytest.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    """The migrated database as the app sees it. Shared by the session: use fresh tenants."""
    async with Database(database_url, pool_size=5, timeout_s=10) as opened:
        yield opened


@pytest.fixture
async def direct_database(postgres_server: EmbeddedPostgres) -> AsyncIterator[Database]:
    """Like ``database``, directly only."""
    async with Database(postgres_server.app_url, pool_size=5, timeout_s=10) as opened:
        yield opened


@pytest.fixture
def make_tenant() -> Callable[[], str]:
    """Create tenants that no other test uses."""
    return lambda: f"tenant-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def tenant_db(database: Database, make_tenant: Callable[[], str]) -> TenantDatabase:
    """The database as a fresh tenant sees it."""
    return database.for_tenant(make_tenant())


@pytest.fixture
def other_tenant_db(database: Database, make_tenant: Callable[[], str]) -> TenantDatabase:
    """The same database as another fresh tenant sees it."""
    return database.for_tenant(make_tenant())


@pytest.fixture
def make_database(postgres_server: EmbeddedPostgres) -> Iterator[Callable[..., str]]:
    """Create separate databases and return the migrator's connection string; ``empty=True`` has no schema."""
    made: list[str] = []

    def make(*, empty: bool = False) -> str:
        made.append(create_database(postgres_server.migrator_url, empty=empty))
        return made[-1]

    yield make
    for url in made:
        drop_database(url)


@pytest.fixture
def fresh_database_url(make_database: Callable[..., str]) -> str:
    """Create a migrated database for one test; return the app role's connection string."""
    return make_conninfo(make_database(), user="vectorforge_app")
