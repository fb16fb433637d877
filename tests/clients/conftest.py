"""npm's packages, installed once for all workers, and Node scripts that drive them against a server."""

import asyncio
import fcntl
import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from pydantic import SecretStr

from vectorforge.config import QuerySettings
from vectorforge.llm.providers.openai import OpenAIProvider
from vectorforge.local.postgres import EmbeddedPostgres
from vectorforge.testing.fake_openai import FakeOpenAI
from vectorforge.testing.live_api import (
    LiveApi,
    add_documents,
    key_of,
    live_api,
    new_collection,
    settings_for,
)

HERE = Path(__file__).parent
MODULES = HERE / "node_modules"
GUIDES = {
    "kettle": "# Kettle\n\nThe kettle switches itself off when the water boils at 100 degrees.\n",
    "bread": "# Bread\n\nLet the dough rise for two hours before baking it at 230 degrees.\n",
    "bike": "# Bike\n\nOil the chain every three hundred kilometres and after riding in the rain.\n",
}

RunNode: TypeAlias = Callable[..., Awaitable[Any]]


@pytest.fixture(scope="session")
def node_modules() -> Path:
    """The packages of package-lock.json, as ``npm ci`` installs them; workers wait for the first one."""
    npm = shutil.which("npm")
    assert npm is not None, "Node.js 20 or newer is missing: https://nodejs.org/en/download"
    wanted = hashlib.sha256((HERE / "package-lock.json").read_bytes()).hexdigest()
    stamp = MODULES / ".installed-lock"
    with (HERE / ".install-lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not stamp.exists() or stamp.read_text() != wanted:
            options = ("--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error")
            subprocess.run([npm, "ci", *options], cwd=HERE, check=True, timeout=600)
            stamp.write_text(wanted)
    return MODULES


class NodeScript:
    """A script of this folder, which gets one JSON value and prints JSON values, one a line."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def read(self) -> Any:
        """The next value.

        Raises:
            AssertionError: It ended without one.
        """
        assert self._process.stdout is not None
        line = await self._process.stdout.readline()
        if not line:
            assert self._process.stderr is not None
            raise AssertionError((await self._process.stderr.read()).decode())
        return json.loads(line)

    async def end(self) -> None:
        """Wait for its end, which has to be a good one."""
        _, errors = await self._process.communicate()
        assert self._process.returncode == 0, errors.decode()

    async def stop(self) -> None:
        """End it, if it runs."""
        if self._process.returncode is None:
            self._process.kill()
            await self._process.communicate()


@pytest.fixture
async def start_node(node_modules: Path) -> AsyncIterator[Callable[..., Awaitable[NodeScript]]]:
    """``await start_node("script.mjs", value)`` starts a script."""
    started: list[NodeScript] = []

    async def start(name: str, value: Any) -> NodeScript:
        process = await asyncio.create_subprocess_exec(
            "node",
            str(HERE / name),
            json.dumps(value),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={"PATH": os.environ["PATH"], "AI_SDK_LOG_WARNINGS": "false"},
            limit=1024 * 1024,
        )
        started.append(NodeScript(process))
        return started[-1]

    yield start
    for script in started:
        await script.stop()


@pytest.fixture
def run_node(start_node: Callable[..., Awaitable[NodeScript]]) -> RunNode:
    """``await run_node("script.mjs", value)`` gives what a script prints as its only line."""

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


class Guides:
    """A server that has three guides in its default collection, and one tenant."""

    def __init__(self, api: LiveApi, tenant: str, collection_id: str) -> None:
        self.api = api
        self.tenant = tenant
        self.collection_id = collection_id

    @property
    def options(self) -> dict[str, Any]:
        """What every script has to know."""
        return {"url": self.api.url, "key": key_of(self.tenant)}

    async def logged(self, query_id: str) -> dict[str, Any]:
        """The log's record of a question, once it has ended."""
        async with asyncio.timeout(10), self.api.client(self.tenant) as client:
            while True:
                response = await client.get(f"/v1/queries/{query_id}")
                if response.status_code == 200 and response.json()["outcome"] != "started":
                    row: dict[str, Any] = response.json()
                    return row
                await asyncio.sleep(0.02)


@asynccontextmanager
async def serve_guides(
    postgres_server: EmbeddedPostgres, tenant: str, openai: FakeOpenAI, **server: Any
) -> AsyncIterator[Guides]:
    """Serve them, with answers of this vendor, and errors where there would be lesser answers."""
    provider = OpenAIProvider(SecretStr(openai.api_key), base_url=openai.base_url, retries=0)
    config = settings_for(
        postgres_server.app_url, [tenant], server=server, query=QuerySettings(degraded_answers=False)
    )
    async with live_api(config, provider) as api:
        async with api.client(tenant) as client:
            collection_id = await new_collection(client)
            await add_documents(client, collection_id, **GUIDES)
        yield Guides(api, tenant, collection_id)


@pytest.fixture
async def guides(
    postgres_server: EmbeddedPostgres, make_tenant: Callable[[], str], openai: FakeOpenAI
) -> AsyncIterator[Guides]:
    """The guides behind the vendor ``openai``."""
    async with serve_guides(postgres_server, make_tenant(), openai) as served:
        yield served
