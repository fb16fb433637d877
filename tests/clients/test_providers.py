"""The OpenAI-compatible surfaces with the AI SDK's provider packages, and the parts that they retain."""

import asyncio
from typing import Any

import pytest

from tests.clients.conftest import RunNode, StartNode
from tests.clients.guides import BROKEN, QUESTION, Guides, unending
from tests.support.vendors.fake_openai import FakeOpenAI
from tests.support.vendors.fake_vendor import Reply

SCRIPT = "provider.mjs"
PROVIDERS = ["chat", "responses", pytest.param("compatible", marks=pytest.mark.slow)]
"""``openai.chat()``, ``openai.responses()`` and the provider of ``@ai-sdk/openai-compatible``."""
TEXT = "👩‍🔧 Let it rise for two hours 🕑 [1]. 🎉 Wait [1]."
PIECES = ("👩‍🔧 Let it rise", " for two hours 🕑 [Sou", "rce 1]. 🎉 Wait [Source", " 1].")
STREAMED = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])


@STREAMED
@pytest.mark.parametrize("provider", PROVIDERS)
async def test_provider_answer_has_text_tokens_and_supported_sources(
    guides: Guides, openai: FakeOpenAI, run_node: RunNode, provider: str, stream: bool
) -> None:
    openai.script(Reply(texts=PIECES))
    query_options = {**guides.options, "provider": provider, "stream": stream, "text": QUESTION}
    output = await run_node(SCRIPT, query_options)
    assert (output["text"], output["finishReason"]) == (TEXT, "stop")
    usage = output["usage"]
    assert (usage["inputTokens"], usage["outputTokens"], usage["totalTokens"]) == (11, 7, 18)
    if provider == "chat":  # one for each citation; a document without a web address has its source page
        assert [source["title"] for source in output["sources"]] == ["Bread", "Bread"]
        async with guides.api.client(guides.tenant) as client:
            chunk_id = output["sources"][0]["url"].partition("/source?chunk=")[2]
            assert "two hours" in (await client.get(f"/v1/chunks/{chunk_id}")).json()["text"]
    elif provider == "responses":
        assert {(source["sourceType"], source["filename"]) for source in output["sources"]} == {
            ("document", "bread.md")
        }
        (part,) = (part for part in output["content"] if part["type"] == "text")
        assert [citation["source"]["title"] for citation in part["citations"]] == ["bread.md"] * 2
    else:
        assert output["sources"] == []  # the package drops annotations: hence [n], and append_sources


@STREAMED
@pytest.mark.parametrize("provider", PROVIDERS)
async def test_error_before_the_stream_has_status_and_message(
    guides: Guides, openai: FakeOpenAI, run_node: RunNode, provider: str, stream: bool
) -> None:
    query_options = {**guides.options, "provider": provider, "stream": stream, "text": QUESTION}
    for wrong, status, sentence in (
        ({"model": "vectorforge/nowhere"}, 404, 'There is no collection "nowhere"'),
        ({"key": "wrong"}, 401, "The API key is not valid."),
    ):
        output = await run_node(SCRIPT, {**query_options, **wrong})
        failed = output["errors"][0] if stream else output["failed"]
        assert (failed["name"], failed["status"]) == ("AI_APICallError", status)
        assert sentence in failed["message"]
    assert openai.requests == []


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_error_inside_the_stream_follows_partial_text(
    guides: Guides, openai: FakeOpenAI, run_node: RunNode, provider: str
) -> None:
    openai.script(Reply(texts=("Two hours [Source 1]. And", " then"), ending="cut"))
    output = await run_node(
        SCRIPT, {**guides.options, "provider": provider, "stream": True, "text": QUESTION}
    )
    assert output["text"] == "Two hours [1]. And then"
    (failed,) = output["errors"]
    assert failed["message"] == BROKEN
    assert output["types"].index("error") > output["types"].index("text-delta")


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_provider_abort_stops_model_and_logs_partial_answer(
    guides: Guides, openai: FakeOpenAI, start_node: StartNode, provider: str
) -> None:
    openai.script(unending("Two hours"))
    query_options = {"provider": provider, "stream": True, "text": QUESTION, "abortAtText": True}
    script = start_node(SCRIPT, {**guides.options, **query_options})
    assert (await script.read()) == {"aborting": True}
    async with asyncio.timeout(10):
        await openai.requests[0].client_closed.wait()
    assert (await script.read())["types"][-1] == "abort"
    await script.end()
    async with guides.api.client(guides.tenant) as client:
        (query,) = (await client.get("/v1/queries")).json()["queries"]
    row = await guides.logged(query["id"])
    assert (row["outcome"], row["generated_response"]) == ("aborted", "Two hours")


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_earlier_messages_are_sent_to_the_model_as_conversation(
    guides: Guides, openai: FakeOpenAI, run_node: RunNode, provider: str
) -> None:
    messages = [
        {"role": "user", "content": QUESTION},
        {"role": "assistant", "content": "Two hours [1]."},
        {"role": "user", "content": "How hot is the oven?"},
    ]
    more = {"model": "vectorforge/default", "instructions": "Be brief.", "messages": messages}
    await run_node(SCRIPT, {**guides.options, "provider": provider, **more})
    sent = [(message["role"], message["content"]) for message in openai.bodies[0]["messages"]]
    assert ("user", QUESTION) in sent
    assert "Be brief." in " ".join(content for role, content in sent if role in ("system", "developer"))
    assert ("assistant", "Two hours.") in sent
    assert "How hot is the oven?" in sent[-1][1]


async def test_extension_fields_are_sent_by_openai_compatible_provider(
    guides: Guides, openai: FakeOpenAI, run_node: RunNode
) -> None:
    openai.script(Reply(texts=("Oil it [Source 1].",)))
    body: dict[str, Any] = {"filters": {"kind": "bike"}, "append_sources": True}
    query_options = {
        **guides.options,
        "provider": "compatible",
        "stream": True,
        "text": QUESTION,
        "body": body,
    }
    output = await run_node(SCRIPT, query_options)
    answer, _, footer = output["text"].partition("\n")
    assert answer == "Oil it [1]."
    assert "Bike" in footer
    assert "Bread" not in footer


async def test_file_search_tool_selects_collection_and_filters(
    guides: Guides, openai: FakeOpenAI, run_node: RunNode
) -> None:
    openai.script(Reply(texts=("Oil it [Source 1].",)))
    tool = {
        "vectorStoreIds": [guides.collection_id],
        "filters": {"type": "eq", "key": "kind", "value": "bike"},
    }
    query_options = {
        **guides.options,
        "provider": "responses",
        "stream": True,
        "text": QUESTION,
        "fileSearch": tool,
    }
    output = await run_node(SCRIPT, query_options)
    assert [source["filename"] for source in output["sources"]] == ["bike.md"]
    call = next(part for part in output["content"] if part["type"] == "tool-call")
    assert "invalid" not in call  # unchanged if the tool is not named
