"""Chat completions with stop sequences and JSON, over the openai package."""

import json
from typing import Any, Literal

import openai
import pytest
from openai import AsyncOpenAI
from pydantic import BaseModel

from tests.integration.openai_chat.conftest import ASKED, MODEL, content_of, streamed
from tests.support.http.live_api import LiveApi
from tests.support.vendors.fake_openai import FakeOpenAI
from tests.support.vendors.fake_vendor import Reply

pytestmark = pytest.mark.asyncio(loop_scope="module")

STREAMED = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
FRESH = {"Cache-Control": "no-cache"}


class Rising(BaseModel):
    """An answer in JSON."""

    hours: int
    note: str
    place: Literal["oven", "bowl"]


SCHEMA: Any = {
    "type": "json_schema",
    "json_schema": {"name": "rising", "strict": True, "schema": Rising.model_json_schema()},
}
GOOD: dict[str, Any] = {"hours": 2, "note": "Let the dough rise for two hours.", "place": "bowl"}


def reply(value: Any, **more: Any) -> Reply:
    text = value if isinstance(value, str) else json.dumps(value)
    return Reply(texts=(text[:9], text[9:]), **more)


async def content(client: AsyncOpenAI, *, stream: bool, **options: Any) -> tuple[str, str | None]:
    """Return the text and the finish reason."""
    if stream:
        chunks = await streamed(client, **options)
        return content_of(chunks), [c.choices[0].finish_reason for c in chunks if c.choices][-1]
    answer = await client.chat.completions.create(model=MODEL, messages=ASKED, **options)
    return answer.choices[0].message.content or "", answer.choices[0].finish_reason


@STREAMED
@pytest.mark.parametrize("stop", ["for", ["for", "baking"]])
async def test_stop_sequence_is_sent_to_the_model_and_ends_the_answer(
    client: AsyncOpenAI, vendor: FakeOpenAI, stream: bool, stop: Any
) -> None:
    # A model that ignores it, with the sequence in two pieces.
    vendor.script(Reply(texts=("It rises f", "or two hours before ba", "king [Source 1].")))
    assert await content(client, stream=stream, stop=stop) == ("It rises ", "stop")
    assert vendor.bodies[0]["stop"] == [stop] if isinstance(stop, str) else stop


async def test_stop_sequence_refused_by_the_model_still_ends_the_answer(
    client: AsyncOpenAI, vendor: FakeOpenAI
) -> None:
    vendor.refused["stop"] = "Unsupported parameter: 'stop' is not supported with this model."
    vendor.script(Reply(texts=("It rises for two hours.",)))
    assert await content(client, stream=False, stop="for") == ("It rises ", "stop")
    assert [body.get("stop") for body in vendor.bodies] == [["for"], None]


async def test_stop_sequences_are_part_of_the_cache_key_and_of_the_log(
    client: AsyncOpenAI, vendor: FakeOpenAI, api: LiveApi, tenant: str
) -> None:
    text = "Let the dough rise for two hours [Source 1]. Bake it."
    vendor.script(Reply(texts=(text,)), Reply(texts=(text,)))
    found = [
        (await content(client, stream=False, stop=stop))[0] for stop in (["Bake"], ["Bake"], ["two"], ["two"])
    ]
    assert found == ["Let the dough rise for two hours [1]. "] * 2 + ["Let the dough rise for "] * 2
    answer = await client.chat.completions.create(
        model=MODEL, messages=ASKED, stop=["Bake"], extra_headers=FRESH
    )
    async with api.client(tenant) as native:
        replayed = (await native.get(f"/v1/queries/{answer.id.removeprefix('chatcmpl-')}/replay")).json()
    assert replayed["status"] == "equal", replayed


@STREAMED
async def test_json_answer_has_clean_texts_and_its_citations_beside_it(
    client: AsyncOpenAI, vendor: FakeOpenAI, stream: bool
) -> None:
    cited = {**GOOD, "note": f"[Source 1] {GOOD['note']} [Source 1] https://evil.example/x [Source 7]"}
    vendor.script(reply(cited))
    if stream:
        chunks: list[Any] = list(await streamed(client, response_format=SCHEMA))
        text = content_of(chunks)
        (details,) = [c.vectorforge for c in chunks if getattr(c, "vectorforge", None)]
        (annotations,) = [
            c.choices[0].delta.annotations for c in chunks if hasattr(c.choices[0].delta, "annotations")
        ]
    else:
        answer: Any = await client.chat.completions.create(
            model=MODEL, messages=ASKED, response_format=SCHEMA
        )
        text, details = answer.choices[0].message.content, answer.vectorforge
        annotations = answer.choices[0].message.annotations
    found = Rising.model_validate_json(text or "")
    assert (found.hours, found.place) == (2, "bowl")
    assert found.note.startswith(GOOD["note"])
    assert found.note.removeprefix(GOOD["note"]).strip() == "[link removed]"
    assert annotations == []
    assert {c["source_number"] for c in details["citations"]} == {1}
    assert "supported" in {c["verdict"] for c in details["citations"]}
    assert vendor.bodies[0]["response_format"] == SCHEMA


@STREAMED
async def test_invalid_json_is_repaired_once(client: AsyncOpenAI, vendor: FakeOpenAI, stream: bool) -> None:
    vendor.script(reply({**GOOD, "place": "fridge"}), reply(f"```json\n{json.dumps(GOOD)}\n```"))
    text, reason = await content(client, stream=stream, response_format=SCHEMA)
    assert (json.loads(text), reason) == (GOOD, "stop")
    first, second = (body["messages"] for body in vendor.bodies)
    assert second[: len(first)] == first
    assert "$.place" in second[-1]["content"]


@STREAMED
async def test_json_that_stays_invalid_is_an_error(
    client: AsyncOpenAI, vendor: FakeOpenAI, stream: bool
) -> None:
    vendor.script(reply("Two hours."), reply({"hours": "two"}))
    with pytest.raises(openai.APIError, match="does not match the JSON") as failed:
        await content(client, stream=stream, response_format=SCHEMA)
    assert stream or getattr(failed.value, "status_code", None) == 502
    assert len(vendor.bodies) == 2


async def test_json_object_needs_no_schema(client: AsyncOpenAI, vendor: FakeOpenAI) -> None:
    vendor.script(reply([1]), reply({"any": ["thing"]}))
    text, _ = await content(client, stream=False, response_format={"type": "json_object"})
    assert json.loads(text) == {"any": ["thing"]}
    assert vendor.bodies[0]["response_format"] == {"type": "json_object"}
    assert "JSON object" in vendor.bodies[0]["messages"][0]["content"]  # OpenAI requires the word


async def test_truncated_json_is_returned_with_its_finish_reason(
    client: AsyncOpenAI, vendor: FakeOpenAI
) -> None:
    vendor.script(reply('{"hours": 2, "no', finish="length"))
    assert await content(client, stream=False, response_format=SCHEMA) == ('{"hours": 2, "no', "length")
    assert len(vendor.bodies) == 1


async def test_model_without_structured_output_gets_the_schema_in_the_prompt(
    client: AsyncOpenAI, vendor: FakeOpenAI
) -> None:
    vendor.refused["response_format"] = "response_format is not supported"
    vendor.script(reply(GOOD), reply(GOOD))
    for _ in range(2):
        text, _ = await content(client, stream=False, response_format=SCHEMA, extra_headers=FRESH)
        assert json.loads(text) == GOOD
    assert ["response_format" in body for body in vendor.bodies] == [True, True, False] * 2  # not remembered
    assert '"bowl"' in vendor.bodies[0]["messages"][0]["content"]


async def test_empty_collection_is_answered_in_json_by_the_model(
    client: AsyncOpenAI, vendor: FakeOpenAI
) -> None:
    vendor.script(reply(GOOD))
    options: dict[str, Any] = {"extra_body": {"filters": {"kind": "nothing"}}, "response_format": SCHEMA}
    text, _ = await content(client, stream=False, **options)
    assert json.loads(text) == GOOD
    assert vendor.bodies[0]["messages"][0]["role"] == "system"


async def test_sdk_parses_json_answers_whole_and_streamed(client: AsyncOpenAI, vendor: FakeOpenAI) -> None:
    vendor.script(reply(GOOD), reply(GOOD))
    parsed = await client.chat.completions.parse(model=MODEL, messages=ASKED, response_format=Rising)
    assert parsed.choices[0].message.parsed == Rising.model_validate(GOOD)
    async with client.chat.completions.stream(
        model=MODEL, messages=ASKED, response_format=Rising, extra_headers=FRESH
    ) as stream:
        final = await stream.get_final_completion()
    assert final.choices[0].message.parsed == Rising.model_validate(GOOD)


async def test_docrag_answers_in_no_other_format(client: AsyncOpenAI, vendor: FakeOpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        await client.chat.completions.create(
            model="docrag/handbook", messages=ASKED, response_format={"type": "json_object"}
        )
    assert refused.value.param == "response_format"
    assert vendor.bodies == []
