"""``/v1/responses`` with the unmodified ``openai`` package, over a real server and a fake vendor."""

import asyncio
import re
import sys
from collections.abc import AsyncIterator, Callable
from itertools import groupby
from pathlib import Path
from typing import Any, TypeAlias
from uuid import uuid4

import httpx2
import openai
import pytest
from openai import AsyncOpenAI, OpenAI
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import SecretStr, TypeAdapter

from vectorforge.api.openai.response_events import EVENT_TYPES
from vectorforge.config import QuerySettings
from vectorforge.llm.providers.openai import OpenAIProvider
from vectorforge.local.postgres import EmbeddedPostgres
from vectorforge.testing.fake_openai import FakeOpenAI
from vectorforge.testing.fake_vendor import Failure, Reply
from vectorforge.testing.live_api import (
    LiveApi,
    add_documents,
    key_of,
    live_api,
    new_collection,
    settings_for,
)

GUIDES = {
    "kettle": "# Kettle\n\nThe kettle switches itself off when the water boils at 100 degrees.\n",
    "bread": "# Bread\n\nLet the dough rise for two hours before baking it at 230 degrees.\n",
}
MODEL = "vectorforge/handbook"
ASKED = "How long must the dough rise?"
FRESH = {"Cache-Control": "no-cache"}
Events: TypeAlias = list[Any]

EVENT = TypeAdapter[Any](ResponseStreamEvent)


@pytest.fixture
async def vendor() -> AsyncIterator[FakeOpenAI]:
    async with FakeOpenAI() as server:
        yield server


@pytest.fixture
def tenant(make_tenant: Callable[[], str]) -> str:
    return make_tenant()


@pytest.fixture
async def api(postgres_server: EmbeddedPostgres, tenant: str, vendor: FakeOpenAI) -> AsyncIterator[LiveApi]:
    provider = OpenAIProvider(SecretStr(vendor.api_key), base_url=vendor.base_url, retries=0)
    config = settings_for(postgres_server.app_url, [tenant], query=QuerySettings(degraded_answers=False))
    async with live_api(config, provider) as running, running.client(tenant) as native:
        await add_documents(native, await new_collection(native, "handbook"), **GUIDES)
        await new_collection(native, "empty")
        yield running


@pytest.fixture
async def client(api: LiveApi, tenant: str) -> AsyncIterator[AsyncOpenAI]:
    async with AsyncOpenAI(base_url=f"{api.url}/v1", api_key=key_of(tenant), max_retries=0) as opened:
        yield opened


def valid(response: Response) -> Response:
    """The response, held to the package's own types, which the package itself does not do."""
    Response.model_validate(response.to_dict())
    return response


async def events_of(client: AsyncOpenAI, asked: Any = ASKED, **options: Any) -> Events:
    """All events of a stream, each of a type that the package knows, whole and in order."""
    stream = await client.responses.create(model=MODEL, input=asked, stream=True, **options)
    events = [event async for event in stream]
    for event in events:
        EVENT.validate_python(event.to_dict())
    assert [event.sequence_number for event in events] == list(range(len(events)))
    return events


def annotations_of(response: Response) -> list[dict[str, Any]]:
    message: Any = response.output[-1]
    return [annotation.to_dict() for annotation in message.content[0].annotations]


def cited(response: Response) -> list[tuple[str, str]]:
    """(label, file) of each annotation."""
    text = response.output_text
    return [(text[a["index"] : a["end_index"]], a["filename"]) for a in annotations_of(response)]


def search_of(vector_store: str, **options: Any) -> Any:
    return [{"type": "file_search", "vector_store_ids": [vector_store], **options}]


async def test_an_answer_says_what_was_searched_found_and_cited(
    client: AsyncOpenAI, vendor: FakeOpenAI, api: LiveApi, tenant: str
) -> None:
    vendor.script(Reply(texts=("Two hours [Source 1], then bake [Source 1, 2].",)))
    response = valid(
        await client.responses.create(
            model=MODEL, input=ASKED, include=["file_search_call.results"], metadata={"ticket": "7"}
        )
    )
    assert response.output_text == "Two hours [1], then bake [1][2]."
    assert cited(response) == [("[1]", "bread.md"), ("[1]", "bread.md"), ("[2]", "kettle.md")]
    assert {a["type"] for a in annotations_of(response)} == {"file_citation"}
    output: list[Any] = list(response.output)
    call, message = output
    assert (call.type, call.status, call.queries) == ("file_search_call", "completed", [ASKED])
    assert [(r.filename, r.attributes) for r in call.results or []] == [
        ("bread.md", {"kind": "bread"}),
        ("kettle.md", {"kind": "kettle"}),
    ]
    assert "two hours" in str((call.results or [])[0].text)
    assert (message.type, message.status) == ("message", "completed")
    assert (response.status, response.model, response.metadata) == ("completed", MODEL, {"ticket": "7"})
    assert response.usage is not None
    assert (response.usage.input_tokens, response.usage.output_tokens, response.usage.total_tokens) == (
        11,
        7,
        18,
    )
    own: Any = response.to_dict()["vectorforge"]
    assert response.id == f"resp_{own['query_id'].replace('-', '')}"
    async with api.client(tenant) as native:
        logged = (await native.get(f"/v1/queries/{own['query_id']}")).json()
        file_id = annotations_of(response)[0]["file_id"]
        text = (await native.get(f"/v1/documents/{file_id}/text")).json()["text"]
    assert logged["query_text"] == ASKED
    assert "two hours" in text


async def test_passages_are_told_only_when_they_are_asked_for(client: AsyncOpenAI) -> None:
    response = valid(await client.responses.create(model=MODEL, input=ASKED))
    call: Any = response.output[0]
    assert call.results is None
    assert (response.previous_response_id, response.conversation, response.instructions) == (None, None, None)


async def test_a_stream_has_the_events_of_openai_s_own(client: AsyncOpenAI, vendor: FakeOpenAI) -> None:
    vendor.script(Reply(texts=("Two hours [Sour", "ce 1]. ", "Then bake.")))
    events = await events_of(client, include=["file_search_call.results"])
    # one after another of the same kind count as one: pieces may come together
    assert [name.removeprefix("response.") for name, _ in groupby(event.type for event in events)] == [
        "created",
        "in_progress",
        "output_item.added",
        "file_search_call.in_progress",
        "file_search_call.searching",
        "file_search_call.completed",
        "output_item.done",
        "output_item.added",
        "content_part.added",
        "output_text.delta",
        "output_text.annotation.added",
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "completed",
    ]
    first_ones = list(dict.fromkeys(event.type for event in events))
    assert first_ones == [name for name in EVENT_TYPES if name in first_ones]  # as openapi.json lists them
    last = events[-1].response
    assert "".join(e.delta for e in events if e.type == "response.output_text.delta") == last.output_text
    assert last.output_text == "Two hours [1]. Then bake."
    (added,) = [e for e in events if e.type == "response.output_text.annotation.added"]
    assert [added.annotation.to_dict()] == annotations_of(last)
    assert [e.item for e in events if e.type == "response.output_item.done"] == last.output
    assert events[6].item.results[0].filename == "bread.md"
    assert {e.response.id for e in events if hasattr(e, "response")} == {last.id}
    assert {e.item_id for e in events if hasattr(e, "item_id")} == {item.id for item in last.output}


async def test_a_stream_ends_with_what_the_whole_answer_says_however_it_is_cut(
    client: AsyncOpenAI, vendor: FakeOpenAI
) -> None:
    answer = "Two hours 🙂 [Source 1], then bake [Source 1, 2]."
    vendor.script(Reply(texts=(answer,)), Reply(texts=tuple(answer)))
    whole = await client.responses.create(model=MODEL, input=ASKED)
    streamed = (await events_of(client, extra_headers=FRESH))[-1].response
    assert streamed.output_text == whole.output_text == "Two hours 🙂 [1], then bake [1][2]."
    assert annotations_of(streamed) == annotations_of(whole)
    assert cited(streamed) == [("[1]", "bread.md"), ("[1]", "bread.md"), ("[2]", "kettle.md")]
    assert streamed.usage == whole.usage
    assert set(streamed.to_dict()) == set(whole.to_dict())


async def test_the_packages_own_stream_helper_gets_the_final_response(client: AsyncOpenAI) -> None:
    async with client.responses.stream(model=MODEL, input=ASKED) as stream:
        deltas = [event.delta async for event in stream if event.type == "response.output_text.delta"]
        response = await stream.get_final_response()
    assert response.output_text == "".join(deltas) == "The answer is 42 [1]."
    assert [(a["type"], a["filename"]) for a in annotations_of(response)] == [("file_citation", "bread.md")]
    assert response.usage is not None
    assert response.usage.total_tokens == 18


async def test_the_synchronous_client_works(api: LiveApi, tenant: str) -> None:
    def ask() -> list[str]:
        with OpenAI(base_url=f"{api.url}/v1", api_key=key_of(tenant), max_retries=0) as sync:
            whole = sync.responses.create(model=MODEL, input=ASKED)
            last: Any = list(sync.responses.create(model=MODEL, input=ASKED, stream=True))[-1]
            return [whole.output_text, last.response.output_text]

    assert await asyncio.to_thread(ask) == ["The answer is 42 [1]."] * 2


async def test_the_tool_names_the_collection_and_how_it_is_searched(
    client: AsyncOpenAI, vendor: FakeOpenAI
) -> None:
    store = (await client.vector_stores.retrieve("handbook")).id
    filters = {"type": "eq", "key": "kind", "value": "kettle"}
    response = valid(
        await client.responses.create(
            model="vectorforge",
            input=ASKED,
            tools=search_of(store, filters=filters, max_num_results=7),
            tool_choice={"type": "file_search"},
            include=["file_search_call.results"],
        )
    )
    call: Any = response.output[0]
    assert [result.filename for result in call.results] == ["kettle.md"]
    tool: Any = response.tools[0]
    assert (tool.vector_store_ids, tool.max_num_results, tool.filters.to_dict()) == ([store], 7, filters)
    assert vendor.bodies[-1]["messages"][0]["content"].count("100 degrees") == 1
    assert "two hours" not in str(vendor.bodies[-1])  # the filter holds in the prompt, too

    one: Any = (
        await client.responses.create(
            model=MODEL,
            input=ASKED,
            tools=search_of("handbook", max_num_results=1),
            include=["file_search_call.results"],
        )
    ).output[0]
    assert len(one.results) == 1
    none = await client.responses.create(
        model=MODEL,
        input=ASKED,
        tools=search_of(store, filters=filters),
        extra_body={"filters": {"kind": "bread"}},  # both hold
    )
    own: Any = none.to_dict()["vectorforge"]
    assert (own["sources"], own["outcome"]) == ([], "empty")


async def test_a_score_threshold_holds(client: AsyncOpenAI) -> None:
    tools = search_of("handbook", ranking_options={"score_threshold": 0.99})
    response = valid(await client.responses.create(model=MODEL, input=ASKED, tools=tools))
    own: Any = response.to_dict()["vectorforge"]
    assert own["outcome"] == "empty"
    assert annotations_of(response) == []


async def test_messages_are_read_with_what_an_earlier_response_consisted_of(
    client: AsyncOpenAI, vendor: FakeOpenAI
) -> None:
    first = await client.responses.create(model=MODEL, input=ASKED, include=["file_search_call.results"])
    turns: Any = [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": [{"type": "input_text", "text": ASKED}]},
        *[item.to_dict() for item in first.output],
        {"type": "message", "role": "user", "content": "And then?"},
    ]
    response = valid(
        await client.responses.create(
            model=MODEL,
            input=turns,
            instructions="Answer like a pirate.",
            temperature=0.1,
            max_output_tokens=77,
        )
    )
    assert (response.instructions, response.temperature, response.max_output_tokens) == (
        "Answer like a pirate.",
        0.1,
        77,
    )
    body = vendor.bodies[-1]
    grounding, *rest = body["messages"]
    assert "two hours" in grounding["content"]  # our grounding prompt stays
    assert [(m["role"], m["content"]) for m in rest] == [
        ("system", "Answer like a pirate."),
        ("system", "Be brief."),
        ("user", ASKED),
        ("assistant", "The answer is 42."),  # without labels, which named other passages
        ("user", "And then?"),
    ]
    assert body["temperature"] == 0.1
    assert body.get("max_completion_tokens", body.get("max_tokens")) == 77


async def test_a_stored_response_is_continued(client: AsyncOpenAI, vendor: FakeOpenAI) -> None:
    first = valid(await client.responses.create(model=MODEL, input=ASKED, store=True))
    assert first.conversation is not None
    last = await events_of(client, "And then?", previous_response_id=first.id, instructions="Be brief.")
    second = last[-1].response
    assert second.previous_response_id == first.id
    assert second.conversation == first.conversation
    assert [m["content"] for m in vendor.bodies[-1]["messages"][1:]] == [
        "Be brief.",
        ASKED,
        "The answer is 42.",
        "And then?",
    ]
    third = await client.responses.create(model=MODEL, input="Why?", conversation=first.conversation.id)
    assert third.conversation == first.conversation
    assert len(vendor.bodies[-1]["messages"]) == 6
    with pytest.raises(openai.BadRequestError, match="last response") as branched:
        await client.responses.create(model=MODEL, input="Why?", previous_response_id=first.id)
    assert branched.value.param == "previous_response_id"


async def test_nothing_is_stored_unless_it_is_asked_for(
    client: AsyncOpenAI, api: LiveApi, tenant: str
) -> None:
    response = await client.responses.create(model=MODEL, input=ASKED)
    assert response.to_dict()["store"] is False
    async with api.client(tenant) as native:
        assert (await native.get("/v1/conversations")).json()["conversations"] == []
    with pytest.raises(openai.BadRequestError, match="store: true") as unknown:
        await client.responses.create(model=MODEL, input="Why?", previous_response_id=response.id)
    assert unknown.value.param == "previous_response_id"


async def test_another_tenant_is_walled_off(
    client: AsyncOpenAI,
    api: LiveApi,
    tenant: str,
    postgres_server: EmbeddedPostgres,
    make_tenant: Callable[[], str],
) -> None:  # C17, C42
    mine = await client.responses.create(model=MODEL, input=ASKED, store=True)
    store = (await client.vector_stores.retrieve("handbook")).id
    bob = make_tenant()
    async with (
        live_api(settings_for(postgres_server.app_url, [bob])) as other,
        AsyncOpenAI(base_url=f"{other.url}/v1", api_key=key_of(bob), max_retries=0) as as_bob,
    ):
        await as_bob.vector_stores.create(name="default")
        asked: list[dict[str, Any]] = [
            {"model": MODEL},
            {"model": f"vectorforge/{store}"},
            {"model": "vectorforge", "tools": search_of(store)},
            {"model": "vectorforge", "conversation": mine.conversation.id if mine.conversation else ""},
        ]
        for options in asked:
            for stream in (False, True):
                with pytest.raises(openai.NotFoundError):
                    await as_bob.responses.create(input=ASKED, stream=stream, **options)
        with pytest.raises(openai.BadRequestError, match="last response"):
            await as_bob.responses.create(model="vectorforge", input=ASKED, previous_response_id=mine.id)


DOCUMENT = Path(__file__).parents[2] / "docs" / "openai-responses.md"


async def test_the_documents_example_runs(api: LiveApi, tenant: str, vendor: FakeOpenAI) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    code = code.replace("http://localhost:8000", api.url).replace("not-needed-locally", key_of(tenant))
    code = code.replace(".data[0]", ".data[1]")  # the newest one is empty here
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-W", "error", "-c", code, stdout=asyncio.subprocess.PIPE
    )
    out, _ = await process.communicate()
    assert process.returncode == 0
    *found, answer, cited_file, streamed_answer = out.decode().splitlines()
    assert sorted(line.split(" ", 1)[1] for line in found) == [
        "bread.md {'kind': 'bread'}",
        "kettle.md {'kind': 'kettle'}",
    ]
    assert (answer, streamed_answer) == ("The answer is 42 [1].",) * 2
    assert re.fullmatch(r"\w+\.md 17", cited_file)


async def test_a_question_that_fails_leaves_no_conversation(
    client: AsyncOpenAI, vendor: FakeOpenAI, api: LiveApi, tenant: str
) -> None:
    vendor.script(Failure(500))
    with pytest.raises(openai.InternalServerError):
        await client.responses.create(model=MODEL, input=ASKED, store=True)
    async with api.client(tenant) as native:
        assert (await native.get("/v1/conversations")).json()["conversations"] == []


JSON_FORMAT = {"format": {"type": "json_schema", "name": "a", "schema": {}}}
REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"background": True}, "background"),
    ({"text": JSON_FORMAT}, "text"),
    ({"prompt": {"id": "pmpt_1"}}, "prompt"),
    ({"top_logprobs": 2}, "top_logprobs"),
    ({"include": ["message.output_text.logprobs"]}, "include"),
    ({"tool_choice": "required"}, "tool_choice"),
    ({"tools": search_of("handbook"), "tool_choice": "none"}, "tool_choice"),
    ({"tool_choice": {"type": "function", "name": "f"}}, "tool_choice"),
    ({"tools": search_of("handbook") * 2}, "tools"),
    ({"tools": [{"type": "file_search", "vector_store_ids": ["a", "b"]}]}, "tools.0"),
    ({"tools": search_of("handbook", max_num_results=51)}, "tools.0.max_num_results"),
    ({"tools": search_of("handbook", filters={"type": "like"})}, "tools.0.filters.type"),
    ({"tools": search_of("empty")}, "tools"),
    ({"metadata": {"a": "b" * 513}}, "metadata.a"),
    ({"max_output_tokens": 1_000_000}, "max_output_tokens"),
    ({"temperature": 3}, "temperature"),
    ({"extra_body": {"filters": {"kind": {"$near": 1}}}}, "filters.kind.$near"),
    ({"previous_response_id": "resp_1"}, "previous_response_id"),
    ({"previous_response_id": f"resp_{uuid4().hex}{uuid4().hex}"}, "previous_response_id"),
    ({"previous_response_id": "resp_1", "conversation": str(uuid4())}, "conversation"),
    ({"conversation": str(uuid4()), "store": False}, "store"),
    ({"conversation": "conv_1"}, "conversation.id"),
    ({"input": []}, "input"),
    ({"input": " "}, "input.0.content"),
    (
        {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]},
        "input.0.content.0.type",
    ),
    ({"input": [{"type": "function_call_output", "call_id": "1", "output": "x"}]}, "input.0.type"),
    ({"input": [{"type": "item_reference", "id": "msg_1"}]}, "input.0.type"),
    ({"input": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}, "input"),
]


async def test_what_cannot_be_done_is_refused_by_name(
    client: AsyncOpenAI, vendor: FakeOpenAI, subtests: pytest.Subtests
) -> None:
    for stream in (False, True):
        for options, param in REFUSED:
            with subtests.test(msg=f"{options} {stream}"):
                with pytest.raises(openai.BadRequestError) as refused:
                    await client.responses.create(
                        **{"model": MODEL, "input": ASKED, "stream": stream, **options}
                    )
                assert refused.value.param == param
    assert vendor.bodies == []


async def test_what_changes_nothing_is_ignored(client: AsyncOpenAI) -> None:
    function: Any = {"type": "function", "name": "f", "parameters": {}, "strict": True}
    web: Any = {"type": "web_search", "filters": {"allowed_domains": ["example.org"]}}
    response = valid(
        await client.responses.create(
            model=MODEL,
            input=ASKED,
            tools=[function, web],
            tool_choice="auto",
            parallel_tool_calls=False,
            reasoning={"effort": "low"},
            truncation="auto",
            text={"format": {"type": "text"}, "verbosity": "low"},
            include=["reasoning.encrypted_content"],
            user="ann",
            extra_body={"colour": "red"},
        )
    )
    assert (response.tools, response.tool_choice, response.parallel_tool_calls) == ([], "auto", False)


async def test_errors_before_the_stream_are_the_packages_own_classes(
    client: AsyncOpenAI, api: LiveApi, vendor: FakeOpenAI
) -> None:
    for stream in (False, True):
        with pytest.raises(openai.NotFoundError) as unknown:
            await client.responses.create(model="vectorforge/none", input=ASKED, stream=stream)
        assert (unknown.value.code, unknown.value.param) == ("model_not_found", "model")
        with pytest.raises(openai.NotFoundError):
            await client.responses.create(
                model="vectorforge", input=ASKED, tools=search_of("none"), stream=stream
            )
        with pytest.raises(openai.NotFoundError):
            await client.responses.create(model=MODEL, input=ASKED, conversation=str(uuid4()), stream=stream)
    vendor.script(Failure(429, retry_after="17"))
    with pytest.raises(openai.RateLimitError) as limited:
        await client.responses.create(model=MODEL, input=ASKED)
    assert (limited.value.type, limited.value.response.headers["retry-after"]) == ("rate_limit_error", "17")
    async with AsyncOpenAI(base_url=f"{api.url}/v1", api_key="wrong", max_retries=0) as stranger:
        with pytest.raises(openai.AuthenticationError):
            await stranger.responses.create(model=MODEL, input=ASKED)


@pytest.mark.parametrize("ending", ["eof", "cut", "error"])
async def test_an_error_inside_the_stream_is_raised_after_what_was_said(
    client: AsyncOpenAI, vendor: FakeOpenAI, ending: Any
) -> None:
    vendor.script(Reply(texts=("Two ", "hours [Sou"), ending=ending))
    stream = await client.responses.create(model=MODEL, input=ASKED, stream=True)
    deltas: list[str] = []

    async def read() -> None:
        async for event in stream:
            if event.type == "response.output_text.delta":
                deltas.append(event.delta)  # noqa: PERF401 - those before the error are wanted

    with pytest.raises(openai.APIError) as broken:
        await read()
    assert "".join(deltas) == "Two hours [Sou"
    assert broken.value.code is not None
    assert broken.value.code.startswith("llm_")
    assert broken.value.type == "server_error"


async def test_a_failed_stream_ends_with_a_failed_response(
    client: AsyncOpenAI, vendor: FakeOpenAI, api: LiveApi, tenant: str
) -> None:
    vendor.script(Reply(texts=("Two hours [Source 1]. ", "And"), ending="cut"))
    body = {"model": MODEL, "input": ASKED, "stream": True}
    async with api.client(tenant) as native, native.stream("POST", "/v1/responses", json=body) as response:
        lines = [line async for line in response.aiter_lines()]
    assert response.headers["content-type"].startswith("text/event-stream")
    data = [TypeAdapter[Any](Any).validate_json(line[6:]) for line in lines if line.startswith("data: ")]
    names = [line[7:] for line in lines if line.startswith("event: ")]
    assert names == [event["type"] for event in data]
    for event in data:
        EVENT.validate_python(event)
    assert set(names) <= set(EVENT_TYPES)
    error, failed = data[-2:]
    assert (error["type"], failed["type"]) == ("error", "response.failed")
    assert error["message"] == error["error"]["message"] == failed["response"]["error"]["message"]
    assert failed["response"]["error"]["code"] == "server_error"
    assert failed["response"]["status"] == "failed"
    message = failed["response"]["output"][1]
    assert (message["status"], message["content"][0]["text"]) == ("incomplete", "Two hours [1]. And")


async def test_an_answer_that_was_cut_off_is_incomplete(client: AsyncOpenAI, vendor: FakeOpenAI) -> None:
    cut = Reply(texts=("Two hours [Source 1]",), finish="length")
    vendor.script(cut, cut)
    whole: Any = valid(await client.responses.create(model=MODEL, input=ASKED))
    last = (await events_of(client, extra_headers=FRESH))[-1]
    assert last.type == "response.incomplete"
    assert annotations_of(last.response) == annotations_of(whole)  # also of a label that was held back
    for response in (whole, last.response):
        assert (response.status, response.incomplete_details.reason) == ("incomplete", "max_output_tokens")
        assert (response.output_text, cited(response)) == ("Two hours [1]", [("[1]", "bread.md")])
        assert response.output[1].status == "incomplete"


async def test_a_client_that_stops_reading_stops_the_vendor_and_is_logged(
    client: AsyncOpenAI, vendor: FakeOpenAI, api: LiveApi, tenant: str
) -> None:  # fault 15, C31
    vendor.script(Reply(texts=("one ", "two "), ending="stall"))
    stream = await client.responses.create(model=MODEL, input=ASKED, stream=True)
    async for event in stream:
        if event.type == "response.created":
            query_id = event.response.id.removeprefix("resp_")
        if event.type == "response.output_text.delta":
            break
    await stream.close()
    async with asyncio.timeout(20):
        await vendor.requests[-1].client_closed.wait()
        async with api.client(tenant) as native:
            row = await logged(native, query_id)
    assert row["outcome"] == "aborted"
    assert row["generated_response"].startswith("one ")


async def logged(native: httpx2.AsyncClient, query_id: str) -> dict[str, Any]:
    while True:  # until the server has noticed that the client is gone
        row: dict[str, Any] = (await native.get(f"/v1/queries/{query_id}")).json()
        if row.get("outcome", "started") != "started":
            return row
        await asyncio.sleep(0.02)
