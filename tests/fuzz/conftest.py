"""A server in a process of its own for the short forms of the fuzzers."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.fuzz.api_server import ApiServer, api_server
from vectorforge.local.postgres import EmbeddedPostgres


@pytest.fixture(scope="session")
def server_log(private_dir: Callable[[str], Path]) -> Path:
    return private_dir("fuzz") / "server.log"


@pytest.fixture(scope="package")
def server(postgres_server: EmbeddedPostgres, server_log: Path) -> Iterator[ApiServer]:
    """One for all tests here; state machines, which are not coroutines, talk to it too.

    It ends with them: its worker would take the jobs of other tests in the same database.
    """
    started, leave = threading.Event(), asyncio.Event()
    found: list[ApiServer] = []
    loop = asyncio.new_event_loop()

    async def run() -> None:
        try:
            with server_log.open("wb") as log:
                async with api_server(postgres_server.app_url, "fuzz", log=log) as running:
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
