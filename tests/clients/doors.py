"""The same service behind uvicorn and behind our Lambda runtime: what clients see has to be the same."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import pytest

from vectorforge.api.app import create_app
from vectorforge.bootstrap import Application
from vectorforge.config import VectorForgeConfig
from vectorforge.local.lambda_service.front_doors import FunctionUrl
from vectorforge.local.lambda_service.function_process import FunctionProcess
from vectorforge.testing.live_api import key_of
from vectorforge.testing.live_query_function import QuerySurroundings
from vectorforge.testing.live_server import serve
from vectorforge.testing.query_events import query_function

ServerKind: TypeAlias = Literal["uvicorn", "lambda"]
SETTINGS: Mapping[str, str] = {
    "VECTORFORGE_DEGRADED_ANSWERS": "false",  # a vendor's failure is an error, and not a lesser answer
    "VECTORFORGE_LLM_MAX_RETRIES": "0",
}


@dataclass(frozen=True, slots=True)
class Door:
    """A running server with one document, and its vendor."""

    kind: ServerKind
    url: str
    surroundings: QuerySurroundings

    @property
    def key(self) -> str:
        """The tenant's."""
        return key_of(self.surroundings.tenant)

    @property
    def options(self) -> dict[str, Any]:
        """What every script of Node has to know."""
        return {"url": self.url, "key": self.key}


@asynccontextmanager
async def open_door(
    kind: ServerKind, surroundings: QuerySurroundings, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Door]:
    """Serve until the end of the block, with the same settings in both places."""
    if kind == "lambda":
        function = query_function(surroundings, "stream", variables=SETTINGS)
        async with FunctionProcess(function) as process, FunctionUrl(process) as entrance:
            yield Door(kind, entrance.url, surroundings)
        return
    for name, value in {**surroundings.environment(), **SETTINGS}.items():
        monkeypatch.setenv(name, value)
    application = Application.build(VectorForgeConfig.from_environment())
    async with serve(create_app(application)) as url:
        yield Door(kind, url, surroundings)
