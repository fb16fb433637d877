"""Chat completions with tools of the client, over the openai package."""

import json
import uuid
from collections.abc import AsyncIterator
from typing import Any

import openai
import pytest
import pytest_asyncio
from openai import AsyncOpenAI
from pydantic import BaseModel, SecretStr

from tests.integration.openai_chat.conftest import ASKED, GUIDES, MODEL, streamed
from tests.integration.openai_chat.test_chat_output import GOOD, SCHEMA, STREAMED, reply
from tests.support.http.live_api import LiveApi, add_documents, live_api, new_collection, settings_for
from tests.support.vendors.fake_anthropic import FakeAnthropic
from tests.support.vendors.fake_openai import FakeOpenAI
from tests.support.vendors.fake_vendor import Failure, Reply, ToolCall
from tests.support.vendors.tool_round_trips import openai_round_trip
from vectorforge.config import LLMSettings, QuerySettings
from vectorforge.llm.base import BaseLLMProvider
from vectorforge.llm.providers.anthropic import AnthropicProvider
from vectorforge.llm.providers.extractive import ExtractiveProvider
from vectorforge.llm.providers.openai import OpenAIProvider
from vectorforge.local.postgres import EmbeddedPostgres

pytestmark = pytest.mark.asyncio(loop_scope="module")

PARAMETERS: Any = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}
WEATHER: Any = {
    "type": "function",
    "function": {"name": "weather", "description": "Weather of a city.", "parameters": PARAMETERS},
}
CLOCK: Any = {"type": "function", "function": {"name": "clock"}}
CALLS = (ToolCall("weather", {"city": "Köln"}), ToolCall("clock", {}))
CALLING = Reply(texts=(), tool_calls=CALLS, finish="tool")
CITED = Reply(texts=("It is hot [Sou", "rce 1]."))


class Weather(BaseModel):
    """Weather of a city."""

    city: str


class Bound:
    """Chat completions of this server for a client that names another model."""

    def __init__(self, client: AsyncOpenAI) -> None:
        self._client = client
        self.chat = self.completions = self

    async def create(self, **options: Any) -> Any:
        """Create a completion."""
        return await self._client.chat.completions.create(**{**options, "model": MODEL})


async def run(name: str, arguments: Any) -> str:
    return f"{name} of {json.loads(arguments or '{}')}"


@STREAMED
async def test_tools_are_called_and_their_results_reach_the_model(
    client: AsyncOpenAI, vendor: FakeOpenAI, stream: bool
) -> None:
    vendor.script(CALLING, CITED)

    text = await openai_round_trip(Bound(client), [WEATHER, CLOCK], ASKED[0]["content"], run, stream=stream)
    assert text == "It is hot [1]."
    first, second = vendor.bodies
    assert [tool["function"]["name"] for tool in first["tools"]] == ["weather", "clock"]
    assert first["tools"][0] == WEATHER
    assert "two hours" in first["messages"][0]["content"]  # the search came first
    assert [message["role"] for message in second["messages"]] == [
        "system",
        "user",
        "assistant",
        "tool",
        "tool",
    ]
    assert second["messages"][-2]["content"] == "weather of {'city': 'Köln'}"


async def test_tool_call_answer_has_openai_form(
    client: AsyncOpenAI, vendor: FakeOpenAI, api: LiveApi, tenant: str
) -> None:
    vendor.script(CALLING)
    answer = await client.chat.completions.create(
        model=MODEL, messages=ASKED, tools=[WEATHER, CLOCK], tool_choice="required", parallel_tool_calls=True
    )
    choice = answer.choices[0]
    assert (choice.finish_reason, choice.message.content) == ("tool_calls", None)
    assert [(c.id, c.type, c.function.name) for c in choice.message.tool_calls or ()] == [  # type: ignore[union-attr]
        ("call_0", "function", "weather"),
        ("call_1", "function", "clock"),
    ]
    assert (vendor.bodies[0]["tool_choice"], vendor.bodies[0]["parallel_tool_calls"]) == ("required", True)
    assert answer.vectorforge["quality"] is None  # type: ignore[attr-defined]
    async with api.client(tenant) as native:
        path = f"/v1/queries/{answer.id.removeprefix('chatcmpl-')}"
        row = (await native.get(path)).json()
        assert (row["outcome"], row["generated_response"]) == ("answered", "")
        assert "Köln" not in json.dumps(row, ensure_ascii=False)
        replayed = (await native.get(f"{path}/replay")).json()
    assert replayed["status"] == "not_rebuilt"
    assert "tools" in replayed["changes"][0]["detail"]


async def test_streamed_tool_calls_come_in_pieces(client: AsyncOpenAI, vendor: FakeOpenAI) -> None:
    vendor.script(Reply(texts=("Let me look.",), tool_calls=CALLS[:1], finish="tool"))
    chunks = await streamed(client, tools=[WEATHER])
    pieces = [p for c in chunks if c.choices for p in c.choices[0].delta.tool_calls or ()]
    assert [(p.index, p.id, p.function and p.function.name) for p in pieces] == [
        (0, "call_0", "weather"),
        (0, None, None),
        (0, None, None),
    ]
    assert json.loads("".join(p.function.arguments or "" for p in pieces if p.function)) == {"city": "Köln"}
    assert [c.choices[0].finish_reason for c in chunks if c.choices][-1] == "tool_calls"


@STREAMED
async def test_call_of_a_tool_that_must_not_be_called_is_dropped(
    client: AsyncOpenAI, vendor: FakeOpenAI, stream: bool
) -> None:
    vendor.script(Reply(texts=("It is hot [Source 1].",), tool_calls=CALLS, finish="tool"))
    options: Any = {"tools": [WEATHER, CLOCK], "tool_choice": "none"}
    if stream:
        chunks = await streamed(client, **options)
        assert [c for c in chunks if c.choices and c.choices[0].delta.tool_calls] == []
        assert [c.choices[0].finish_reason for c in chunks if c.choices][-1] == "stop"
    else:
        answer = await client.chat.completions.create(model=MODEL, messages=ASKED, **options)
        assert (answer.choices[0].finish_reason, answer.choices[0].message.tool_calls) == ("stop", None)
    assert vendor.bodies[0]["tool_choice"] == "none"


async def test_named_tool_is_forced_and_result_is_not_cached(client: AsyncOpenAI, vendor: FakeOpenAI) -> None:
    choice: Any = {"type": "function", "function": {"name": "clock"}}
    for _ in range(2):
        await client.chat.completions.create(
            model=MODEL, messages=ASKED, tools=[WEATHER, CLOCK], tool_choice=choice
        )
    assert [body["tool_choice"] for body in vendor.bodies] == [choice] * 2


async def test_sdk_stream_helper_and_parse_return_tool_calls(client: AsyncOpenAI, vendor: FakeOpenAI) -> None:
    tool: Any = openai.pydantic_function_tool(Weather, name="weather")
    vendor.script(*[Reply(texts=(), tool_calls=CALLS[:1], finish="tool")] * 2)
    parsed = await client.chat.completions.parse(model=MODEL, messages=ASKED, tools=[tool])
    async with client.chat.completions.stream(model=MODEL, messages=ASKED, tools=[tool]) as stream:
        final = await stream.get_final_completion()
    for answer in (parsed, final):
        calls = answer.choices[0].message.tool_calls or []
        assert [call.function.parsed_arguments for call in calls] == [Weather(city="Köln")]
    assert vendor.bodies[0]["tools"][0]["function"]["strict"] is True


async def test_tools_with_json_format_call_tools_first(client: AsyncOpenAI, vendor: FakeOpenAI) -> None:
    vendor.script(CALLING, reply(GOOD))
    messages: list[Any] = list(ASKED)
    options: Any = {"model": MODEL, "tools": [WEATHER, CLOCK], "response_format": SCHEMA}
    called = (await client.chat.completions.create(messages=messages, **options)).choices[0].message
    assert [call.id for call in called.tool_calls or ()] == ["call_0", "call_1"]
    messages.append(called.model_dump(exclude_unset=True))
    messages += [{"role": "tool", "tool_call_id": c.id, "content": "hot"} for c in called.tool_calls or ()]
    answer = await client.chat.completions.create(messages=messages, **options)
    assert json.loads(answer.choices[0].message.content or "") == GOOD


async def test_started_answer_of_the_assistant_is_sent_after_the_query(
    client: AsyncOpenAI, vendor: FakeOpenAI
) -> None:
    messages: Any = [*ASKED, {"role": "assistant", "content": "It rises"}]
    await client.chat.completions.create(model=MODEL, messages=messages)
    assert [m["content"] for m in vendor.bodies[0]["messages"]][-2:] == [ASKED[0]["content"], "It rises"]


async def test_empty_collection_leaves_tools_to_the_model(client: AsyncOpenAI, vendor: FakeOpenAI) -> None:
    vendor.script(CALLING)
    answer = await client.chat.completions.create(
        model=MODEL, messages=ASKED, tools=[CLOCK], extra_body={"filters": {"kind": "nothing"}}
    )
    assert answer.choices[0].finish_reason == "tool_calls"


async def served(server: EmbeddedPostgres, *providers: BaseLLMProvider) -> AsyncIterator[AsyncOpenAI]:
    tenant = f"tenant-{uuid.uuid4().hex[:12]}"
    llm = LLMSettings(llm_fallbacks=[provider.name for provider in providers[1:]])
    config = settings_for(server.app_url, [tenant], query=QuerySettings(degraded_answers=True), llm=llm)
    async with live_api(config, *providers) as running, running.client(tenant) as native:
        await add_documents(native, await new_collection(native, "handbook"), **GUIDES)
        async with running.openai(tenant) as opened:
            yield opened


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def quoting(postgres_server: EmbeddedPostgres) -> AsyncIterator[AsyncOpenAI]:
    """Client of a server without a model."""
    async for opened in served(postgres_server, ExtractiveProvider()):
        yield opened


@STREAMED
async def test_server_without_a_model_refuses_what_needs_one(quoting: AsyncOpenAI, stream: bool) -> None:
    refusals: list[tuple[Any, str]] = [
        ({"tools": [WEATHER], "tool_choice": "required"}, "tools"),
        ({"response_format": SCHEMA}, "response_format"),
    ]
    for options, param in refusals:
        with pytest.raises(openai.BadRequestError) as refused:
            await quoting.chat.completions.create(
                model=MODEL,
                messages=ASKED,
                stream=stream,
                **options,
            )
        assert refused.value.param == param


@STREAMED
async def test_answer_of_few_tokens_is_cut_instead_of_refused(
    quoting: AsyncOpenAI, client: AsyncOpenAI, vendor: FakeOpenAI, stream: bool
) -> None:
    vendor.unscripted = Reply(texts=("Let the dough",), finish="length")
    for served_by in (quoting, client):
        answer: Any = await served_by.chat.completions.create(
            model=MODEL, messages=ASKED, max_tokens=5, stream=stream
        )
        if stream:
            choices = [chunk.choices[0] async for chunk in answer if chunk.choices]
            text, finish = "".join(c.delta.content or "" for c in choices), choices[-1].finish_reason
        else:
            text, finish = answer.choices[0].message.content, answer.choices[0].finish_reason
        assert text.startswith("Let the dough")
        assert (len(text) < 40, finish) == (True, "length")
    assert "two hours before baking it at 230 degrees" in vendor.bodies[0]["messages"][0]["content"]


@STREAMED
async def test_server_without_a_model_quotes_despite_optional_tools_up_to_the_stop(
    quoting: AsyncOpenAI, stream: bool
) -> None:
    texts = []
    for stop in (None, ["baking"]):
        messages: Any = [
            *ASKED,
            {
                "role": "assistant",
                "tool_calls": [
                    {"id": "1", "type": "function", "function": {"name": "clock", "arguments": ""}}
                ],
            },
            {"role": "tool", "tool_call_id": "1", "content": "noon"},
        ]
        answer: Any = await quoting.chat.completions.create(
            model=MODEL, messages=messages, tools=[CLOCK], stop=stop, stream=stream
        )
        if stream:
            chunks = [chunk async for chunk in answer]
            texts.append("".join(c.choices[0].delta.content or "" for c in chunks if c.choices))
            assert [c.choices[0].finish_reason for c in chunks if c.choices][-1] == "stop"
            (details,) = [c.vectorforge for c in chunks if getattr(c, "vectorforge", None)]
        else:
            texts.append(answer.choices[0].message.content)
            details = answer.vectorforge
        assert details["extractive"] is True
    assert texts[0].startswith("Let the dough rise for two hours before baking")
    assert texts[1] == "Let the dough rise for two hours before "


async def test_fallback_provider_gets_the_same_tools(postgres_server: EmbeddedPostgres) -> None:
    async with FakeOpenAI() as broken, FakeAnthropic() as working:
        second = AnthropicProvider(SecretStr(working.api_key), base_url=working.base_url, retries=0)
        working.script(CALLING)
        failing = OpenAIProvider(SecretStr(broken.api_key), base_url=broken.base_url, retries=0)
        broken.unscripted = Failure(500)
        async for client in served(postgres_server, failing, second):
            answer = await client.chat.completions.create(model=MODEL, messages=ASKED, tools=[WEATHER, CLOCK])
            calls = answer.choices[0].message.tool_calls or []
            assert [(c.id, c.function.arguments) for c in calls] == [  # type: ignore[union-attr]
                ("toolu_0", '{"city":"Köln"}'),
                ("toolu_1", "{}"),
            ]
            assert [tool["name"] for tool in working.bodies[0]["tools"]] == ["weather", "clock"]
            working.unscripted = Failure(529)
            with pytest.raises(openai.APIStatusError) as failed:  # quoted chunks are no call of a tool
                await client.chat.completions.create(
                    model=MODEL, messages=ASKED, tools=[CLOCK], tool_choice="required"
                )
            assert failed.value.status_code in (502, 503)
