"""A server that the tests of a module share, with an unused tenant for each of them.

The fixture of the server has ``scope="module", loop_scope="module"``; tests and fixtures that use it run in
the same loop: ``pytest.mark.asyncio(loop_scope="module")``.
"""

import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from pydantic import SecretStr

from tests.support.http.live_api import LiveApi, live_api, settings_for
from tests.support.vendors.fake_openai import FakeOpenAI
from vectorforge.config import LLMSettings
from vectorforge.llm.providers.openai import OpenAIProvider

_TESTS = 100
"""Most tests of a module, each of which may take a few tenants."""


@dataclass(frozen=True, slots=True)
class SharedServer:
    """A server, its model's vendor, and tenants with a key and without data."""

    api: LiveApi
    vendor: FakeOpenAI
    tenants: Iterator[str]


@asynccontextmanager
async def shared_server(database_url: str, **sections: Any) -> AsyncIterator[SharedServer]:
    """Start a server with a model.

    It has no circuit breaker, which failures of earlier tests would open.

    Args:
        database_url: Connection string of the app role.
        **sections: Sections of the settings, or arguments of ``settings_for``.
    """
    tenants = [f"tenant-{uuid.uuid4().hex[:12]}" for _ in range(3 * _TESTS)]
    async with FakeOpenAI() as vendor:
        provider = OpenAIProvider(SecretStr(vendor.api_key), base_url=vendor.base_url, retries=0)
        config = settings_for(database_url, tenants, llm=LLMSettings(llm_circuit_failures=0), **sections)
        async with live_api(config, provider) as api:
            yield SharedServer(api, vendor, iter(tenants))
