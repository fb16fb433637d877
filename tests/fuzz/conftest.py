"""A server in a separate process for the short forms of the fuzzers."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from psycopg.conninfo import make_conninfo

from tests.fuzz.api_server import ApiServer, api_server
from tests.support.postgres.databases import own_database
from vectorforge.local.postgres import EmbeddedPostgres


@pytest.fixture(scope="session")
def server_log(private_dir: Callable[[str], Path]) -> Path:
    return private_dir("fuzz") / "server.log"


@pytest.fixture(scope="module")
def server(postgres_server: EmbeddedPostgres, server_log: Path) -> Iterator[ApiServer]:
    """Start one server for the tests of a module; synchronous state machines use it, too.

    It has a separate database, since its worker claims the jobs of every tenant.
    """
    started, leave = threading.Event(), asyncio.Event()
    found: list[ApiServer] = []
    loop = asyncio.new_event_loop()

    async def run() -> None:
        try:
            with server_log.open("wb") as log, own_database(postgres_server.migrator_url) as url:
                app_url = make_conninfo(url, user="vectorforge_app")
                async with api_server(app_url, "fuzz", log=log) as running:
                    found.append(running)
                    started.set()
                    await leave.wait()
        finally:
            started.set()

    thread = threading.Thread(target=loop.run_until_complete, args=(run(),))
    thread.start()
    started.wait()
    if not found:
        thread.join()
        pytest.fail(f"The server did not start: {server_log.read_text()[-2000:]}")
    yield found[0]
    loop.call_soon_threadsafe(leave.set)
    thread.join()
    loop.close()
