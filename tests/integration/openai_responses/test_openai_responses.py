"""``/v1/responses`` with the unmodified ``openai`` package, over a real server and a fake vendor."""

import asyncio
import re
import sys
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
from openai import AsyncOpenAI, OpenAI

from tests.integration.openai_responses.conftest import (
    ASKED,
    FRESH,
    MODEL,
    annotations_of,
    cited,
    events_of,
    search_of,
    valid,
)
from tests.support.http.live_api import (
    LiveApi,
    key_of,
)
from tests.support.vendors.fake_openai import FakeOpenAI
from tests.support.vendors.fake_vendor import Reply
from vectorforge.api.openai.responses.events import EVENT_TYPES

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_response_reports_search_call_results_and_citations(
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
        file_id = annotations_of(response)[0]["file_id"].removeprefix("file-")
        text = (await native.get(f"/v1/documents/{file_id}/text")).json()["text"]
    assert logged["query_text"] == ASKED
    assert "two hours" in text


async def test_response_without_include_omits_search_results(client: AsyncOpenAI) -> None:
    response = valid(await client.responses.create(model=MODEL, input=ASKED))
    call: Any = response.output[0]
    assert call.results is None
    assert (response.previous_response_id, response.conversation, response.instructions) == (None, None, None)


async def test_response_stream_has_openai_event_order(client: AsyncOpenAI, vendor: FakeOpenAI) -> None:
    vendor.script(Reply(texts=("Two hours [Sour", "ce 1]. ", "Then bake.")))
    events = await events_of(client, include=["file_search_call.results"])
    # repeated events of one kind count as one, since pieces may be joined
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


async def test_stream_cut_at_any_token_ends_with_the_whole_response(
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


async def test_sdk_stream_helper_returns_final_response(client: AsyncOpenAI) -> None:
    async with client.responses.stream(model=MODEL, input=ASKED) as stream:
        deltas = [event.delta async for event in stream if event.type == "response.output_text.delta"]
        response = await stream.get_final_response()
    assert response.output_text == "".join(deltas) == "The answer is 42 [1]."
    assert [(a["type"], a["filename"]) for a in annotations_of(response)] == [("file_citation", "bread.md")]
    assert response.usage is not None
    assert response.usage.total_tokens == 18


async def test_synchronous_client_returns_whole_and_streamed_response(api: LiveApi, tenant: str) -> None:
    def ask() -> list[str]:
        with OpenAI(base_url=f"{api.url}/v1", api_key=key_of(tenant), max_retries=0) as sync:
            whole = sync.responses.create(model=MODEL, input=ASKED)
            last: Any = list(sync.responses.create(model=MODEL, input=ASKED, stream=True))[-1]
            return [whole.output_text, last.response.output_text]

    assert await asyncio.to_thread(ask) == ["The answer is 42 [1]."] * 2


async def test_file_search_tool_selects_collection_filters_and_result_count(
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
    assert "two hours" not in str(vendor.bodies[-1])  # the filter also applies to the prompt

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
        extra_body={"filters": {"kind": "bread"}},  # both filters apply
    )
    own: Any = none.to_dict()["vectorforge"]
    assert (own["sources"], own["outcome"]) == ([], "empty")


async def test_score_threshold_limits_results(client: AsyncOpenAI) -> None:
    tools = search_of("handbook", ranking_options={"score_threshold": 0.99})
    response = valid(await client.responses.create(model=MODEL, input=ASKED, tools=tools))
    own: Any = response.to_dict()["vectorforge"]
    assert own["outcome"] == "empty"
    assert annotations_of(response) == []


DOCUMENT = Path(__file__).parents[3] / "docs" / "use" / "openai-responses.md"


async def test_documentation_example_runs(api: LiveApi, tenant: str, vendor: FakeOpenAI) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    code = code.replace("http://localhost:8000", api.url).replace("not-needed-locally", key_of(tenant))
    code = code.replace('"default"', '"handbook"')
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
