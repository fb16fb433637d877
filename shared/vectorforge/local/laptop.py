"""Setup of one machine: data folder, shared embedded database, index builds and sample documents."""

import asyncio
import fcntl
import logging
import os
import selectors
import shutil
import socket
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from pydantic import SecretStr

from vectorforge.config import VectorForgeConfig
from vectorforge.db.schema.index_building import build_indexes
from vectorforge.errors import ConfigurationError, ConflictError, DatabaseUnavailableError, VectorForgeError
from vectorforge.local.account import account_for, closed_above, make_folder
from vectorforge.local.cluster import is_new

if TYPE_CHECKING:  # installed with the extra "local" only
    from psycopg import Connection

    from vectorforge.local.postgres import EmbeddedPostgres

logger = logging.getLogger(__name__)

SAMPLE_PREFIX = "vectorforge/"
"""Prefix of the sample's sources."""
_FIRST = "questions.md"
"""Page of docs that answers the questions that the web page suggests."""

_PACKAGE = Path(__file__).resolve().parents[1]
_START_ATTEMPTS = 5
_FIRST_PAUSE_S = 0.5
_LONGEST_PAUSE_S = 30.0


@dataclass(frozen=True, slots=True)
class LocalSetup:
    """Settings with a database."""

    config: VectorForgeConfig
    migrator_url: str | None
    """Connection string of the role that owns the schema; None if only the app role is configured."""
    embedded: bool
    """True for the embedded PostgreSQL."""


def default_data_dir() -> Path:
    """Return the default folder of the embedded database: the platform's folder for application data.

    On Linux that is below ``XDG_DATA_HOME``, unless ``~/.local/share``, its default, already has a database.
    For root it is ``/var/lib/vectorforge`` if the account of its server cannot access that folder.
    https://specifications.freedesktop.org/basedir-spec/latest/
    """
    home = Path.home()
    if sys.platform == "win32":
        return home / "AppData" / "Local" / "vectorforge"
    folder = home / ".local" / "share" / "vectorforge"
    xdg = Path(os.environ.get("XDG_DATA_HOME", ""))
    if sys.platform == "darwin":
        folder = home / "Library" / "Application Support" / "vectorforge"
    elif xdg.is_absolute() and not (folder / "postgres").exists():
        folder = xdg / "vectorforge"
    if os.geteuid() == 0 and closed_above(folder / "postgres") is not None:
        return Path("/var/lib/vectorforge")
    return folder


def data_folder(config: VectorForgeConfig, data_dir: Path | None = None) -> Path:
    """Return the folder of the embedded database: the argument, the setting, or ``default_data_dir()``."""
    return (data_dir or config.database.data_dir or default_data_dir()).expanduser().absolute()


@contextmanager
def local_setup(
    config: VectorForgeConfig, *, data_dir: Path | None = None, supervised: bool = False, create: bool = False
) -> Iterator[LocalSetup]:
    """Provide settings for the configured database or, without one, for the embedded one, which is started.

    The embedded server is shared: it runs until the last process that uses the same folder ends.

    Args:
        config: Settings of the environment.
        data_dir: Folder of the embedded server; default: the setting's, then ``default_data_dir()``.
        supervised: Restart the embedded server when it dies, until the block ends.
        create: Create the embedded database if it is missing.

    Raises:
        ConfigurationError: The data folder cannot be written, or has no database to open.
        DatabaseUnavailableError: The embedded server does not start.
    """
    database = config.database
    if database.database_url is not None:
        migrator = database.migrator_database_url
        yield LocalSetup(config, migrator.get_secret_value() if migrator else None, embedded=False)
        return

    from vectorforge.local.postgres import EmbeddedPostgres

    folder = data_folder(config, data_dir)
    if not create and is_new(folder / "postgres"):
        raise ConfigurationError(
            f"There is no database in {folder}. Check --data-dir (VECTORFORGE_DATA_DIR), or create one with "
            "`vectorforge up` or `vectorforge ingest PATH`."
        )
    try:
        make_folder(folder, account_for(folder / "postgres"))
    except OSError as exc:
        raise ConfigurationError(f"{folder} cannot be created; choose another with --data-dir.") from exc
    if not folder.is_dir() or not os.access(folder, os.W_OK | os.X_OK):
        raise ConfigurationError(f"{folder} is not a folder to write to; choose another with --data-dir.")
    server = EmbeddedPostgres(folder / "postgres")
    with leased(server, supervised=supervised):
        embedded = {
            "database_url": SecretStr(server.app_url),
            "migrator_database_url": SecretStr(server.migrator_url),
            "log_writer_database_url": SecretStr(server.log_writer_url),
            "database_auth": "password",
            "migrator_secret_id": None,
            "data_dir": folder,
        }
        settings = config.model_copy(update={"database": database.model_copy(update=embedded)})
        yield LocalSetup(settings, server.migrator_url, embedded=True)


def sample_documents() -> list[tuple[str, Path]]:
    """Return the project's README and docs as (source, file), empty if missing.

    The README and the common questions are the first, since queries begin before the last is ingested.

    They are next to the package in a checkout, or inside the installed package.
    """
    for root in (_PACKAGE.parents[1], _PACKAGE / "sample"):
        readme = root / "README.md"
        if readme.is_file() and (root == _PACKAGE / "sample" or (root / "pyproject.toml").is_file()):
            docs = sorted((root / "docs").glob("**/*.md"), key=lambda file: (file.name != _FIRST, file))
            files = [readme, *docs]
            return [(SAMPLE_PREFIX + file.relative_to(root).as_posix(), file) for file in files]
    return []


@contextmanager
def leased(server: "EmbeddedPostgres", *, supervised: bool = False) -> Iterator[None]:
    """Start the server for the length of the block, and stop it with its last user.

    A file lock marks it as used. A connection is not sufficient: it is lost when the server is
    killed, and a command that restarts the server would then stop it for all others.

    Raises:
        ConfigurationError: See ``EmbeddedPostgres.start``.
        DatabaseUnavailableError: It does not start.
    """
    with server.data_dir.with_name(f".{server.data_dir.name}.needed").open("w") as lease:
        fcntl.flock(lease, fcntl.LOCK_SH)
        supervisor = _Supervisor(server, _connect(server))
        if supervised:
            supervisor.start()
        try:
            yield
        finally:
            supervisor.stop()
            if _release(lease):
                server.stop()


def _release(lease: TextIO) -> bool:
    """Release a lease; returns True if it was the last. New ones wait until its file is closed."""
    fcntl.flock(lease, fcntl.LOCK_UN)
    try:
        fcntl.flock(lease, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _connect(server: "EmbeddedPostgres") -> "Connection[tuple[object, ...]]":
    """Start the server and connect to it, to notice its end immediately."""
    from psycopg import Connection, OperationalError

    for _ in range(_START_ATTEMPTS):
        server.start()
        try:
            return Connection.connect(server.migrator_url, autocommit=True)
        except OperationalError:
            continue  # killed or stopped between the two lines above
    raise DatabaseUnavailableError(f"The embedded PostgreSQL keeps stopping; see {server.log_path}.")


class _Supervisor:
    """Restarts the server when the connection to it dies, in a thread."""

    def __init__(self, server: "EmbeddedPostgres", connection: "Connection[tuple[object, ...]]") -> None:
        self._server = server
        self._connection = connection
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._wake, self._waker = socket.socketpair()

    def start(self) -> None:
        self._thread = threading.Thread(target=self._watch, name="embedded-postgres", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread, after a restart in progress, and close the connection."""
        self._stopping.set()
        self._waker.send(b"x")
        if self._thread is not None:
            self._thread.join()
        self._connection.close()
        self._wake.close()
        self._waker.close()

    def _watch(self) -> None:
        while self._until_it_dies():
            logger.warning("The embedded PostgreSQL has ended; restarting it.")
            self._restart()

    def _until_it_dies(self) -> bool:
        """Wait for the server's end; returns False if it must not be restarted."""
        from psycopg import Error

        while not self._stopping.is_set():
            try:
                with selectors.DefaultSelector() as selector:
                    selector.register(self._connection.fileno(), selectors.EVENT_READ)
                    selector.register(self._wake, selectors.EVENT_READ)
                    selector.select()
                if not self._stopping.is_set():
                    self._connection.execute("SELECT 1")  # it may be a notice only
            except Error:
                return not self._stopping.is_set()
        return False

    def _restart(self) -> None:
        pause_s = _FIRST_PAUSE_S
        self._connection.close()
        while not self._stopping.is_set():
            try:
                self._connection = _connect(self._server)
            except (VectorForgeError, OSError) as exc:
                if pause_s == _FIRST_PAUSE_S:
                    logger.warning(
                        "The embedded PostgreSQL does not start (%s) and is tried again. "
                        "Free disk space: %d MiB. Its log: %s",
                        type(exc).__name__,
                        shutil.disk_usage(self._server.data_dir).free >> 20,
                        self._server.log_path,
                    )
                self._stopping.wait(pause_s)
                pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)
            else:
                return


@asynccontextmanager
async def maintain_indexes(
    migrator_url: str | None, *, larger_than: int, every_s: float = 60.0
) -> AsyncIterator[None]:
    """Build missing vector indexes every minute during the block, for collections above the exact search.

    An interrupted build is restarted by the next block.

    Args:
        migrator_url: Connection string of the role that owns the schema; None: no builds.
        larger_than: See ``build_indexes``.
        every_s: Seconds between checks.
    """
    if migrator_url is None:
        yield
        return
    building = asyncio.create_task(_build_missing(migrator_url, larger_than, every_s))
    try:
        yield
    finally:
        building.cancel()
        await asyncio.gather(building, return_exceptions=True)


async def _build_missing(migrator_url: str, larger_than: int, every_s: float) -> None:
    while True:
        await asyncio.sleep(every_s)
        try:
            for index in await build_indexes(migrator_url, larger_than=larger_than):
                logger.info("Built the index of %s (%d vectors)", index.space, index.vectors)
        except ConflictError:  # another process builds
            continue
        except VectorForgeError as exc:
            logger.warning("The indexes of the vectors could not be built: %s", exc.message)
