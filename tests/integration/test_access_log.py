"""Log lines identify the credential of a request by its id, never by its secret."""

import logging
from collections.abc import Callable

import pytest

from tests.support.http.live_api import add_documents, key_of, live_api, new_collection, settings_for
from vectorforge.api.middleware.context import logger
from vectorforge.local.postgres import EmbeddedPostgres
from vectorforge.types import Scope


async def test_access_log_has_one_line_per_authenticated_request(
    postgres_server: EmbeddedPostgres, make_tenant: Callable[[], str], caplog: pytest.LogCaptureFixture
) -> None:  # security 10: the key's owner
    tenant = make_tenant()
    caplog.set_level(logging.INFO, logger=logger.name)
    async with live_api(settings_for(postgres_server.app_url, [tenant])) as api:
        key = await api.application.for_tenant(tenant).api_keys.create("leaked", Scope.READ)
        async with api.client(tenant) as owner, api.client(None) as client:
            await add_documents(owner, await new_collection(owner), a="The oven is at 230 degrees.")
            caplog.clear()
            answered = await client.post("/v1/rag/query", json={"query": "oven?"})
            assert answered.status_code == 401
            client.headers["Authorization"] = f"Bearer {key.secret}"
            answered = await client.post("/v1/rag/query", json={"query": "oven?"})
            streamed = await client.post("/v1/rag/query", json={"query": "oven!", "stream": True})
            assert (answered.status_code, streamed.status_code) == (200, 200)
            assert (await client.get("/v1/keys")).status_code == 403
            assert (await client.get("/v1/none/a%0Ab")).status_code == 404
            rows = (await owner.get("/v1/queries")).json()["queries"]
    lines = [record for record in caplog.records if record.name == logger.name]
    by_key = [record for record in lines if record.credential == f"vf_{key.key.id}"]  # type: ignore[attr-defined]
    requests = [message.partition(" in ")[0] for message in (record.getMessage() for record in by_key)]
    assert requests == [
        "POST /v1/rag/query: 200",
        "POST /v1/rag/query: 200",
        "GET unmatched: 403",
        "GET unmatched: 404",
    ]
    assert all(f"by vf_{key.key.id} of {tenant!r}" in record.getMessage() for record in by_key)
    named = {record.query_id for record in by_key[:2]}  # type: ignore[attr-defined]
    assert named == {row["id"] for row in rows}
    assert len(lines) == len(by_key) + 1  # the owner's list; requests without a credential are not in it
    text = "\n".join(str(vars(record)) for record in caplog.records if not record.name.startswith("httpx"))
    assert key.secret[20:] not in text
    assert key_of(tenant) not in text
