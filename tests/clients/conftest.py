"""A server with guides, its model vendor, and Node scripts that run clients against it."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, TypeAlias, cast

import pytest

from tests.clients.guides import Guides, serve_guides
from tests.clients.npm import NodeScript, installed_modules
from tests.clients.servers import ServedApi, ServerKind, serve_api
from tests.support.aws.live_query_function import QuerySurroundings, query_surroundings
from tests.support.vendors.fake_openai import FakeOpenAI
from vectorforge.local.postgres import EmbeddedPostgres

__all__ = ["NodeScript", "RunNode", "StartNode"]

StartNode: TypeAlias = Callable[[str, Any], Awaitable[NodeScript]]
RunNode: TypeAlias = Callable[[str, Any], Awaitable[Any]]


@pytest.fixture(scope="session")
def node_modules() -> Path:
    """Install the packages of package-lock.json."""
    return installed_modules()


@pytest.fixture
async def start_node(node_modules: Path) -> AsyncIterator[StartNode]:
    """Start scripts of this folder: ``await start_node("script.mjs", value)`` passes a JSON value."""
    async with AsyncExitStack() as running:

        async def start(name: str, value: Any) -> NodeScript:
            script = await NodeScript.start(name, json.dumps(value))
            return await running.enter_async_context(script)

        yield start


@pytest.fixture
def run_node(start_node: StartNode) -> RunNode:
    """Run scripts: ``await run_node("script.mjs", value)`` returns the JSON value that it prints."""

    async def run(name: str, value: Any) -> Any:
        async with asyncio.timeout(60):
            script = await start_node(name, value)
            output = await script.read()
            await script.end()
        return output

    return run


@pytest.fixture
async def openai() -> AsyncIterator[FakeOpenAI]:
    """Start the model's vendor."""
    async with FakeOpenAI() as server:
        yield server


@pytest.fixture
async def guides(
    postgres_server: EmbeddedPostgres, make_tenant: Callable[[], str], openai: FakeOpenAI
) -> AsyncIterator[Guides]:
    """Serve the guides with the vendor ``openai``."""
    async with serve_guides(postgres_server.app_url, make_tenant(), openai) as served:
        yield served


@pytest.fixture
async def surroundings(
    postgres_server: EmbeddedPostgres, make_tenant: Callable[[], str]
) -> AsyncIterator[QuerySurroundings]:
    """Start the surroundings of a server with one document."""
    async with query_surroundings(postgres_server.app_url, make_tenant()) as started:
        yield started


@pytest.fixture(params=["uvicorn", "lambda"])
async def served_api(
    request: pytest.FixtureRequest, surroundings: QuerySurroundings, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[ServedApi]:
    """Serve behind uvicorn, then behind our Lambda runtime."""
    async with serve_api(cast("ServerKind", request.param), surroundings, monkeypatch) as opened:
        yield opened
