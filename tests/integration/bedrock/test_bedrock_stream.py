"""``retrieve_and_generate_stream`` of boto3: incremental delivery, citations, errors and disconnects."""

import asyncio
from contextlib import closing
from typing import Any

import pytest
from botocore.exceptions import EventStreamError

from tests.support.http.knowledge_bases import call, question
from tests.support.http.live_api import LiveApi
from tests.support.vendors.fake_openai import FakeOpenAI
from tests.support.vendors.fake_vendor import Reply

ANSWER = (
    "Two hours 🙂 [Source 1], then bake it [Source 1, 2]. Look at `a[1]` in code. "
    "Boil at 100 degrees. [Source 2]\n\n- Rest [Source 1]\n- Bake [Source 2] [Source 1]"
)


def read(events: list[Any]) -> tuple[str, list[Any]]:
    """Return the text and the citations of a stream, after checking the order of its events."""
    kinds = [next(iter(event)) for event in events]
    assert set(kinds) == {"output", "citation", "guardrail"}
    assert kinds.index("guardrail") == len(kinds) - 1
    assert events[-1]["guardrail"] == {"action": "NONE"}
    text = "".join(event["output"]["text"] for event in events if "output" in event)
    return text, [event["citation"] for event in events if "citation" in event]


async def test_stream_equals_the_whole_answer(client: Any, vendor: FakeOpenAI) -> None:
    vendor.unscripted = Reply(texts=tuple(ANSWER), pause_s=0.001)
    whole = await call(client.retrieve_and_generate, **question())
    response = await call(client.retrieve_and_generate_stream, **question("How long must the dough rise"))
    assert response["sessionId"] != whole["sessionId"]
    assert response["ResponseMetadata"]["HTTPHeaders"]["content-type"] == "application/vnd.amazon.eventstream"
    text, citations = read(await asyncio.to_thread(list, response["stream"]))
    assert text == whole["output"]["text"]
    assert text == (
        "Two hours 🙂, then bake it. Look at `a[1]` in code. Boil at 100 degrees.\n\n- Rest\n- Bake"
    )
    for citation in citations:
        assert citation.pop("citation") == citation  # for clients of the deprecated member
    assert citations == whole["citations"]
    assert len(citations) == 5


async def test_stream_delivers_each_piece_before_the_next_is_generated(
    client: Any, vendor: FakeOpenAI
) -> None:
    may_go_on = asyncio.Semaphore(0)

    async def gate(number: int) -> None:
        if number:
            await may_go_on.acquire()

    pieces = ("It rises. ", "Two hours [Source 1]. ", "Then bake", " it.")
    vendor.script(Reply(texts=pieces, gate=gate))
    response = await call(client.retrieve_and_generate_stream, **question())
    events = iter(response["stream"])
    async with asyncio.timeout(20):
        first = await asyncio.to_thread(next, events)
        assert first["output"]["text"].strip() == "It rises."
        may_go_on.release()
        text = first["output"]["text"]
        while "Two hours." not in text:
            text += (await asyncio.to_thread(next, events))["output"]["text"]
        may_go_on.release()
        while "citation" not in (event := await asyncio.to_thread(next, events)):
            assert "output" in event
        part = event["citation"]["generatedResponsePart"]["textResponsePart"]["text"]
        assert part == "Two hours."
        for _ in range(2):
            may_go_on.release()
        last = await asyncio.to_thread(list, events)
    assert last[-1] == {"guardrail": {"action": "NONE"}}


async def test_session_of_a_stream_continues_the_conversation(client: Any, vendor: FakeOpenAI) -> None:
    response = await call(client.retrieve_and_generate_stream, **question())
    await asyncio.to_thread(list, response["stream"])
    again = await call(
        client.retrieve_and_generate_stream, **question("And then?"), sessionId=response["sessionId"]
    )
    await asyncio.to_thread(list, again["stream"])
    assert again["sessionId"] == response["sessionId"]
    assert [m["role"] for m in vendor.bodies[-1]["messages"]] == ["system", "user", "assistant", "user"]


@pytest.mark.parametrize("ending", ["eof", "cut", "error"])
async def test_error_inside_the_stream_is_raised_after_partial_text(
    client: Any, vendor: FakeOpenAI, ending: Any
) -> None:
    vendor.script(Reply(texts=("Two ", "hours [Sou"), ending=ending))
    response = await call(client.retrieve_and_generate_stream, **question())
    events: list[Any] = []

    def consume() -> None:
        with closing(response["stream"]) as stream:
            for event in stream:
                events.append(event)  # noqa: PERF402 - those before the error are wanted

    with pytest.raises(EventStreamError) as broken:
        await asyncio.to_thread(consume)
    assert broken.value.response["Error"]["Code"] in ("badGatewayException", "internalServerException")
    assert broken.value.response["Error"]["Message"]
    assert "secret" not in broken.value.response["Error"]["Message"]
    assert "".join(event["output"]["text"] for event in events) == "Two hours [Sou"


async def test_client_disconnect_stops_the_model_and_is_logged(
    client: Any, vendor: FakeOpenAI, api: LiveApi, tenant: str
) -> None:  # fault 15, C31
    vendor.script(Reply(texts=("one ", "two "), ending="stall"))
    response = await call(client.retrieve_and_generate_stream, **question())
    await asyncio.to_thread(next, iter(response["stream"]))
    response["stream"].close()
    async with asyncio.timeout(20), api.client(tenant) as native:
        await vendor.requests[-1].client_closed.wait()
        outcome = "started"
        while outcome == "started":
            (row,) = (await native.get("/v1/queries")).json()["queries"]
            outcome = row["outcome"]
            await asyncio.sleep(0.02)
    assert outcome == "aborted"
