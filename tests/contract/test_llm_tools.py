"""Tools of callers in each vendor's protocol, with requests checked by the types of its own SDK."""

from collections.abc import AsyncIterator
from typing import Any, TypeAlias

import pytest

from tests.contract.bedrock_client import bedrock
from tests.support.vendors.fake_anthropic import FakeAnthropic
from tests.support.vendors.fake_bedrock import FakeBedrock
from tests.support.vendors.fake_openai import FakeOpenAI
from tests.support.vendors.fake_vendor import FakeVendor, Reply
from tests.support.vendors.vendor_behaviour import ToolCall as ScriptedCall
from vectorforge.llm.base import BaseLLMProvider
from vectorforge.llm.providers.anthropic import AnthropicProvider
from vectorforge.llm.providers.openai import OpenAIProvider
from vectorforge.llm.tools import NamedTool, ToolCall, ToolCallDelta, ToolChoice, ToolDefinition
from vectorforge.llm.types import LLMRequestConfig, LLMResponse, Message, StreamEnd

Pair: TypeAlias = tuple[FakeVendor, BaseLLMProvider]

SCHEMA: Any = {"type": "object", "properties": {"city": {"type": "string"}}}
TOOLS = (ToolDefinition("weather", "Weather of a city.", SCHEMA, strict=False), ToolDefinition("clock"))
CALLING = Reply(
    texts=("Let me look.",),
    tool_calls=(ScriptedCall("weather", {"city": "Köln"}), ScriptedCall("clock", {})),
    finish="tool",
)
QUESTION: Message = {"role": "user", "content": "How is the weather?"}
HISTORY: list[Message] = [
    {"role": "system", "content": "Be brief."},
    QUESTION,
    {
        "role": "assistant",
        "content": "",
        "tool_calls": (ToolCall("a", "weather", '{"city": "Bonn"}'), ToolCall("b", "clock", "not JSON")),
    },
    {"role": "tool", "content": "hot", "tool_call_id": "a"},
    {"role": "tool", "content": "noon", "tool_call_id": "b"},
]


@pytest.fixture(params=["openai", "anthropic", "bedrock"])
async def pair(request: pytest.FixtureRequest) -> AsyncIterator[Pair]:
    options: Any = {"retries": 0, "default_model": "model-1"}
    kinds: Any = {"openai": FakeOpenAI, "anthropic": FakeAnthropic, "bedrock": FakeBedrock}
    server: FakeVendor = kinds[request.param]()
    async with server:
        if request.param == "bedrock":
            provider: BaseLLMProvider = bedrock(server, **options)
        else:
            kind = OpenAIProvider if request.param == "openai" else AnthropicProvider
            provider = kind(server.api_key, base_url=server.base_url, **options)
        yield server, provider
        await provider.aclose()


def config(choice: ToolChoice = "auto", **more: Any) -> LLMRequestConfig:
    return LLMRequestConfig("model-1", tools=TOOLS, tool_choice=choice, **more)


async def asked(provider: BaseLLMProvider, settings: LLMRequestConfig, *, stream: bool) -> LLMResponse:
    """Return the answer to ``HISTORY``; the pieces of its calls must add up to them."""
    if not stream:
        return await provider.generate(HISTORY, settings)
    events = [event async for event in provider.stream_events(HISTORY, settings)]
    end = events[-1]
    assert isinstance(end, StreamEnd)
    joined = dict.fromkeys(range(len(end.response.tool_calls)), "")
    for event in events:
        if isinstance(event, ToolCallDelta):
            joined[event.index] += event.arguments
    assert list(joined.values()) == [call.arguments for call in end.response.tool_calls]
    return end.response


@pytest.mark.parametrize("stream", [False, True])
async def test_calls_and_results_pass_through_every_vendor(pair: Pair, stream: bool) -> None:
    server, provider = pair
    server.script(CALLING)
    response = await asked(provider, config(), stream=stream)
    assert response.content == "Let me look."
    assert response.metadata["finish_reason"] == "tool_calls"
    assert [(call.name, call.values) for call in response.tool_calls] == [
        ("weather", {"city": "Köln"}),
        ("clock", {}),
    ]
    assert all(call.id for call in response.tool_calls)


CHOICES: dict[type[FakeVendor], list[Any]] = {
    FakeOpenAI: ["auto", "none", "required", {"type": "function", "function": {"name": "clock"}}],
    FakeAnthropic: [{"type": "auto"}, {"type": "none"}, {"type": "any"}, {"type": "tool", "name": "clock"}],
    FakeBedrock: [{"auto": {}}, None, {"any": {}}, {"tool": {"name": "clock"}}],
}


async def test_choice_of_tools_has_the_vendors_words(pair: Pair) -> None:
    server, provider = pair
    choices: list[ToolChoice] = ["auto", "none", "required", NamedTool("clock")]
    for choice in choices:
        await provider.generate(HISTORY, config(choice))
    sent = [
        body["toolConfig"].get("toolChoice") if "toolConfig" in body else body["tool_choice"]
        for body in server.bodies
    ]
    assert sent == CHOICES[type(server)]


async def test_bedrock_gets_no_tools_that_must_not_be_called() -> None:
    async with FakeBedrock() as server:
        await bedrock(server).generate([QUESTION], config("none"))
        assert "toolConfig" not in server.bodies[0]


async def test_parallel_calls_are_disabled_where_the_vendor_can() -> None:
    async with FakeOpenAI() as openai, FakeAnthropic() as anthropic:
        settings = config(parallel_tool_calls=False)
        await OpenAIProvider(openai.api_key, base_url=openai.base_url).generate(HISTORY, settings)
        provider = AnthropicProvider(anthropic.api_key, base_url=anthropic.base_url)
        await provider.generate(HISTORY, settings)
        openai.refused["parallel_tool_calls"] = "Unsupported parameter: 'parallel_tool_calls'"
        response = await OpenAIProvider(openai.api_key, base_url=openai.base_url).generate(HISTORY, settings)
    assert openai.bodies[0]["parallel_tool_calls"] is False
    assert anthropic.bodies[0]["tool_choice"] == {"type": "auto", "disable_parallel_tool_use": True}
    assert response.metadata["dropped_parameters"] == ["parallel_tool_calls"]


async def test_blank_stop_sequences_are_not_sent_where_they_are_refused() -> None:
    async with FakeAnthropic() as anthropic, FakeBedrock() as server:
        settings = LLMRequestConfig("model-1", stop_sequences=("\n", "END"))
        await AnthropicProvider(anthropic.api_key, base_url=anthropic.base_url).generate([QUESTION], settings)
        await bedrock(server).generate([QUESTION], settings)
    assert anthropic.bodies[0]["stop_sequences"] == ["END"]
    assert server.bodies[0]["inferenceConfig"]["stopSequences"] == ["END"]


async def test_refusal_of_a_callers_schema_is_not_remembered() -> None:
    async with FakeAnthropic(refused={"output_config": "output_config.format.schema: too complex"}) as server:
        provider = AnthropicProvider(server.api_key, base_url=server.base_url, retries=0)
        for is_callers in (True, True, False, False, True):
            settings = LLMRequestConfig("m", response_schema=SCHEMA, is_callers_schema=is_callers)
            await provider.generate([QUESTION], settings)
    assert ["output_config" in body for body in server.bodies] == [
        *(True, False), *(True, False), *(True, False), False, False,
    ]  # fmt: skip
