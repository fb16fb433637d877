"""The same service behind uvicorn and behind our Lambda runtime, with equal behavior for clients."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import pytest

from infra.emulator.lambda_service.front_doors import FunctionUrl
from infra.emulator.lambda_service.function_process import FunctionProcess
from tests.support.aws.live_query_function import QuerySurroundings
from tests.support.aws.query_events import query_function
from tests.support.http.live_api import key_of
from tests.support.http.live_server import serve
from tests.support.vendors.fake_vendor import Reply
from vectorforge.api.app import create_app
from vectorforge.bootstrap import Application
from vectorforge.config import VectorForgeConfig

QUESTION = "How long does a refund take?"
ServerKind: TypeAlias = Literal["uvicorn", "lambda"]
SETTINGS: Mapping[str, str] = {
    "VECTORFORGE_DEGRADED_ANSWERS": "false",  # a vendor's failure is an error, not a degraded answer
    "VECTORFORGE_LLM_MAX_RETRIES": "0",
}


@dataclass(frozen=True, slots=True)
class ServedApi:
    """A running server with one document, and its vendor."""

    kind: ServerKind
    url: str
    surroundings: QuerySurroundings

    @property
    def key(self) -> str:
        """Return the tenant's key."""
        return key_of(self.surroundings.tenant)

    @property
    def options(self) -> dict[str, Any]:
        """Return the options of every Node script."""
        return {"url": self.url, "key": self.key}


@asynccontextmanager
async def serve_api(
    kind: ServerKind, surroundings: QuerySurroundings, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[ServedApi]:
    """Serve until the end of the block, with the same settings in both places."""
    if kind == "lambda":
        function = query_function(surroundings, "stream", variables=SETTINGS)
        async with FunctionProcess(function) as process, FunctionUrl(process) as entrance:
            yield ServedApi(kind, entrance.url, surroundings)
        return
    for name, value in {**surroundings.environment(), **SETTINGS}.items():
        monkeypatch.setenv(name, value)
    application = Application.build(VectorForgeConfig.from_environment())
    async with serve(create_app(application)) as url:
        yield ServedApi(kind, url, surroundings)


async def check_end(served_api: ServedApi, query_id: str, text: str) -> None:
    """Check the end of an answer after its client's disconnect, and that others are still answered.

    uvicorn notifies the application, which closes the vendor's stream. Lambda does not: the
    function continues to the answer's end, as AWS documents.
    """
    vendor = served_api.surroundings.vendor
    if served_api.kind == "uvicorn":
        async with asyncio.timeout(10):
            await vendor.requests[-1].client_closed.wait()
    outcome = "aborted" if served_api.kind == "uvicorn" else "answered"
    async with served_api.surroundings.client(served_api.url) as native, asyncio.timeout(20):
        while True:
            response = await native.get(f"/v1/queries/{query_id}")
            if response.status_code == 200 and response.json()["outcome"] != "started":
                break
            await asyncio.sleep(0.02)
        row = response.json()
        assert row["outcome"] == outcome
        assert row["generated_response"].startswith(text)
        again = await native.post("/v1/rag/query", json={"query": QUESTION})
        assert again.json()["response"] == "The answer is 42 [Source 1]."


def held_back(served_api: ServedApi) -> Reply:
    """Script an answer that does not end; on Lambda it ends after the client has had time to disconnect."""
    gone = asyncio.Event()

    async def gate(number: int) -> None:
        if number == 1:
            if served_api.kind == "lambda":
                asyncio.get_running_loop().call_later(1, gone.set)
            await gone.wait()

    return Reply(texts=("It takes five", " days [Source 1]."), gate=gate)
