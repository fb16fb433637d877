"""The guides' server, the model's vendor behind it, and Node scripts that drive clients against it."""

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
    """The packages of package-lock.json."""
    return installed_modules()


@pytest.fixture
async def start_node(node_modules: Path) -> AsyncIterator[StartNode]:
    """``await start_node("script.mjs", value)`` starts a script of this folder with a JSON value."""
    async with AsyncExitStack() as running:

        async def start(name: str, value: Any) -> NodeScript:
            script = await NodeScript.start(name, json.dumps(value))
            return await running.enter_async_context(script)

        yield start


@pytest.fixture
def run_node(start_node: StartNode) -> RunNode:
    """``await run_node("script.mjs", value)`` gives what a script prints, which is one JSON value."""

    async def run(name: str, value: Any) -> Any:
        async with asyncio.timeout(60):
            script = await start_node(name, value)
            said = await script.read()
            await script.end()
        return said

    return run


@pytest.fixture
async def openai() -> AsyncIterator[FakeOpenAI]:
    """The model's vendor."""
    async with FakeOpenAI() as server:
        yield server


@pytest.fixture
async def guides(
    postgres_server: EmbeddedPostgres, make_tenant: Callable[[], str], openai: FakeOpenAI
) -> AsyncIterator[Guides]:
    """The guides behind the vendor ``openai``."""
    async with serve_guides(postgres_server.app_url, make_tenant(), openai) as served:
        yield served


@pytest.fixture
async def surroundings(
    postgres_server: EmbeddedPostgres, make_tenant: Callable[[], str]
) -> AsyncIterator[QuerySurroundings]:
    """One document, and everything around a server of it."""
    async with query_surroundings(postgres_server.app_url, make_tenant()) as started:
        yield started


@pytest.fixture(params=["uvicorn", "lambda"])
async def served_api(
    request: pytest.FixtureRequest, surroundings: QuerySurroundings, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[ServedApi]:
    """The server: behind uvicorn, then behind our Lambda runtime."""
    async with serve_api(cast("ServerKind", request.param), surroundings, monkeypatch) as opened:
        yield opened
