"""Documents, a query and the wait for running streams, for tests of tenant limits."""

import asyncio

import httpx2

from tests.support.http.live_api import add_documents, new_collection
from vectorforge.limits.settings import TenantLimits

QUESTION = {"query": "How long does a refund take?"}
ASK = "/v1/rag/query"
REFUND = "A refund takes five days [Context 1]."


async def until_streams(limits: TenantLimits, count: int) -> None:
    async with asyncio.timeout(60):
        while True:
            if (await limits.usage()).streams == count:
                return
            await asyncio.sleep(0.02)


async def fill(client: httpx2.AsyncClient) -> None:
    await add_documents(client, await new_collection(client), refunds="A refund takes five days.")
