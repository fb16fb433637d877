"""A server with guides, its model vendor, and Node scripts that run clients against it."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import ExitStack
from typing import Any, TypeAlias, cast

import pytest
import pytest_asyncio

from tests.clients.guides import Guides, serve_guides
from tests.clients.node_processes import NodeHost, ScriptRun
from tests.clients.npm import installed_modules
from tests.clients.servers import ServedApi, ServerKind, serve_api
from tests.support.aws.live_query_function import query_surroundings
from tests.support.vendors.fake_openai import FakeOpenAI
from vectorforge.local.postgres import EmbeddedPostgres

__all__ = ["RunNode", "StartNode"]

StartNode: TypeAlias = Callable[[str, Any], ScriptRun]
RunNode: TypeAlias = Callable[[str, Any], Awaitable[Any]]


@pytest.fixture(scope="session")
def node_host() -> Iterator[NodeHost]:
    """Install the packages of package-lock.json, and run the scripts that use them."""
    installed_modules()
    with NodeHost() as host:
        yield host


@pytest.fixture
def start_node(node_host: NodeHost) -> Iterator[StartNode]:
    """Start scripts of this folder: ``start_node("script.mjs", value)`` passes a JSON value."""
    with ExitStack() as running:
        yield lambda name, value: running.enter_context(node_host.run(name, value))


@pytest.fixture
def run_node(start_node: StartNode) -> RunNode:
    """Run scripts: ``await run_node("script.mjs", value)`` returns the JSON value that it prints."""

    async def run(name: str, value: Any) -> Any:
        async with asyncio.timeout(60):
            script = start_node(name, value)
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


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=["uvicorn", "lambda"])
async def server(
    request: pytest.FixtureRequest, postgres_server: EmbeddedPostgres
) -> AsyncIterator[ServedApi]:
    """Serve one document behind uvicorn, then behind our Lambda runtime."""
    tenant = f"tenant-{uuid.uuid4().hex[:12]}"
    with pytest.MonkeyPatch.context() as monkeypatch:
        async with (
            query_surroundings(postgres_server.app_url, tenant) as surroundings,
            serve_api(cast("ServerKind", request.param), surroundings, monkeypatch) as opened,
        ):
            yield opened


@pytest.fixture
def served_api(server: ServedApi) -> ServedApi:
    """Return the server, whose vendor has no request and no script of an earlier test."""
    server.surroundings.vendor.reset()
    return server
