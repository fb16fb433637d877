"""Chat completions whose search the model decides on (``retrieval: "tool"``), over the openai package."""

from typing import Any

import openai
import pytest
from openai import AsyncOpenAI
from pydantic import SecretStr

from tests.integration.openai_chat.conftest import ASKED, MODEL, content_of, streamed
from tests.integration.openai_chat.test_chat_output import SCHEMA, STREAMED
from tests.integration.openai_chat.test_chat_tools import WEATHER, quoting, served
from tests.support.vendors.fake_anthropic import FakeAnthropic
from tests.support.vendors.fake_completions import FakeCompletions
from tests.support.vendors.fake_openai import FakeOpenAI
from tests.support.vendors.fake_vendor import Failure, Reply, ToolCall
from vectorforge.api.openai.request_schemas import CalledTool
from vectorforge.llm.providers.anthropic import AnthropicProvider
from vectorforge.llm.providers.openai import OpenAIProvider
from vectorforge.llm.providers.openai_compatible import MaxServeProvider
from vectorforge.llm.tools import ToolCallDelta, join_tool_calls
from vectorforge.local.postgres import EmbeddedPostgres

pytestmark = pytest.mark.asyncio(loop_scope="module")

__all__ = ["quoting"]

BY_TOOL: Any = {"retrieval": "tool"}


def searching(*queries: str, texts: tuple[str, ...] = (), **more: Any) -> Reply:
    calls = tuple(ToolCall("search_documents", {"query": query, **more}) for query in queries)
    return Reply(texts=texts, tool_calls=calls, finish="tool")


def cited(label: int) -> Reply:
    return Reply(texts=("Two hours [Sou", f"rce {label}]."))


async def answered(client: AsyncOpenAI, *, stream: bool, **options: Any) -> tuple[Any, Any]:
    """Return the message and ``vectorforge`` of a completion, whole or joined from its chunks."""
    options = {"extra_body": BY_TOOL, **options}
    if not stream:
        answer = await client.chat.completions.create(model=MODEL, messages=ASKED, **options)
        return answer.choices[0].message.to_dict(), answer.to_dict()["vectorforge"]
    chunks = await streamed(client, **options)
    (annotated,) = [c.to_dict() for c in chunks if "vectorforge" in c.to_dict()]
    annotations = annotated["choices"][0]["delta"]["annotations"]  # type: ignore[index]
    pieces = [p for c in chunks if c.choices for p in c.choices[0].delta.tool_calls or ()]
    called = [(p, p.function) for p in pieces if p.function]
    calls = join_tool_calls(ToolCallDelta(p.index, f.arguments or "", p.id, f.name) for p, f in called)
    message: Any = {"role": "assistant", "content": content_of(chunks), "annotations": annotations}
    if calls:
        bodies = [CalledTool.of(call).model_dump() for call in calls]
        message["tool_calls"] = bodies
    return message, annotated["vectorforge"]


@STREAMED
async def test_model_that_searches_cites_the_chunks_found(
    client: AsyncOpenAI, vendor: FakeOpenAI, stream: bool
) -> None:
    vendor.script(searching("rising time of dough"), cited(1))
    message, details = await answered(client, stream=stream)

    assert message["content"] == "Two hours [1]."
    (citation,) = message["annotations"]
    sources = details["sources"]
    assert "two hours" in sources[citation["url_citation"]["source_number"] - 1]["text"]
    assert (details["outcome"], details["funnel"]["cited"]) == ("answered", 1)
    assert [(step["origin"], step["queries"]) for step in details["steps"]] == [
        ("model", ["rising time of dough"])
    ]
    first, second = vendor.bodies
    assert [tool["function"]["name"] for tool in first["tools"]] == ["search_documents"]
    assert "two hours" not in str(first["messages"])
    call, result = second["messages"][-2:]
    assert (call["tool_calls"][0]["id"], result["role"]) == (result["tool_call_id"], "tool")
    assert "PASSAGES" in result["content"] and "[Source 1]\n" in result["content"]  # noqa: PT018


@STREAMED
async def test_model_that_does_not_search_answers_without_chunks(
    client: AsyncOpenAI, vendor: FakeOpenAI, stream: bool
) -> None:
    vendor.script(Reply(texts=("Hello. [Source 1] See you.",)))
    message, details = await answered(client, stream=stream)
    assert message["content"] == "Hello. See you."  # a label of no chunk is removed
    assert (details["sources"], details.get("steps"), details["outcome"]) == ([], None, "answered")
    assert len(vendor.bodies) == 1


@STREAMED
async def test_second_search_keeps_labels_and_text_before_it(
    client: AsyncOpenAI, vendor: FakeOpenAI, stream: bool
) -> None:
    vendor.script(
        searching("dough", top_k=1),
        searching("kettle", top_k=1, texts=("It rises [Source 1].",)),
        cited(2),
    )
    message, details = await answered(client, stream=stream)
    assert message["content"] == "It rises [1].\n\nTwo hours [2]."
    spans = [
        (a["url_citation"]["start_index"], a["url_citation"]["end_index"]) for a in message["annotations"]
    ]
    assert [message["content"][start:end] for start, end in spans] == ["[1]", "[2]"]
    assert ["dough" in source["text"] for source in details["sources"]] == [True, False]
    assert "[Source 2]" in vendor.bodies[2]["messages"][-1]["content"]
    assert "[Source 1]" not in vendor.bodies[2]["messages"][-1]["content"]


@STREAMED
async def test_call_of_the_clients_tool_ends_the_answer_and_its_result_continues_it(
    client: AsyncOpenAI, vendor: FakeOpenAI, stream: bool
) -> None:
    both = (ToolCall("search_documents", {"query": "dough"}), ToolCall("weather", {"city": "Köln"}))
    vendor.script(searching("dough"), Reply(texts=(), tool_calls=both, finish="tool"), searching("dough"))
    message, details = await answered(client, stream=stream, tools=[WEATHER])
    assert [call["function"]["name"] for call in message["tool_calls"]] == ["weather"]
    assert len(details["steps"]) == 1
    assert [tool["function"]["name"] for tool in vendor.bodies[0]["tools"]] == ["weather", "search_documents"]

    vendor.script(cited(1))
    called = {name: message[name] for name in ("role", "content", "tool_calls")}
    result = {"role": "tool", "tool_call_id": message["tool_calls"][0]["id"], "content": "hot"}
    messages: Any = [*ASKED, called, result]
    second = await client.chat.completions.create(
        model=MODEL, messages=messages, tools=[WEATHER], extra_body=BY_TOOL
    )
    assert second.choices[0].message.content == "Two hours [1]."


async def test_streamed_call_beside_a_search_is_the_first_of_the_client(
    client: AsyncOpenAI, vendor: FakeOpenAI
) -> None:
    both = (ToolCall("search_documents", {"query": "dough"}), ToolCall("weather", {"city": "Köln"}))
    vendor.script(Reply(texts=(), tool_calls=both, finish="tool"))
    chunks = await streamed(client, tools=[WEATHER], extra_body=BY_TOOL)
    pieces = [p for c in chunks if c.choices for p in c.choices[0].delta.tool_calls or ()]
    assert {piece.index for piece in pieces} == {0}
    assert pieces[0].function is not None
    assert pieces[0].function.name == "weather"
    assert content_of(chunks) == ""


async def test_searches_are_bounded_and_their_tokens_add_up(client: AsyncOpenAI, vendor: FakeOpenAI) -> None:
    vendor.unscripted = lambda body: cited(1) if body["tool_choice"] == "none" else searching("dough")
    answer = await client.chat.completions.create(model=MODEL, messages=ASKED, extra_body=BY_TOOL)
    assert [body["tool_choice"] for body in vendor.bodies] == ["auto"] * 3 + ["none"]
    assert answer.choices[0].message.content == "Two hours [1]."
    assert answer.usage is not None
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (44, 28)


async def test_invalid_arguments_and_too_many_calls_are_reported_to_the_model(
    client: AsyncOpenAI, vendor: FakeOpenAI
) -> None:
    too_many = searching("dough", "kettle", "bread", "water", "fifth")
    vendor.script(searching("dough", filters={"tenant": "other"}), too_many, cited(1))
    await answered(client, stream=False)
    assert "Invalid arguments" in vendor.bodies[1]["messages"][-1]["content"]
    assert [m["content"][:7] for m in vendor.bodies[2]["messages"][-2:]] != ["Not run", "Not run"]
    assert vendor.bodies[2]["messages"][-1]["content"].startswith("Not run")


async def test_filters_of_the_request_bound_every_search(client: AsyncOpenAI, vendor: FakeOpenAI) -> None:
    vendor.script(searching("dough"), Reply(texts=("I do not know.",)))
    options = {"extra_body": {**BY_TOOL, "filters": {"kind": "nothing"}}}
    message, details = await answered(client, stream=False, **options)
    assert vendor.bodies[1]["messages"][-1]["content"] == "Nothing was found."
    assert (message["content"], details["outcome"], details["sources"]) == ("I do not know.", "empty", [])


async def test_failure_after_a_search_is_an_error(client: AsyncOpenAI, vendor: FakeOpenAI) -> None:
    vendor.script(searching("dough"), Failure(400))
    with pytest.raises(openai.APIStatusError) as failed:
        await client.chat.completions.create(model=MODEL, messages=ASKED, extra_body=BY_TOOL)
    assert failed.value.status_code in (400, 502)


async def test_fallback_model_searches_anew(postgres_server: EmbeddedPostgres) -> None:
    async with FakeOpenAI() as broken, FakeAnthropic() as working:
        second = AnthropicProvider(SecretStr(working.api_key), base_url=working.base_url, retries=0)
        first = openai_provider(broken)
        broken.script(searching("kettle"), Failure(500))
        working.script(searching("dough", texts=("Let me look.",)), cited(1))
        async for client in served(postgres_server, first, second):
            message, details = await answered(client, stream=True)
            assert message["content"] == "Let me look.\n\nTwo hours [1]."
            assert "two hours" in details["sources"][0]["text"]
            assert details["degraded"] == ["provider"]
            assert working.bodies[0]["tools"][0]["name"] == "search_documents"


def openai_provider(vendor: FakeOpenAI) -> Any:
    return OpenAIProvider(SecretStr(vendor.api_key), base_url=vendor.base_url, retries=0)


@STREAMED
async def test_server_without_a_model_names_retrieval(quoting: AsyncOpenAI, stream: bool) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        await quoting.chat.completions.create(model=MODEL, messages=ASKED, stream=stream, extra_body=BY_TOOL)
    assert refused.value.param == "retrieval"


async def test_provider_without_tools_names_retrieval(postgres_server: EmbeddedPostgres) -> None:
    async with FakeCompletions() as vendor:
        provider = MaxServeProvider(vendor.api_key, mode="completions", base_url=vendor.base_url, retries=0)
        async for client in served(postgres_server, provider):
            with pytest.raises(openai.BadRequestError) as refused:
                await client.chat.completions.create(model=MODEL, messages=ASKED, extra_body=BY_TOOL)
            assert refused.value.param == "retrieval"
            assert vendor.bodies == []


async def test_options_that_contradict_the_tool_are_rejected(client: AsyncOpenAI) -> None:
    own = {"type": "function", "function": {"name": "search_documents"}}
    refusals: list[tuple[Any, str]] = [
        ({"tools": [own]}, "tools"),
        ({"response_format": SCHEMA}, "response_format"),
        ({"extra_body": {**BY_TOOL, "effort": "low"}}, "effort"),
        ({"extra_body": {**BY_TOOL, "intents": ["dough"]}}, "intents"),
        ({"extra_body": {"retrieval": "sometimes"}}, "retrieval"),
        ({"model": "docrag/handbook"}, "retrieval"),
    ]
    for options, param in refusals:
        with pytest.raises(openai.BadRequestError) as refused:
            await client.chat.completions.create(
                **{"model": MODEL, "messages": ASKED, "extra_body": BY_TOOL, **options}
            )
        assert refused.value.param == param
