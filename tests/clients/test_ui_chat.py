"""``/api/chat`` with its client: the AI SDK's transport, reader and chat state, unmodified."""

import asyncio
import json
from typing import Any

from tests.clients.conftest import RunNode, StartNode
from tests.clients.guides import BROKEN, QUESTION, Guides, unending
from tests.support.vendors.fake_openai import FakeOpenAI
from tests.support.vendors.fake_vendor import Reply
from tests.support.vendors.vendor_behaviour import Failure

STREAM = "ui_stream.mjs"
CHAT = "chat_state.mjs"


def utf16(text: str, start: int, end: int) -> str:
    """Return the result of JavaScript's ``text.slice(start, end)``."""
    return text.encode("utf-16-le")[2 * start : 2 * end].decode("utf-16-le")


def text_of(message: Any) -> Any:
    """Return the only text part."""
    (part,) = (part for part in message["parts"] if part["type"] == "text")
    return part


async def test_ui_stream_starts_with_sources_and_ends_with_citations(
    guides: Guides, openai: FakeOpenAI, run_node: RunNode
) -> None:
    # Characters beyond the basic plane are two units in JavaScript, and one is cut between two pieces.
    pieces = ("👩‍🔧 The dough 🍞 rises", " for two hours 🕑 [Sou", "rce 1]. 🎉 Wait 900 days [Source", " 1].")
    openai.script(Reply(texts=pieces))
    output = await run_node(STREAM, {**guides.options, "text": QUESTION})
    assert output["errors"] == []
    assert output["sent"]["headers"]["x-vercel-ai-ui-message-stream"] == "v1"
    assert output["sent"]["headers"]["content-type"].startswith("text/event-stream")
    assert sorted(output["sent"]["body"]) == ["id", "messages", "trigger"]  # the client's own, nothing added

    types = [chunk["type"] for chunk in output["chunks"]]
    assert types[:2] == ["start", "data-retrieval"]
    assert types[-2:] == ["text-end", "finish"]
    assert types.index("text-start") > max(n for n, type_ in enumerate(types) if type_ == "source-document")

    message = output["message"]
    sources = [part for part in message["parts"] if part["type"] == "source-document"]
    assert [s["providerMetadata"]["vectorforge"]["number"] for s in sources] == [1, 2, 3]
    assert (sources[0]["title"], sources[0]["filename"], sources[0]["mediaType"]) == (
        "Bread", "bread.md", "text/markdown",
    )  # fmt: skip
    text = text_of(message)
    assert text["state"] == "done"
    citations = text["citations"]
    assert text["text"] == "👩‍🔧 The dough 🍞 rises for two hours 🕑 [1]. 🎉 Wait 900 days [1]."
    assert [utf16(text["text"], c["startIndex"], c["endIndex"]) for c in citations] == ["[1]", "[1]"]
    for citation in citations:
        assert citation["source"]["id"] == sources[0]["sourceId"]
        assert "two hours" in citation["citedText"]
    verdicts = [c["source"]["providerMetadata"]["vectorforge"]["verdict"] for c in citations]
    assert verdicts == ["supported", "unsupported"]
    judged = [chunk["data"] for chunk in output["chunks"] if chunk["type"] == "data-citation"]
    assert [(j["sourceId"], j["verdict"]) for j in judged] == [(sources[0]["sourceId"], v) for v in verdicts]
    metadata = message["metadata"]
    assert metadata["usage"] == {"inputTokens": 11, "outputTokens": 7, "totalTokens": 18, "estimated": False}
    assert (metadata["outcome"], metadata["provider"]) == ("answered", "openai")
    assert output["chunks"][-1]["finishReason"] == "stop"
    row = await guides.logged(message["id"])
    assert (row["query_text"], row["outcome"]) == (QUESTION, "answered")


async def test_error_before_the_stream_is_a_problem_document(
    guides: Guides, openai: FakeOpenAI, run_node: RunNode
) -> None:
    cases: list[tuple[dict[str, Any], int, str]] = [
        ({"body": {"collection": "nowhere"}}, 404, "not_found"),
        ({"body": {"top_k": 0}}, 422, "invalid_input"),
        ({"body": {"filters": {"kind": {"$near": 1}}}}, 422, "invalid_filter"),
        ({"key": None}, 401, "unauthenticated"),
        ({"text": " "}, 422, "invalid_input"),
    ]
    for options, status, code in cases:
        output = await run_node(STREAM, {**guides.options, "text": QUESTION, **options})
        assert (output["failed"]["name"], output["failed"]["status"]) == ("AI_APICallError", status)
        assert json.loads(output["failed"]["message"])["code"] == code  # the client shows the body unchanged
    (state,) = (
        await run_node(CHAT, {**guides.options, "body": {"top_k": 0}, "steps": [{"send": QUESTION}]})
    )["after"]
    assert state["status"] == "error"
    assert json.loads(state["error"])["errors"][0]["field"] == "top_k"
    assert openai.requests == []


async def test_error_inside_the_stream_is_reported_and_partial_text_retained(
    guides: Guides, openai: FakeOpenAI, run_node: RunNode
) -> None:
    reply = Reply(texts=("Two hours [Source 1]. And", " then"), ending="cut")
    openai.script(reply, reply, Failure(500), Failure(500))  # the follow-up is rewritten, then answered
    output = await run_node(STREAM, {**guides.options, "text": QUESTION})
    assert output["errors"] == [BROKEN]
    types = [chunk["type"] for chunk in output["chunks"]]
    assert types[-4:] == ["text-end", "data-problem", "error", "finish"]
    assert output["chunks"][-1]["finishReason"] == "error"
    problem = output["chunks"][-3]["data"]
    assert (problem["code"], problem["status"], problem["stage"]) == ("llm_stream_broken", 502, "generate")
    text = text_of(output["message"])
    assert text["text"] == "Two hours [1]. And then"
    assert len(text["citations"]) == 1

    output = await run_node(CHAT, {**guides.options, "steps": [{"send": QUESTION}, {"send": "And then?"}]})
    broken, failed = output["after"]
    assert (broken["status"], broken["error"]) == ("error", BROKEN)
    assert text_of(broken["messages"][-1])["state"] == "done"
    assert [part["data"]["code"] for part in output["seen"] if part["type"] == "data-problem"] == [
        "llm_stream_broken", "llm_error",
    ]  # fmt: skip
    assert failed["status"] == "error"


async def test_ui_stream_abort_stops_model_and_logs_partial_answer(
    guides: Guides, openai: FakeOpenAI, start_node: StartNode
) -> None:
    openai.script(unending("Two hours"))
    script = start_node(STREAM, {**guides.options, "text": QUESTION, "abortAtText": True})
    query_id = (await script.read())["aborting"]
    async with asyncio.timeout(10):
        await openai.requests[0].client_closed.wait()
    output = await script.read()
    assert output["readingEndedWith"] == "AbortError"
    await script.end()
    row = await guides.logged(query_id)
    assert (row["outcome"], row["generated_response"]) == ("aborted", "Two hours")


async def test_use_chat_stop_retains_partial_text(
    guides: Guides, openai: FakeOpenAI, run_node: RunNode
) -> None:
    openai.script(unending("Two hours"))
    output = await run_node(CHAT, {**guides.options, "steps": [{"sendAndStop": QUESTION}]})
    (state,) = output["after"]
    assert (state["status"], state["error"]) == ("ready", None)
    assert text_of(state["messages"][-1])["text"] == "Two hours"
    async with asyncio.timeout(10):
        await openai.requests[0].client_closed.wait()


async def test_transport_body_fields_reach_the_search(guides: Guides, run_node: RunNode) -> None:
    body = {"collection": guides.collection_id, "filters": {"kind": "bike"}, "unknown": {"to": "us"}}
    output = await run_node(STREAM, {**guides.options, "text": QUESTION, "body": body})
    sources = [part["filename"] for part in output["message"]["parts"] if part["type"] == "source-document"]
    assert sources == ["bike.md"]
    output = await run_node(STREAM, {**guides.options, "text": QUESTION, "body": {"top_k": 2}})
    assert output["chunks"][1]["data"]["used"] == 2


async def test_second_turn_sends_earlier_messages(
    guides: Guides, openai: FakeOpenAI, run_node: RunNode
) -> None:
    openai.script(Reply(texts=("Two hours [Source 1].",)), Reply(texts=("At 230 degrees [Source 1].",)))
    steps = [{"send": QUESTION}, {"send": "How hot is the oven?"}]
    _, state = (await run_node(CHAT, {**guides.options, "steps": steps}))["after"]
    assert [message["role"] for message in state["messages"]] == ["user", "assistant"] * 2
    assert len({message["id"] for message in state["messages"]}) == 4
    sent = openai.bodies[1]["messages"]
    # Labels of the first answer are removed: they refer to other chunks now.
    assert [(m["role"], m["content"]) for m in sent[1:-1]] == [
        ("user", QUESTION),
        ("assistant", "Two hours."),
    ]
    assert "How hot is the oven?" in sent[-1]["content"]


async def test_regenerate_bypasses_cache_and_replaces_the_answer(
    guides: Guides, openai: FakeOpenAI, run_node: RunNode
) -> None:
    openai.script(Reply(texts=("Two hours [Source 1].",)), Reply(texts=("For two hours [Source 1].",)))
    (first,) = (await run_node(CHAT, {**guides.options, "steps": [{"send": QUESTION}]}))["after"]
    steps = [{"send": QUESTION}, {"regenerate": True}]
    again, regenerated = (await run_node(CHAT, {**guides.options, "steps": steps}))["after"]
    assert first["messages"][-1]["metadata"]["cached"] is False
    assert again["messages"][-1]["metadata"]["cached"] is True
    assert text_of(again["messages"][-1])["text"] == text_of(first["messages"][-1])["text"]
    assert len(regenerated["messages"]) == 2
    assert text_of(regenerated["messages"][-1])["text"] == "For two hours [1]."
    assert len(openai.requests) == 2
