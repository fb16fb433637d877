"""Item references: items of stored responses named in the input of a later one."""

from collections.abc import Callable
from typing import Any
from uuid import UUID

import openai
import pytest
from openai import AsyncOpenAI
from pydantic import SecretStr

from tests.integration.openai_responses.conftest import ASKED, MODEL
from tests.integration.openai_responses.test_response_output import CALLS, CITED, STREAMED, WEATHER, respond
from tests.support.http.live_api import LiveApi, key_of, live_api, settings_for
from tests.support.vendors.fake_openai import FakeOpenAI
from tests.support.vendors.fake_vendor import Reply
from vectorforge.api.openai.responses.requests import MAX_REFERENCES
from vectorforge.llm.providers.openai import OpenAIProvider
from vectorforge.local.postgres import EmbeddedPostgres

pytestmark = pytest.mark.asyncio(loop_scope="module")


def reference(id_: Any) -> dict[str, Any]:
    return {"type": "item_reference", "id": id_}


def result_of(call: Any, output: str) -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": call.call_id, "output": output}


async def test_references_stand_for_their_items(client: AsyncOpenAI, vendor: FakeOpenAI) -> None:
    vendor.script(Reply(texts=("Let me look [Source 1].",), tool_calls=CALLS, finish="tool"), CITED)
    made = await client.responses.create(model=MODEL, input=ASKED, store=True, tools=[WEATHER])
    calls = [item for item in made.output if item.type == "function_call"]
    turns: Any = [
        {"role": "user", "content": ASKED},
        *[reference(item.id) for item in made.output],
        *[result_of(call, f"{number} degrees") for number, call in enumerate(calls)],
    ]
    assert [item.type for item in made.output] == [
        "file_search_call",
        "message",
        "function_call",
        "function_call",
    ]
    response = await client.responses.create(model=MODEL, input=turns, tools=[WEATHER], store=True)
    assert response.output_text == "It is hot [1]."
    _, question, *rest = vendor.bodies[-1]["messages"]
    assert question["content"] == ASKED
    assert [(m["role"], m["content"]) for m in rest if m.get("content")] == [
        ("assistant", "Let me look [1]."),
        ("tool", "0 degrees"),
        ("tool", "1 degrees"),
    ]
    sent = [call["function"] for m in rest for call in m.get("tool_calls", ())]
    assert [(call["name"], call["arguments"]) for call in sent] == [(c.name, c.arguments) for c in calls]


@STREAMED
@pytest.mark.parametrize(
    "sent", [lambda item: reference(item.id), lambda item: item], ids=["reference", "item"]
)
async def test_results_of_stored_calls_continue_their_conversation(
    client: AsyncOpenAI,
    vendor: FakeOpenAI,
    api: LiveApi,
    tenant: str,
    stream: bool,
    sent: Callable[[Any], Any],
) -> None:
    vendor.script(*[Reply(tool_calls=CALLS[:1], finish="tool")] * 2, CITED)
    turns: list[Any] = [{"role": "user", "content": ASKED}]
    made: list[Any] = []
    for _ in range(3):
        response, _ = await respond(client, stream=stream, input=turns, tools=[WEATHER], store=True)
        made.append(response)
        calls = [item for item in response.output if item.type == "function_call"]
        turns += [sent(item) for item in response.output]
        turns += [result_of(call, "hot") for call in calls]
    async with api.client(tenant) as native:
        listed, *_ = (await native.get("/v1/conversations")).json()["conversations"]
    assert {response.conversation.id for response in made} == {f"conv_{UUID(listed['id']).hex}"}
    assert listed["message_count"] == 6
    stored = await client.responses.retrieve(made[-1].id)
    assert (stored.output_text, stored.previous_response_id) == ("It is hot [1].", None)
    again, _ = await respond(client, stream=stream, input=[*turns, turns[0]], tools=[WEATHER], store=True)
    assert again.conversation is not None
    assert again.conversation.id != made[0].conversation.id


async def test_call_without_own_record_begins_conversation(
    client: AsyncOpenAI, vendor: FakeOpenAI, api: LiveApi, tenant: str
) -> None:
    vendor.script(*[Reply(tool_calls=CALLS[:1], finish="tool")] * 2, *[CITED] * 2)
    made: Any = await client.responses.create(model=MODEL, input=ASKED, store=True, tools=[WEATHER])
    async with api.client(tenant) as native:
        key = (await native.post("/v1/keys", json={"name": "third"})).json()["key"]
    async with AsyncOpenAI(base_url=f"{api.url}/v1", api_key=key, max_retries=0) as second:
        theirs: Any = await second.responses.create(model=MODEL, input=ASKED, store=True, tools=[WEATHER])
    call = made.output[-1]
    query, theirs_in = call.id[3:35], theirs.conversation.id.removeprefix("conv_")
    for id_ in (theirs.output[-1].id, f"fc_{query}{theirs_in}_0", f"fc_{query}_0"):
        forged = call.model_copy(update={"id": id_})
        turns: Any = [{"role": "user", "content": ASKED}, reference(call.id), forged, result_of(call, "hot")]
        response = await client.responses.create(model=MODEL, input=turns, tools=[WEATHER], store=True)
        assert response.conversation is not None
        assert response.conversation.id not in (made.conversation.id, theirs.conversation.id)


async def test_reference_to_search_needs_no_stored_response(client: AsyncOpenAI, vendor: FakeOpenAI) -> None:
    made = await client.responses.create(model=MODEL, input=ASKED)
    turns: Any = [
        {"role": "user", "content": ASKED},
        reference(made.output[0].id),
        {"role": "user", "content": "And?"},
    ]
    await client.responses.create(model=MODEL, input=turns)
    assert [m["content"] for m in vendor.bodies[-1]["messages"][1:]] == [ASKED, "And?"]


async def test_unknown_reference_is_rejected_by_its_place(client: AsyncOpenAI) -> None:
    stored = await client.responses.create(model=MODEL, input=ASKED, store=True)
    unstored = await client.responses.create(model=MODEL, input=ASKED)
    key = str(stored.output[1].id).removeprefix("msg_")
    unknown = [
        unstored.output[1].id,
        f"fc_{key}_0",
        f"fc_{key}",
        f"msg_{key}_0",
        f"rs_{key}",
        "",
        None,
        "x" * 200,
    ]
    for id_ in (*unknown, f"msg_{'0' * 64}"):
        turns: Any = [reference(id_), {"role": "user", "content": ASKED}]
        with pytest.raises(openai.BadRequestError, match="store: true") as refused:
            await client.responses.create(model=MODEL, input=turns)
        assert refused.value.param == "input.0.id"


async def test_references_are_limited(client: AsyncOpenAI) -> None:
    stored = await client.responses.create(model=MODEL, input=ASKED, store=True)
    many: Any = [reference(stored.output[1].id)] * MAX_REFERENCES
    question: Any = {"role": "user", "content": "And?"}
    items: Any = [*many, question]
    await client.responses.create(model=MODEL, input=items)
    with pytest.raises(openai.BadRequestError, match=f"at most {MAX_REFERENCES} item references") as refused:
        await client.responses.create(model=MODEL, input=[*many, *items])
    assert refused.value.param == "input"


async def test_reference_to_erased_answer_has_no_calls(client: AsyncOpenAI, vendor: FakeOpenAI) -> None:
    """The calls of an erased answer may quote the document, so they are erased with it."""
    vendor.script(Reply(texts=("It is hot [Source 1].",), tool_calls=CALLS[:1], finish="tool"))
    made: Any = await client.responses.create(model=MODEL, input=ASKED, store=True, tools=[WEATHER])
    for annotation in made.output[1].content[0].annotations:
        await client.files.delete(annotation.file_id)
    turns: Any = [{"role": "user", "content": ASKED}, reference(made.output[2].id)]
    with pytest.raises(openai.BadRequestError, match="not stored"):
        await client.responses.create(model=MODEL, input=turns, tools=[WEATHER])
    assert [item.type for item in (await client.responses.retrieve(made.id)).output] == [
        "file_search_call",
        "message",
    ]


async def test_reference_of_other_tenant_or_key_is_unknown(
    client: AsyncOpenAI,
    vendor: FakeOpenAI,
    api: LiveApi,
    tenant: str,
    postgres_server: EmbeddedPostgres,
    make_tenant: Callable[[], str],
) -> None:  # C17, C42
    mine = await client.responses.create(model=MODEL, input=ASKED, store=True)
    turns: Any = [reference(mine.output[1].id), {"role": "user", "content": ASKED}]
    await client.responses.create(model=MODEL, input=turns)
    bob = make_tenant()
    provider = OpenAIProvider(SecretStr(vendor.api_key), base_url=vendor.base_url, retries=0)
    async with (
        live_api(settings_for(postgres_server.app_url, [bob]), provider) as other,
        api.client(tenant) as native,
    ):
        issued = await native.post("/v1/keys", json={"name": "second"})
        assert issued.status_code == 201, issued.text
        for url, key in ((other.url, key_of(bob)), (api.url, issued.json()["key"])):
            async with AsyncOpenAI(base_url=f"{url}/v1", api_key=key, max_retries=0) as stranger:
                with pytest.raises(openai.BadRequestError, match="not stored"):
                    await stranger.responses.create(model="vectorforge", input=turns)
