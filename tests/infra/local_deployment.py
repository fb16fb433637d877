"""A deployment of ``make deploy-local`` for tests: its commands, its API and its AWS services."""

import asyncio
import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import aiohttp
import boto3
from aiohttp import web

from tests.support.vendors.fake_openai import FakeOpenAI
from tests.support.vendors.fake_vendor import Reply

T = TypeVar("T")
OLD, NEW = "sk-old-canary-0123456789", "sk-new-canary-0123456789"
ANSWER = ("It sings every Tuesday", " at noon [Context 1].")
PATIENCE_S = 180
DEPLOY_PATIENCE_S = 1200
"""Timeout for a machine on which other tests run, too."""


def run(folder: Path, command: str, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run ``make deploy-local`` or ``make destroy-local`` over this folder."""
    return subprocess.run(
        command_line(folder, command, *arguments), env=environment(**variables), capture_output=True,
        text=True, check=False, timeout=DEPLOY_PATIENCE_S,
    )  # fmt: skip


def command_line(folder: Path, command: str, *arguments: str) -> list[str]:
    module = [sys.executable, "-m", "infra.emulator.deployment", command]
    return [*module, "--data-dir", str(folder), *arguments]


def environment(**variables: str) -> dict[str, str]:
    """Return the commands' environment: this one without settings and accounts."""
    kept = {name: v for name, v in os.environ.items() if not name.startswith(("VECTORFORGE_", "AWS_"))}
    return {**kept, **variables}


@dataclass(frozen=True)
class Deployment:
    """The command's JSON output, and clients of the deployment."""

    folder: Path
    told: dict[str, Any]
    key: str

    @classmethod
    def of(cls, folder: Path, output: str) -> "Deployment":
        told = json.loads(output)
        (key,) = told["api_keys"].values()
        return cls(folder, told, key)

    @property
    def tenant(self) -> str:
        (tenant,) = self.told["api_keys"]
        return str(tenant)

    @contextlib.contextmanager
    def client(self, service: str) -> Any:
        client = boto3.client(
            service, endpoint_url=self.told["endpoint_url"], region_name="us-east-1",
            aws_access_key_id="test", aws_secret_access_key="test",
        )  # fmt: skip
        with contextlib.closing(client):
            yield client

    def verify(self, report: Path, *points: str) -> subprocess.CompletedProcess[str]:
        """Run ``make verify`` for these points of the deployment."""
        command = [sys.executable, "-m", "infra.verification", "--region", "us-east-1", "--yes"]
        variables = {"AWS_ENDPOINT_URL": str(self.told["endpoint_url"])}
        variables |= {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}
        return subprocess.run(
            [*command, "--report", str(report), "--only", *points], env=environment() | variables,
            capture_output=True, text=True, check=False, timeout=DEPLOY_PATIENCE_S,
        )  # fmt: skip

    @asynccontextmanager
    async def http(self, *, key: str | None = None) -> AsyncIterator["Api"]:
        """Return a client of the API, with the tenant's key unless another one is given ("" for none)."""
        sent = self.key if key is None else key
        headers = {"x-api-key": sent} if sent else {}
        timeout = aiohttp.ClientTimeout(total=PATIENCE_S)
        async with aiohttp.ClientSession(headers=headers, timeout=timeout) as session:
            yield Api(session, self.told["url"])

    @property
    def logs(self) -> str:
        """Return all output of processes and functions."""
        files = (self.folder / "deployment" / "logs").iterdir()
        return "".join(file.read_text(errors="replace") for file in files)


@dataclass(frozen=True)
class Api:
    """Requests to the host name printed by the command, which Python cannot resolve."""

    session: aiohttp.ClientSession
    url: str

    async def request(self, method: str, path: str, **options: Any) -> tuple[int, Any]:
        """Return status and body: parsed JSON or text."""
        host, _, stage = self.url.removeprefix("http://").partition("/")
        here = f"http://127.0.0.1:{host.rpartition(':')[2]}/{stage}{path}"
        async with self.session.request(method, here, headers={"Host": host}, **options) as response:
            text = await response.text()
            is_json = "json" in response.headers.get("content-type", "")
            return response.status, json.loads(text) if is_json else text

    async def get(self, path: str) -> Any:
        """Return the body of a response with status 200."""
        status, body = await self.request("GET", path)
        assert status == 200, body
        return body


async def eventually(look: Callable[[], Awaitable[T | None]], patience_s: float = PATIENCE_S) -> T:
    """Return the first result of ``look`` that is not empty."""
    give_up_at = time.monotonic() + patience_s
    while not (found := await look()):
        assert time.monotonic() < give_up_at, "It did not happen."
        await asyncio.sleep(0.2)
    return found


class Vendor(FakeOpenAI):
    """A vendor that accepts two keys during a rotation."""

    def __init__(self) -> None:
        super().__init__(api_key=OLD)
        self.accepted = {OLD}
        self.refusals = 0
        self.unscripted = Reply(texts=ANSWER)

    def accepts(self, request: web.Request, data: bytes) -> bool:
        accepted = request.headers.get("Authorization", "").removeprefix("Bearer ") in self.accepted
        self.refusals += not accepted
        return accepted


def deploy(folder: Path, vendor: Vendor, **variables: str) -> subprocess.CompletedProcess[str]:
    """Deploy; the key is in the deployment's secret, the vendor's address is a setting."""
    variables |= {
        "VECTORFORGE_OPENAI_API_KEY": OLD,
        "VECTORFORGE_OPENAI_BASE_URL": vendor.base_url,
        "VECTORFORGE_DEFAULT_LLM_PROVIDER": "openai",
    }
    return run(folder, "deploy", "--json", "--port", "0", **variables)


async def logged(api: Any, question: str) -> dict[str, Any] | None:
    """Return the final log row of a query."""
    rows = (await api.get("/v1/queries?limit=100"))["queries"]
    return next((r for r in rows if r["query_text"] == question and r["outcome"] != "started"), None)


async def lines_of(text: str) -> Any:
    for line in text.split("\n"):
        yield line
