"""boto3's Knowledge Bases client against the query function behind its front doors."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import closing
from typing import Any

import pytest

from infra.emulator.lambda_service.front_doors import FrontDoor, FunctionUrl
from infra.emulator.lambda_service.function_process import FunctionProcess
from tests.support.aws.http_api import HttpApi
from tests.support.aws.live_query_function import QuerySurroundings, query_surroundings
from tests.support.aws.query_events import query_function
from tests.support.aws.rest_api import RestApi
from tests.support.http.knowledge_bases import call, knowledge_base_client, question
from tests.support.vendors.fake_vendor import Reply
from vectorforge.local.postgres import EmbeddedPostgres

PARAMETERS = question("How long does a refund take?", knowledgeBaseId="default")


@pytest.fixture
async def surroundings(
    postgres_server: EmbeddedPostgres, make_tenant: Callable[[], str]
) -> AsyncIterator[QuerySurroundings]:
    async with query_surroundings(postgres_server.app_url, make_tenant()) as started:
        yield started


async def test_event_stream_passes_front_doors_while_it_is_generated(surroundings: QuerySurroundings) -> None:
    async with FunctionProcess(query_function(surroundings, "stream")) as process:
        doors: list[FrontDoor] = [
            FunctionUrl(process, response_mode="stream"),
            RestApi(process, response_mode="stream"),
        ]
        for door in doors:
            async with door:
                with closing(knowledge_base_client(door.url, surroundings.tenant)) as client:
                    await _in_lockstep(client, surroundings)
        assert process.starts == 1


async def _in_lockstep(client: Any, surroundings: QuerySurroundings) -> None:
    released = asyncio.Event()

    async def gate(number: int) -> None:
        if number:
            await released.wait()

    surroundings.vendor.script(Reply(texts=("Fünf days", " [Source 1]."), gate=gate))
    response = await call(client.retrieve_and_generate_stream, **PARAMETERS)
    events = iter(response["stream"])
    async with asyncio.timeout(30):
        assert (await asyncio.to_thread(next, events)) == {"output": {"text": "Fünf days"}}
        released.set()
        *_, citation, guardrail = await asyncio.to_thread(list, events)
    (reference,) = citation["citation"]["retrievedReferences"]
    assert reference["location"]["customDocumentLocation"] == {"id": "refunds.txt"}
    assert guardrail == {"guardrail": {"action": "NONE"}}


async def test_buffered_event_stream_is_decoded_by_front_doors(surroundings: QuerySurroundings) -> None:
    async with FunctionProcess(query_function(surroundings, "buffered")) as process:
        for door in (FunctionUrl(process, response_mode="buffered"), HttpApi(process)):
            async with door:
                with closing(knowledge_base_client(door.url, surroundings.tenant)) as client:
                    whole = await call(client.retrieve_and_generate, **PARAMETERS)
                    response = await call(client.retrieve_and_generate_stream, **PARAMETERS)
                    events = await asyncio.to_thread(list, response["stream"])
            text = "".join(event["output"]["text"] for event in events if "output" in event)
            assert text == whole["output"]["text"] == "The answer is 42."
