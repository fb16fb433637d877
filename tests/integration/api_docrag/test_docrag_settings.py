"""Settings, history and outages of ``/v1/docrag/query``."""

from collections.abc import Sequence

import httpx2
from pydantic import SecretStr

from tests.integration.api_docrag.conftest import DOCRAG, QUESTION, TEXT, URL, as_json, ask
from tests.support.http.live_api import (
    add_documents,
    ask_streaming,
    live_api,
    new_collection,
    settings_for,
)
from tests.support.rag.fenced import unfenced
from tests.support.vendors.fake_openai import FakeOpenAI
from tests.support.vendors.hashing_embedder import HashingEmbedder
from tests.support.vendors.vendor_behaviour import Failure
from vectorforge.errors import EmbeddingError
from vectorforge.llm.providers.openai import OpenAIProvider
from vectorforge.types import Vector


class EmbedderThatIsDown(HashingEmbedder):
    async def _call_api(self, texts: Sequence[str], model: str) -> Sequence[Vector]:
        raise EmbeddingError("The embedding provider is down")


async def test_conversation_history_is_placed_in_the_context(
    client: httpx2.AsyncClient, openai: FakeOpenAI
) -> None:  # D-019
    openai.unscripted = as_json()
    history = [{"user_query": f"Q{n}?", "ai_response": f"A{n}" + "y" * 250} for n in range(4)]
    await ask(client, conversation_history=history)
    (body,) = openai.bodies
    assert len(body["messages"]) == 2
    expected = "".join(f"Previous Q: Q{n}?\nPrevious A: A{n}{'y' * 198}...\n" for n in (1, 2, 3))
    assert f"Context from documentation:\n{expected}\n--- RELEVANT" in unfenced(
        body["messages"][1]["content"]
    )


# D-033
async def test_query_with_other_case_and_whitespace_hits_cache(
    client: httpx2.AsyncClient, openai: FakeOpenAI
) -> None:
    openai.unscripted = as_json(answer="Let the dough rise for two hours.")
    await ask(client)
    assert (await ask(client, query=f"  {QUESTION.upper()}\n"))["cached"] is True
    assert len(openai.bodies) == 1
    for query in (QUESTION, QUESTION.upper()):
        body = {"query": query, "temperature": 0.3, "top_p": None, "max_tokens": 1000}
        answer = (await client.post("/v1/rag/query", json=body)).json()
        assert answer["cached"] is False  # only DocRag's key is computed like this


async def test_docrag_collection_takes_precedence_over_default(
    client: httpx2.AsyncClient, openai: FakeOpenAI
) -> None:  # D-003, C17
    openai.unscripted = as_json()
    assert (await ask(client))["passages"]
    own = await new_collection(client, "docrag_embeddings")
    assert (await ask(client))["outcome"] == "empty"
    assert (await ask(client, collection="default"))["passages"]
    await add_documents(client, own, dough=TEXT)
    assert (await ask(client))["passages"][0]["document_source"] == "dough.md"


async def test_stored_conversation_is_placed_in_the_context(
    client: httpx2.AsyncClient, openai: FakeOpenAI
) -> None:  # D-019
    openai.unscripted = as_json(answer="Let the dough rise for two hours.")
    conversation = (await client.post("/v1/conversations", json={})).json()["id"]
    await ask(client, conversation_id=conversation)
    await ask(client, conversation_id=conversation)
    prompt = openai.bodies[1]["messages"][1]["content"]
    assert f"Previous Q: {QUESTION}\nPrevious A: Let the dough rise for two hours....\n" in prompt


async def test_model_outage_returns_extractive_answer(
    client: httpx2.AsyncClient, openai: FakeOpenAI
) -> None:  # D-038, C22
    openai.unscripted = Failure(500)
    answer = await ask(client)
    assert (answer["degraded"], answer["error"], answer["extractive"]) == (["passages"], None, True)
    assert (answer["sources"], answer["confidence"]) == ([URL], "low")
    assert "two hours" in answer["answer"].lower()


async def test_variant_sets_temperature_and_token_limit(
    client: httpx2.AsyncClient, openai: FakeOpenAI
) -> None:  # D-040, C30
    openai.unscripted = as_json()
    assert (await ask(client, variant="precise"))["variant"] == "precise"
    assert (openai.bodies[0]["temperature"], openai.bodies[0]["max_tokens"]) == (0.1, 500)


async def test_repeated_docrag_query_is_served_from_cache(
    client: httpx2.AsyncClient, openai: FakeOpenAI
) -> None:  # D-030, D-032, C21
    openai.unscripted = as_json(answer="Let the dough rise for two hours.")
    first = await ask(client)
    again = await ask(client)
    assert (first["cached"], again["cached"], len(openai.bodies)) == (False, True, 1)
    for name in ("answer", "examples", "sources", "dropped_sources", "confidence"):
        assert again[name] == first[name]
    events = await ask_streaming(client, DOCRAG, {"query": QUESTION, "min_score": 0.3})
    assert events[-1].data["structured"]["examples"] == first["examples"]
    third = {"user_query": "Which bread?", "ai_response": "Rye."}
    rest = [{"user_query": f"Q{n}?", "ai_response": f"A{n}."} for n in range(2)]
    for changed in ({**third, "user_query": "Which pizza?"}, third):
        assert (await ask(client, conversation_history=[changed, *rest]))["cached"] is False  # C20


async def test_outage_of_model_and_embedder_returns_template(app_url: str, tenant: str) -> None:  # D-038, C22
    async with FakeOpenAI() as openai:
        openai.unscripted = Failure(500)
        provider = OpenAIProvider(SecretStr(openai.api_key), base_url=openai.base_url, retries=0)
        async with (
            live_api(settings_for(app_url, [tenant]), provider) as running,
            running.client(tenant) as client,
        ):
            await new_collection(client)
            running.application.embedding_registry.register(EmbedderThatIsDown())
            answer = await ask(client)
    assert answer["answer"] == ("I'm temporarily unable to process your question. Please try again later.")
    assert (answer["degraded"], answer["error"]) == (["template"], "service_unavailable")
    assert (answer["examples"], answer["sources"], answer["confidence"]) == ([], [], "low")
