"""The AI SDK's provider package for OpenAI against uvicorn and the Lambda runtime."""

import asyncio

import pytest

from tests.clients.conftest import RunNode, StartNode
from tests.clients.servers import QUESTION, ServedApi, check_end, held_back
from tests.support.vendors.fake_vendor import Reply

pytestmark = pytest.mark.asyncio(loop_scope="module")

SCRIPT = "provider.mjs"
TEXTS = ("It takes five", " days [Sou", "rce 1].")
ANSWER = "It takes five days [1]."
BROKEN = "The answer of provider openai broke off before its end"
PROVIDERS = pytest.mark.parametrize("provider", ["chat", "responses"])


@PROVIDERS
async def test_ai_sdk_provider_receives_answers_and_errors(
    served_api: ServedApi, run_node: RunNode, provider: str
) -> None:
    query_options = {**served_api.options, "provider": provider, "text": QUESTION}
    served_api.surroundings.vendor.script(
        Reply(texts=TEXTS), Reply(texts=TEXTS), Reply(texts=("It takes", " five"), ending="cut")
    )
    for stream in (False, True):
        output = await run_node(SCRIPT, {**query_options, "stream": stream})
        assert (output["text"], output["finishReason"]) == (ANSWER, "stop")
        assert (output["usage"]["inputTokens"], output["usage"]["outputTokens"]) == (11, 7)
        (source,) = output["sources"]
        assert source["title"] == "refunds.txt"

    broken = await run_node(SCRIPT, {**query_options, "stream": True})
    assert broken["text"] == "It takes five"
    assert [failed["message"] for failed in broken["errors"]] == [BROKEN]

    failed = (await run_node(SCRIPT, {**query_options, "model": "vectorforge/nowhere"}))["failed"]
    assert (failed["name"], failed["status"]) == ("AI_APICallError", 404)


@PROVIDERS
async def test_ai_sdk_provider_abort_aborts_the_query(
    served_api: ServedApi, start_node: StartNode, provider: str
) -> None:
    served_api.surroundings.vendor.script(held_back(served_api))
    query_options = {"provider": provider, "stream": True, "text": QUESTION, "abortAtText": True}
    script = start_node(SCRIPT, {**served_api.options, **query_options})
    async with asyncio.timeout(60):
        assert await script.read() == {"aborting": True}
        assert (await script.read())["types"][-1] == "abort"
        await script.end()
    async with served_api.surroundings.client(served_api.url) as native:
        query, *_ = (await native.get("/v1/queries")).json()["queries"]  # the newest one
    await check_end(served_api, query["id"], "It takes five")
