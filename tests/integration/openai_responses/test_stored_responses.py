"""Stored responses, retrieved and deleted with the unmodified ``openai`` package."""

from collections.abc import Callable
from uuid import UUID

import openai
import pytest
import pytest_asyncio
from openai import AsyncOpenAI
from openai.types.responses import Response

from tests.integration.openai_responses.conftest import (
    ASKED,
    MODEL,
    annotations_of,
    events_of,
    valid,
)
from tests.support.http.live_api import LiveApi, key_of, live_api, settings_for
from vectorforge.local.postgres import EmbeddedPostgres

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(loop_scope="module")
async def stored(client: AsyncOpenAI) -> Response:
    return await client.responses.create(model=MODEL, input=ASKED, store=True, temperature=0.2)


async def test_stored_response_is_retrieved_as_created(client: AsyncOpenAI, stored: Response) -> None:
    found = valid(await client.responses.retrieve(stored.id))
    assert (found.id, found.status, found.model) == (stored.id, "completed", MODEL)
    assert (found.output_text, found.temperature) == (stored.output_text, 0.2)
    assert annotations_of(found) == annotations_of(stored)
    assert annotations_of(found)[0]["file_id"].startswith("file-")
    assert found.conversation == stored.conversation
    assert stored.conversation is not None
    assert stored.conversation.id.startswith("conv_")
    assert found.usage == stored.usage
    assert abs(found.created_at - stored.created_at) <= 1
    assert [item.id for item in found.output] == [item.id for item in stored.output]
    (item,) = [one async for one in client.responses.input_items.list(stored.id)]
    assert item.to_dict()["content"] == [{"type": "input_text", "text": ASKED}]
    assert str(item.id).startswith("msg_")


async def test_later_response_names_the_previous_one(client: AsyncOpenAI, stored: Response) -> None:
    events = await events_of(client, "And then?", previous_response_id=stored.id)
    second = events[-1].response
    found = await client.responses.retrieve(second.id)
    assert (found.previous_response_id, found.output_text) == (stored.id, second.output_text)
    await client.responses.delete(stored.id)
    with pytest.raises(openai.NotFoundError):
        await client.responses.retrieve(stored.id)
    assert (await client.responses.retrieve(second.id)).output_text == second.output_text
    third = await client.responses.create(model=MODEL, input="Why?", previous_response_id=second.id)
    assert (await client.responses.retrieve(third.id)).previous_response_id == second.id


async def test_deleted_response_leaves_no_conversation(
    client: AsyncOpenAI, stored: Response, api: LiveApi, tenant: str
) -> None:
    async with api.client(tenant) as native:
        conversation = stored.conversation.id if stored.conversation else ""
        shown = (await native.get(f"/v1/conversations/{conversation}")).json()
        assert UUID(shown["id"]).hex == conversation.removeprefix("conv_")
        await client.responses.delete(stored.id)
        assert (await native.get(f"/v1/conversations/{conversation}")).status_code == 404
    with pytest.raises(openai.NotFoundError):
        await client.responses.delete(stored.id)


async def test_response_of_deleted_document_has_no_annotations(client: AsyncOpenAI, stored: Response) -> None:
    for annotation in annotations_of(stored):
        await client.files.delete(annotation["file_id"])
    found = valid(await client.responses.retrieve(stored.id))
    assert (found.output_text, annotations_of(found)) == ("[erased]", [])


async def test_unknown_response_is_not_found(client: AsyncOpenAI, stored: Response) -> None:
    unstored = await client.responses.create(model=MODEL, input=ASKED)
    for id_ in (unstored.id, "resp_1", "x", f"resp_{'0' * 64}"):
        for call in (
            client.responses.retrieve,
            client.responses.delete,
            client.responses.input_items.list,
        ):
            with pytest.raises(openai.NotFoundError, match="store: true") as caught:
                await call(id_)
            assert caught.value.code == "not_found"
    with pytest.raises(openai.BadRequestError) as refused:
        await client.responses.retrieve(stored.id, stream=True)
    assert refused.value.param == "stream"


async def test_stored_response_of_other_tenant_is_not_found(
    client: AsyncOpenAI,
    stored: Response,
    postgres_server: EmbeddedPostgres,
    make_tenant: Callable[[], str],
) -> None:  # C17, C42
    bob = make_tenant()
    async with (
        live_api(settings_for(postgres_server.app_url, [bob])) as other,
        AsyncOpenAI(base_url=f"{other.url}/v1", api_key=key_of(bob), max_retries=0) as as_bob,
    ):
        for call in (
            as_bob.responses.retrieve,
            as_bob.responses.delete,
            as_bob.responses.input_items.list,
        ):
            with pytest.raises(openai.NotFoundError):
                await call(stored.id)
    assert (await client.responses.retrieve(stored.id)).id == stored.id
