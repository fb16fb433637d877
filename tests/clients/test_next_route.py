"""The Next.js route of docs/use/ai-sdk.md, run unchanged."""

import asyncio

from tests.clients.conftest import RunNode
from tests.clients.guides import QUESTION, Guides, unending
from tests.clients.npm import HERE
from tests.support.vendors.fake_openai import FakeOpenAI

DOCUMENT = str(HERE.parents[1] / "docs" / "use" / "ai-sdk.md")


async def test_next_route_forwards_answers_and_errors(guides: Guides, run_node: RunNode) -> None:
    route_options = {**guides.options, "document": DOCUMENT, "text": QUESTION}
    output = await run_node("next_route.mjs", route_options)
    assert (output["status"], output["type"].partition(";")[0]) == (200, "text/event-stream")
    assert output["text"].endswith("data: [DONE]\n\n")
    output = await run_node("next_route.mjs", {**route_options, "body": {"collection": "nowhere"}})
    assert (output["status"], output["type"]) == (404, "application/problem+json")


async def test_next_route_forwards_abort_to_the_model(
    guides: Guides, openai: FakeOpenAI, run_node: RunNode
) -> None:
    openai.script(unending("Two hours"))
    await run_node(
        "next_route.mjs",
        {**guides.options, "document": DOCUMENT, "text": QUESTION, "abortAtText": True},
    )
    async with asyncio.timeout(10):
        await openai.requests[0].client_closed.wait()
