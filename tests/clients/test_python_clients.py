"""Unmodified Python clients: objects and tools over OpenAI's API."""

import json
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.clients.guides import QUESTION, Guides
from tests.clients.python_env import PythonClients, run_program
from tests.support.vendors.fake_openai import FakeOpenAI
from tests.support.vendors.fake_vendor import Reply, ToolCall

pytestmark = pytest.mark.slow

STREAMED = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
RISING = {"hours": 2, "place": "bowl"}
OBJECT = Reply(texts=('{"hours": 2,', ' "place": "bowl"}'))
CLOCK = Reply(texts=(), tool_calls=(ToolCall("clock", {"city": "Bonn"}),), finish="tool")
CITED = Reply(texts=("It is noon [Sou", "rce 1]."))


def calling(name: str) -> Reply:
    return Reply(texts=(), tool_calls=(ToolCall(name, RISING),), finish="tool")


@pytest.fixture(scope="module")
def clients() -> Iterator[PythonClients]:
    with PythonClients() as started:
        yield started


Answer = Callable[..., Awaitable[Any]]


@pytest.fixture
def answer(clients: PythonClients, guides: Guides) -> Answer:
    """Let a client ask the guides: ``await answer(client, mode, stream=False)``."""

    def ask(client: str, mode: str, *, stream: bool = False) -> Awaitable[Any]:
        asked = {**guides.options, "client": client, "mode": mode, "stream": stream, "text": QUESTION}
        return clients.converse("agents" if client != "llama_index" else client, asked)

    return ask


@STREAMED
@pytest.mark.parametrize("mode", ["tools", "json"])
async def test_instructor_returns_an_object(
    answer: Answer, openai: FakeOpenAI, mode: str, stream: bool
) -> None:
    openai.script(calling("Rising") if mode == "tools" else OBJECT)
    assert await answer("instructor", mode, stream=stream) == RISING


@STREAMED
@pytest.mark.parametrize("mode", ["chat", "responses"])
async def test_pydantic_ai_agent_calls_a_tool_and_returns_an_object(
    answer: Answer, openai: FakeOpenAI, mode: str, stream: bool
) -> None:
    openai.script(CLOCK, calling("final_result"))
    assert await answer("pydantic_ai", mode, stream=stream) == RISING
    assert openai.bodies[1]["messages"][-1] == {
        "role": "tool",
        "content": "noon in Bonn",
        "tool_call_id": "call_0",
    }


@pytest.mark.parametrize("mode", ["json_schema", "function_calling", "json_mode"])
async def test_langchain_returns_an_object(answer: Answer, openai: FakeOpenAI, mode: str) -> None:
    openai.script(calling("Rising") if mode == "function_calling" else OBJECT)
    assert await answer("langchain", mode) == RISING


@STREAMED
async def test_langchain_model_with_bound_tool_gets_its_result(
    answer: Answer, openai: FakeOpenAI, stream: bool
) -> None:
    openai.script(CLOCK, CITED)
    found = await answer("langchain", "tools", stream=stream)
    assert found == {"text": "It is noon [1].", "reason": "stop"}
    assert openai.bodies[1]["messages"][-1]["content"] == "noon in Bonn"


async def test_llama_index_returns_an_object_and_calls_a_tool(answer: Answer, openai: FakeOpenAI) -> None:
    openai.script(calling("Rising"))
    assert await answer("llama_index", "object") == RISING
    openai.script(CLOCK, CITED)
    assert await answer("llama_index", "tools") == {"text": "It is noon [1]."}


async def test_llm_command_returns_an_object_and_calls_a_function(
    guides: Guides, openai: FakeOpenAI, tmp_path: Path
) -> None:
    model = {"model_id": "vf", "model_name": "vectorforge", "api_base": f"{guides.api.url}/v1"}
    settings = {**model, "supports_schema": True, "supports_tools": True, "api_key_name": "vf"}
    (tmp_path / "extra-openai-models.yaml").write_text(json.dumps([settings]))
    options = {"LLM_USER_PATH": str(tmp_path), "HOME": str(tmp_path)}
    key = ("--key", guides.options["key"], "--no-log")
    openai.script(OBJECT)
    schema = ("--schema", "hours int, place")
    assert await run_program("agents", "llm", "-m", "vf", *key, *schema, QUESTION, **options) == RISING
    openai.script(CLOCK, Reply(texts=('"It is noon."',)))
    function = ("--functions", 'def clock(city: str) -> str:\n    return f"noon in {city}"')
    found = await run_program("agents", "llm", "-m", "vf", *key, *function, QUESTION, **options)
    assert found == "It is noon."
    assert openai.bodies[-1]["messages"][-1]["content"] == "noon in Bonn"
