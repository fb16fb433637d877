"""Imports of ``vectorforge up`` before it serves."""

import gc

from pydantic import SecretStr

from vectorforge.api.app import create_app
from vectorforge.bootstrap import Application
from vectorforge.cli.commands.startup import load_ahead
from vectorforge.config import DatabaseSettings, VectorForgeConfig


async def test_startup_freezes_garbage_collector_and_leaves_it_enabled() -> None:
    """A server that never checks would grow forever."""
    url = SecretStr("postgresql://vectorforge_app@127.0.0.1:1/x")
    application = Application.build(VectorForgeConfig(database=DatabaseSettings(database_url=url)))
    app = create_app(application)
    gc.disable()
    try:
        await load_ahead(application, app)
        assert gc.isenabled()
        assert gc.get_freeze_count() > 0
    finally:
        gc.unfreeze()
        gc.enable()
