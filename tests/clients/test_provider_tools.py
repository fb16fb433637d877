"""Tools and objects over the openai package for JavaScript and the AI SDK's provider packages."""

import pytest

from tests.clients.conftest import RunNode
from tests.clients.guides import QUESTION, Guides
from tests.support.vendors.fake_openai import FakeOpenAI
from tests.support.vendors.fake_vendor import Reply, ToolCall

SCRIPT = "tools.mjs"
WHOLE = pytest.param(False, id="whole", marks=pytest.mark.slow)
STREAMED = pytest.mark.parametrize("stream", [WHOLE, pytest.param(True, id="streamed")])
COMPATIBLE = pytest.param("compatible", marks=pytest.mark.slow)
PROVIDERS = pytest.mark.parametrize("client", ["chat", "responses", COMPATIBLE])
CLOCK = Reply(texts=(), tool_calls=(ToolCall("clock", {"city": "Bonn"}),), finish="tool")
NEXT = "At how many degrees does the water in the kettle boil?"
LOOKING = Reply(texts=("Let me look [Source 1].",), tool_calls=CLOCK.tool_calls, finish="tool")
CITED = Reply(texts=("It is noon [Sou", "rce 1]."))
OBJECT = Reply(texts=('{"hours": 2,', ' "place": "bowl [Source 1]"}'))


@STREAMED
async def test_openai_runner_calls_the_tool(
    guides: Guides, openai: FakeOpenAI, run_node: RunNode, stream: bool
) -> None:
    openai.script(CLOCK, CITED)
    output = await run_node(
        SCRIPT, {**guides.options, "client": "openai", "stream": stream, "text": QUESTION}
    )
    assert output == {"text": "It is noon [1]."}
    assert openai.bodies[1]["messages"][-1]["content"] == "noon in Bonn"


@STREAMED
@PROVIDERS
async def test_provider_calls_the_tool_and_cites(
    guides: Guides, openai: FakeOpenAI, run_node: RunNode, client: str, stream: bool
) -> None:
    openai.script(CLOCK, CITED)
    output = await run_node(SCRIPT, {**guides.options, "client": client, "stream": stream, "text": QUESTION})
    assert output == {"text": "It is noon [1].", "reasons": ["tool-calls", "stop"]}
    assert "noon in Bonn" in openai.bodies[1]["messages"][-1]["content"]


@STREAMED
@pytest.mark.parametrize("store", [True, False], ids=["stored", "unstored"])
async def test_responses_provider_continues_after_a_tool(
    guides: Guides, openai: FakeOpenAI, run_node: RunNode, store: bool, stream: bool
) -> None:
    """Stored, the SDK names the earlier items by reference, among them the text before the call."""
    openai.script(LOOKING, CITED, CITED)
    query = {
        "client": "responses",
        "stream": stream,
        "store": store,
        "text": QUESTION,
        "then": NEXT,
    }
    output = await run_node(SCRIPT, {**guides.options, **query})
    assert output == {"text": "It is noon [1].", "reasons": ["tool-calls", "stop"], "then": "It is noon [1]."}
    _, *sent = openai.bodies[2]["messages"]
    assert [(m["role"], m["content"]) for m in sent if m.get("content")] == [
        ("user", QUESTION),
        ("assistant", "Let me look."),
        ("tool", "noon in Bonn"),
        ("assistant", "It is noon."),
        ("user", NEXT),
    ]


@STREAMED
@PROVIDERS
async def test_provider_returns_an_object(
    guides: Guides, openai: FakeOpenAI, run_node: RunNode, client: str, stream: bool
) -> None:
    openai.script(OBJECT)
    query = {"client": client, "stream": stream, "object": True, "text": QUESTION}
    assert await run_node(SCRIPT, {**guides.options, **query}) == {"hours": 2, "place": "bowl"}
    assert openai.bodies[0]["response_format"]["type"] == "json_schema"
