"""Imports of ``vectorforge up`` before it serves."""

import asyncio
import gc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from pydantic import SecretStr

from vectorforge.api.app import create_app
from vectorforge.bootstrap import Application
from vectorforge.cli.commands.startup import load_ahead
from vectorforge.config import DatabaseSettings, VectorForgeConfig
from vectorforge.embedding.providers.local import LocalEmbeddingProvider
from vectorforge.local.cluster import wait_until


@asynccontextmanager
async def started() -> AsyncIterator[Application]:
    """Yield an application whose modules and model are loaded ahead."""
    url = SecretStr("postgresql://vectorforge_app@127.0.0.1:1/x")
    application = Application.build(VectorForgeConfig(database=DatabaseSettings(database_url=url)))
    gc.disable()
    try:
        await load_ahead(application, create_app(application))
        yield application
    finally:
        gc.unfreeze()
        gc.enable()
        await application.embedding_registry.get_default().aclose()


async def test_startup_freezes_garbage_collector_and_leaves_it_enabled() -> None:
    """A server that never checks would grow forever."""
    async with started():
        assert gc.isenabled()
        assert gc.get_freeze_count() > 0


async def test_startup_loads_the_local_model_before_the_first_query() -> None:
    async with started() as application:
        provider = application.embedding_registry.get_default()
        assert isinstance(provider, LocalEmbeddingProvider)
        assert await asyncio.to_thread(wait_until, lambda: provider.is_loaded, 60, 0.01)
