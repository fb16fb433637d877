"""A text in two versions or places fills an answer's context once; a search lists both."""

from collections.abc import Callable

from tests.support.http.live_api import add_documents, live_api, new_collection, settings_for
from vectorforge.local.postgres import EmbeddedPostgres

REFUND = (
    "How long does a refund take? Five days after the parcel has reached us, on the card that paid for it."
)
DOCUMENTS = {
    "2025": REFUND,
    "2026": f"{REFUND}\n",
    "exchange": "How long does an exchange take? Nine days after the parcel has reached us.",
}
QUESTION = {"query": "How long does a refund take after the parcel?"}


async def test_answer_has_one_copy_of_repeated_text_and_search_has_both(
    postgres_server: EmbeddedPostgres, make_tenant: Callable[[], str]
) -> None:
    tenant = make_tenant()
    async with live_api(settings_for(postgres_server.app_url, [tenant])) as api, api.client(tenant) as client:
        await add_documents(client, await new_collection(client), **DOCUMENTS)
        found = (await client.post("/v1/search", json=QUESTION)).json()["results"]
        assert {"2025.md", "2026.md"} <= {result["source"] for result in found}
        answer = (await client.post("/v1/rag/query", json=QUESTION)).json()
    sources = [source["source"] for source in answer["context"]]
    assert len(sources) == 2
    assert "exchange.md" in sources
