"""Builds the vectors' indexes on a laptop: where nobody else would, beside the server that needs them.

What the command line needs to run on one machine: a data folder, a database, documents to start with.
"""

import asyncio
import logging
import os
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from pydantic import SecretStr

from vectorforge.config import VectorForgeConfig
from vectorforge.db.schema.index_building import build_indexes
from vectorforge.errors import ConfigurationError, ConflictError, VectorForgeError
from vectorforge.local.account import account_for, closed_above, make_folder

logger = logging.getLogger(__name__)


@asynccontextmanager
async def indexes_kept(
    migrator_url: str | None, *, larger_than: int, every_s: float = 60.0
) -> AsyncIterator[None]:
    """Look every minute, as long as the block runs, for a collection that has outgrown the exact search.

    A build that the end of the block interrupts is begun again by the next one.

    Args:
        migrator_url: Of the role that owns the schema; None: nobody looks.
        larger_than: See ``build_indexes``.
        every_s: Seconds between two looks.
    """
    if migrator_url is None:
        yield
        return
    keeping = asyncio.create_task(_keep(migrator_url, larger_than, every_s))
    try:
        yield
    finally:
        keeping.cancel()
        await asyncio.gather(keeping, return_exceptions=True)


async def _keep(migrator_url: str, larger_than: int, every_s: float) -> None:
    while True:
        await asyncio.sleep(every_s)
        try:
            for index in await build_indexes(migrator_url, larger_than=larger_than):
                logger.info("Built the index of %s (%d vectors)", index.space, index.vectors)
        except ConflictError:  # another process builds
            continue
        except VectorForgeError as exc:
            logger.warning("The indexes of the vectors could not be built: %s", exc.message)


SAMPLE_PREFIX = "vectorforge/"
"""What the sources of the sample begin with, so that they are nobody else's."""

_PACKAGE = Path(__file__).resolve().parents[1]


@dataclass(frozen=True, slots=True)
class LocalSetup:
    """Settings with a database in them."""

    config: VectorForgeConfig
    migrator_url: str | None
    """Connection string of the role that owns the schema; None when only an app role is known."""
    embedded: bool
    """Whether the database is the embedded PostgreSQL."""


def default_data_dir() -> Path:
    """Where a laptop keeps its database unless told otherwise: the platform's folder for application data.

    For root, whose home is closed to the account that its server runs as, ``/var/lib/vectorforge``.
    """
    home = Path.home()
    folder = home / ".local" / "share" / "vectorforge"
    if sys.platform == "darwin":
        folder = home / "Library" / "Application Support" / "vectorforge"
    if sys.platform == "win32":
        return home / "AppData" / "Local" / "vectorforge"
    if os.geteuid() == 0 and closed_above(folder / "postgres") is not None:
        return Path("/var/lib/vectorforge")
    return folder


def data_folder(config: VectorForgeConfig, data_dir: Path | None = None) -> Path:
    """Where the embedded database is kept: as told, else as set, else ``default_data_dir()``."""
    return (data_dir or config.database.data_dir or default_data_dir()).expanduser().absolute()


@contextmanager
def local_setup(
    config: VectorForgeConfig, *, data_dir: Path | None = None, supervised: bool = False
) -> Iterator[LocalSetup]:
    """Settings for the configured database or, when there is none, for the embedded one, which is started.

    The embedded server is shared: another process that uses the same folder keeps it running after this one.

    Args:
        config: As read from the environment.
        data_dir: Folder of the embedded server; default: the setting's, then ``default_data_dir()``.
        supervised: Start the embedded server again whenever it dies, until the block ends.

    Raises:
        ConfigurationError: The data folder cannot be written.
        DatabaseUnavailableError: The embedded server does not start.
    """
    database = config.database
    if database.database_url is not None:
        migrator = database.migrator_database_url
        yield LocalSetup(config, migrator.get_secret_value() if migrator else None, embedded=False)
        return

    from vectorforge.local.lease import leased
    from vectorforge.local.postgres import EmbeddedPostgres

    folder = data_folder(config, data_dir)
    try:
        make_folder(folder, account_for(folder / "postgres"))
    except OSError as exc:
        raise ConfigurationError(f"{folder} cannot be made; choose another place with --data-dir.") from exc
    server = EmbeddedPostgres(folder / "postgres")
    with leased(server, supervised=supervised):
        found = {
            "database_url": SecretStr(server.app_url),
            "migrator_database_url": SecretStr(server.migrator_url),
            "log_writer_database_url": SecretStr(server.log_writer_url),
            "database_auth": "password",
            "migrator_secret_id": None,
            "data_dir": folder,
        }
        settings = config.model_copy(update={"database": database.model_copy(update=found)})
        yield LocalSetup(settings, server.migrator_url, embedded=True)


def sample_documents() -> list[tuple[str, Path]]:
    """The project's own README and docs, as (source, file), the README first; empty if they are not there.

    Looked for beside the package in a checkout, then inside the installed package.
    """
    for root in (_PACKAGE.parents[1], _PACKAGE / "sample"):
        readme = root / "README.md"
        if readme.is_file() and (root == _PACKAGE / "sample" or (root / "pyproject.toml").is_file()):
            files = [readme, *sorted((root / "docs").glob("**/*.md"))]
            return [(SAMPLE_PREFIX + file.relative_to(root).as_posix(), file) for file in files]
    return []
