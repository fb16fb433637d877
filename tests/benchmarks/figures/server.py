"""A separate process for each server, so that its CPU time is measured alone."""

import asyncio
import json
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

from pydantic import SecretStr

KEY = "sk-test-0123456789abcdef"
TENANT = "local"
TOKENS = 100
"""Pieces of the model's answer; one of them is a citation."""


@dataclass(frozen=True, slots=True)
class Server:
    """A running process and its address."""

    pid: int
    url: str


@contextmanager
def started(kind: str, **options: str) -> Iterator[Server]:
    """Start one of the servers below and stop it at the end."""
    command = [sys.executable, "-m", "figures.server", kind, json.dumps(options)]
    folder = Path(__file__).resolve().parents[1]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=folder
    ) as child:
        assert child.stdin
        assert child.stdout
        try:
            url = child.stdout.readline().strip()
            if not url:
                raise RuntimeError(f"The {kind} server did not start.")
            yield Server(child.pid, url)
        finally:
            child.stdin.close()  # ends it
            child.wait(30)


def answers(url: str) -> bool:
    """Return whether GET responds with 200."""
    try:
        with urllib.request.urlopen(url, timeout=10) as response:  # noqa: S310 - our own server's URL
            return bool(response.status == 200)
    except (urllib.error.URLError, ConnectionError):
        return False


async def _serve(kind: str, options: dict[str, str]) -> None:
    if kind == "model":
        await _serve_model()
        return
    from tests.support.http.live_server import serve

    app = _floor(options) if kind == "floor" else _service(options)
    async with serve(app) as url:
        await _until_stdin_ends(url)


async def _serve_model() -> None:
    from tests.support.vendors.fake_openai import FakeOpenAI
    from tests.support.vendors.fake_vendor import Reply

    texts = tuple("[Context 1]." if n == TOKENS // 2 else f"word{n} " for n in range(TOKENS))
    async with FakeOpenAI(api_key=KEY) as model:
        model.script(*[Reply(texts=texts)] * 1_000_000)
        await _until_stdin_ends(model.base_url)


def _floor(options: dict[str, str]) -> Any:
    from figures.floor import Floor

    return Floor(options["database_url"], options["model_url"], KEY, TENANT, UUID(options["collection"]))


def _service(options: dict[str, str]) -> Any:
    from figures.database import DIMENSION

    from tests.support.vendors.hashing_embedder import HashingEmbedder
    from vectorforge.api.app import create_app
    from vectorforge.bootstrap import Application
    from vectorforge.config import DatabaseSettings, ServerSettings, VectorForgeConfig
    from vectorforge.db.connection import Database
    from vectorforge.embedding.registry import EmbeddingProviderRegistry
    from vectorforge.llm.providers.openai import OpenAIProvider
    from vectorforge.llm.registry import LLMProviderRegistry
    from vectorforge.telemetry import InMemoryMetrics

    metrics = InMemoryMetrics()
    embeddings, models = EmbeddingProviderRegistry(), LLMProviderRegistry()
    embeddings.register(HashingEmbedder(dimension=DIMENSION, metrics=metrics))
    models.register(OpenAIProvider(KEY, base_url=options["model_url"], metrics=metrics))
    config = VectorForgeConfig(
        database=DatabaseSettings(database_url=SecretStr(options["database_url"])),
        server=ServerSettings(auth="local", local_tenant=TENANT),
    )
    application = Application(
        config,
        database=Database(options["database_url"]),
        embedding_registry=embeddings,
        llm_registry=models,
        metrics=metrics,
    )
    return create_app(application)


async def _until_stdin_ends(url: str) -> None:
    print(url, flush=True)
    await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(_serve(sys.argv[1], json.loads(sys.argv[2])))
