"""Earlier responses and their items as input of the next one."""

from collections.abc import Callable
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI

from tests.integration.openai_responses.conftest import (
    ASKED,
    MODEL,
    events_of,
    search_of,
    valid,
)
from tests.support.http.live_api import (
    LiveApi,
    key_of,
    live_api,
    settings_for,
)
from tests.support.vendors.fake_openai import FakeOpenAI
from vectorforge.local.postgres import EmbeddedPostgres

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_input_items_of_earlier_response_are_sent_as_conversation(
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
    assert "two hours" in grounding["content"]  # our grounding prompt is still there
    assert [(m["role"], m["content"]) for m in rest] == [
        ("system", "Answer like a pirate."),
        ("system", "Be brief."),
        ("user", ASKED),
        ("assistant", "The answer is 42."),  # without labels, which named other chunks
        ("user", "And then?"),
    ]
    assert body["temperature"] == 0.1
    assert body.get("max_completion_tokens", body.get("max_tokens")) == 77


async def test_stored_response_is_continued_by_previous_response_id(
    client: AsyncOpenAI, vendor: FakeOpenAI
) -> None:
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


async def test_response_without_store_persists_no_conversation(
    client: AsyncOpenAI, api: LiveApi, tenant: str
) -> None:
    response = await client.responses.create(model=MODEL, input=ASKED)
    assert response.to_dict()["store"] is False
    async with api.client(tenant) as native:
        assert (await native.get("/v1/conversations")).json()["conversations"] == []
    with pytest.raises(openai.BadRequestError, match="store: true") as unknown:
        await client.responses.create(model=MODEL, input="Why?", previous_response_id=response.id)
    assert unknown.value.param == "previous_response_id"


async def test_response_and_store_of_other_tenant_are_inaccessible(
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
        items: list[dict[str, Any]] = [
            {"model": MODEL},
            {"model": f"vectorforge/{store}"},
            {"model": "vectorforge", "tools": search_of(store)},
            {"model": "vectorforge", "conversation": mine.conversation.id if mine.conversation else ""},
        ]
        for options in items:
            for stream in (False, True):
                with pytest.raises(openai.NotFoundError):
                    await as_bob.responses.create(input=ASKED, stream=stream, **options)
        with pytest.raises(openai.BadRequestError, match="last response"):
            await as_bob.responses.create(model="vectorforge", input=ASKED, previous_response_id=mine.id)
