"""A running server with three guides, for clients of every kind."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from pydantic import SecretStr

from tests.support.http.live_api import (
    LiveApi,
    add_documents,
    key_of,
    live_api,
    new_collection,
    settings_for,
)
from tests.support.vendors.fake_openai import FakeOpenAI
from tests.support.vendors.fake_vendor import Reply
from vectorforge.config import QuerySettings
from vectorforge.llm.providers.openai import OpenAIProvider

GUIDES = {
    "kettle": "# Kettle\n\nThe kettle switches itself off when the water boils at 100 degrees.\n",
    "bread": "# Bread\n\nLet the dough rise for two hours before baking it at 230 degrees.\n",
    "bike": "# Bike\n\nOil the chain every three hundred kilometres and after riding in the rain.\n",
}
QUESTION = "How long must the dough rise?"
"""Query whose source 1 is ``bread.md``."""
BROKEN = "The answer of provider openai broke off before its end"
"""Error of an answer that its vendor cut off."""


@dataclass(frozen=True, slots=True)
class Guides:
    """A server with the guides in its default collection, and one tenant."""

    api: LiveApi
    tenant: str
    collection_id: str

    @property
    def options(self) -> dict[str, Any]:
        """Return the options of every script."""
        return {"url": self.api.url, "key": key_of(self.tenant)}

    async def logged(self, query_id: str) -> dict[str, Any]:
        """Return the log record of a query, once it has ended."""
        async with asyncio.timeout(10), self.api.client(self.tenant) as client:
            while True:
                response = await client.get(f"/v1/queries/{query_id}")
                if response.status_code == 200 and response.json()["outcome"] != "started":
                    row: dict[str, Any] = response.json()
                    return row
                await asyncio.sleep(0.02)


@asynccontextmanager
async def serve_guides(database_url: str, tenant: str, openai: FakeOpenAI) -> AsyncIterator[Guides]:
    """Serve the guides with answers of this vendor, and errors instead of degraded answers."""
    provider = OpenAIProvider(SecretStr(openai.api_key), base_url=openai.base_url, retries=0)
    settings = settings_for(database_url, [tenant], query=QuerySettings(degraded_answers=False))
    async with live_api(settings, provider) as api:
        async with api.client(tenant) as client:
            collection_id = await new_collection(client)
            await add_documents(client, collection_id, **GUIDES)
        yield Guides(api, tenant, collection_id)


def unending(*texts: str) -> Reply:
    """Return an answer that never continues after its first piece."""

    async def wait(number: int) -> None:
        if number:
            await asyncio.Event().wait()

    return Reply(texts=(*texts, " never sent"), gate=wait)
