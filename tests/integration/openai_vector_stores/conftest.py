"""A server with a handbook, and an openai client of it."""

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import pytest
from openai import AsyncOpenAI
from openai._models import BaseModel as OpenAIModel

from tests.support.http.live_api import LiveApi, finished_job, live_api, new_collection, settings_for

HANDBOOK: dict[str, dict[str, Any]] = {
    "pump.md": {"year": 2024, "kind": "manual", "draft": False, "place": {"hall": "A"}},
    "valve.md": {"year": 2020, "kind": "manual", "draft": True},
    "gauge.md": {"year": 2022, "kind": "note", "tags": ["new"], "none": None},
}
TEXTS = {
    "pump.md": "The pump needs oil every week.",
    "valve.md": "The valve needs grease every month.",
    "gauge.md": "The gauge needs a cloth, gemäß §4.",
}


@dataclass
class Door:
    """A server with the handbook of one tenant, and this tenant's client."""

    api: LiveApi
    client: AsyncOpenAI
    store: str


def client_of(api: LiveApi, tenant: str) -> AsyncOpenAI:
    return api.openai(tenant)


async def fill(api: LiveApi, tenant: str, name: str) -> str:
    """Ingest the handbook, each document in a separate job, so that their times differ."""
    async with api.client(tenant) as client:
        store = await new_collection(client, name)
        for source, metadata in HANDBOOK.items():
            document = {"source": source, "text": TEXTS[source], "metadata": metadata}
            path = f"/v1/collections/{store}/documents"
            job = (await client.post(path, json={"documents": [document]})).json()
            assert (await finished_job(client, job["id"]))["status"] == "succeeded"
    return store


@pytest.fixture
async def door(app_url: str, make_tenant: Callable[[], str]) -> AsyncIterator[Door]:
    tenant = make_tenant()
    async with live_api(settings_for(app_url, [tenant])) as api, client_of(api, tenant) as client:
        store = UUID(await fill(api, tenant, "handbook"))
        yield Door(api, client, f"vs_{store.hex}")


def valid(found: OpenAIModel) -> Any:
    """Return the object, validated against the package's types, which the package itself does not do."""
    type(found).model_validate(found.to_dict())
    return found
