"""Responses whose search the model decides on (``retrieval: "tool"``), over the openai package."""

from contextlib import suppress
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI

from tests.integration.openai_responses.conftest import ASKED, MODEL, cited, events_of, valid
from tests.support.vendors.fake_openai import FakeOpenAI
from tests.support.vendors.fake_vendor import Failure, Reply, ToolCall

pytestmark = pytest.mark.asyncio(loop_scope="module")

BY_TOOL: Any = {"retrieval": "tool"}
SEARCHING = Reply(
    texts=("Let me look.",), tool_calls=(ToolCall("search_documents", {"query": "dough"}),), finish="tool"
)
CITED = Reply(texts=("Two hours [Sou", "rce 1]."))


async def test_response_of_a_model_that_searches_equals_its_stream(
    client: AsyncOpenAI, vendor: FakeOpenAI
) -> None:
    vendor.script(SEARCHING, CITED, SEARCHING, CITED)
    options: Any = {"extra_body": BY_TOOL, "include": ["file_search_call.results"]}
    whole = valid(await client.responses.create(model=MODEL, input=ASKED, **options))
    assert whole.output_text == "Let me look.\n\nTwo hours [1]."
    assert [label for label, _ in cited(whole)] == ["[1]"]
    search: Any = whole.output[0]
    assert (search.type, search.queries) == ("file_search_call", ["dough"])
    assert "two hours" in search.results[0].text

    events = await events_of(client, **options)
    streamed = valid(events[-1].response)
    assert (streamed.output_text, cited(streamed)) == (whole.output_text, cited(whole))
    assert streamed.output[0].to_dict()["queries"] == ["dough"]
    text = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    assert text == whole.output_text
    searched = [event.type for event in events if event.type.startswith("response.file_search_call")]
    assert [name.rpartition(".")[2] for name in searched] == ["in_progress", "searching", "completed"]


async def test_response_without_a_search_has_no_queries(client: AsyncOpenAI, vendor: FakeOpenAI) -> None:
    vendor.script(Reply(texts=("Hello.",)), Reply(texts=("Hello.",)))
    whole = valid(await client.responses.create(model=MODEL, input=ASKED, extra_body=BY_TOOL))
    streamed = valid((await events_of(client, extra_body=BY_TOOL))[-1].response)
    for response in (whole, streamed):
        search: Any = response.output[0]
        assert (search.queries, response.output_text) == ([], "Hello.")


async def test_stream_that_fails_after_a_search_ends_with_its_text(
    client: AsyncOpenAI, vendor: FakeOpenAI
) -> None:
    vendor.script(SEARCHING, Failure(500))
    types, text = list[str](), ""
    stream = await client.responses.create(model=MODEL, input=ASKED, stream=True, extra_body=BY_TOOL)
    with suppress(openai.APIError):
        async for event in stream:
            types.append(event.type)
            text += event.delta if event.type == "response.output_text.delta" else ""
    assert text.startswith("Let me look.")
    assert types[-1] in ("error", "response.failed", "response.output_text.delta")
    assert "response.completed" not in types


async def test_stored_response_rejects_the_tool(client: AsyncOpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        await client.responses.create(model=MODEL, input=ASKED, store=True, extra_body=BY_TOOL)
    assert refused.value.param == "retrieval"
