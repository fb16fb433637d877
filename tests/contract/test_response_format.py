"""JSON mode of vendors: bodies accepted by their own SDKs' types, and rejections."""

import json
from collections.abc import Sequence
from typing import Any

import pytest

from tests.support.vendors.fake_anthropic import FakeAnthropic
from tests.support.vendors.fake_completions import FakeCompletions
from tests.support.vendors.fake_openai import FakeOpenAI
from tests.support.vendors.fake_vendor import Reply
from tests.support.vendors.vendor_behaviour import Failure
from vectorforge.errors import LLMRequestError
from vectorforge.llm.base import BaseLLMProvider
from vectorforge.llm.providers.anthropic import AnthropicProvider
from vectorforge.llm.providers.openai import OpenAIProvider
from vectorforge.llm.providers.openai_compatible import MaxServeProvider
from vectorforge.llm.types import LLMRequestConfig, LLMResponse
from vectorforge.pipeline.presets import ANSWER_SCHEMA

MESSAGES = [{"role": "user", "content": "Answer with JSON."}]
WRITTEN = Reply(texts=('{"answer": "x"}',))
JSON_SCHEMA = {
    "type": "json_schema",
    "json_schema": {"name": "answer", "schema": dict(ANSWER_SCHEMA), "strict": True},
}
NO_SCHEMA = (  # OpenAI's text for gpt-4-turbo
    "Invalid parameter: 'response_format' of type 'json_schema' is not supported with this model. Learn more "
    "about supported models at the Structured Outputs guide: "
    "https://platform.openai.com/docs/guides/structured-outputs"
)


async def ask(provider: BaseLLMProvider, *, schema: bool = True, stream: bool = False) -> LLMResponse:
    config = LLMRequestConfig("model-1", response_schema=ANSWER_SCHEMA if schema else None)
    if not stream:
        return await provider.generate(MESSAGES, config)
    events = [event async for event in provider.stream_events(MESSAGES, config)]
    last: Any = events[-1]
    response: LLMResponse = last.response
    return response


def formats(bodies: Sequence[Any]) -> list[Any]:
    return [(body.get("response_format") or {}).get("type") for body in bodies]


@pytest.mark.parametrize("stream", [False, True])
async def test_openai_request_includes_json_schema(stream: bool) -> None:  # D-027, C09
    async with FakeOpenAI() as server:
        provider = OpenAIProvider(server.api_key, base_url=server.base_url)
        server.script(WRITTEN)
        assert (await ask(provider, stream=stream)).content == '{"answer": "x"}'
        assert server.bodies[0]["response_format"] == JSON_SCHEMA
        schema = server.bodies[0]["response_format"]["json_schema"]["schema"]
        assert next(iter(schema["properties"])) == "answer"  # the event that readers wait for
        await ask(provider, schema=False)
        assert "response_format" not in server.bodies[1]
        await provider.aclose()


@pytest.mark.parametrize(
    ("status", "texts", "sent", "dropped"),
    [
        (400, [NO_SCHEMA], ["json_schema", "json_object"], ["response_format.json_schema"]),
        (
            400,
            [NO_SCHEMA, NO_SCHEMA.replace("json_schema", "json_object")],
            ["json_schema", "json_object", None],
            ["response_format.json_schema", "response_format"],
        ),
        (422, ["Unexpected field response_format."], ["json_schema", "json_object"], None),
        (
            500,
            ['response_format type must be "text" or "json_object"'],
            ["json_schema", "json_object"],
            None,
        ),
    ],
)
async def test_openai_without_schema_support_falls_back_to_json_object(
    status: int, texts: list[str], sent: list[str | None], dropped: list[str] | None
) -> None:  # D-027
    async with FakeOpenAI() as server:
        provider = OpenAIProvider(server.api_key, base_url=server.base_url, retries=0)
        server.script(*(Failure(status, message=text) for text in texts))
        response = await ask(provider)
        assert formats(server.bodies) == sent
        assert dropped in (None, response.metadata["dropped_parameters"])
        await ask(provider)  # cached
        assert formats(server.bodies)[len(sent) :] == sent[-1:]
        await provider.aclose()


async def test_unrelated_request_error_is_raised() -> None:
    async with FakeOpenAI() as server:
        provider = OpenAIProvider(server.api_key, base_url=server.base_url, retries=0)
        server.script(Failure(400, message="messages: too long"))
        with pytest.raises(LLMRequestError):
            await ask(provider)
        server.script(*[Failure(400, message=NO_SCHEMA)] * 2)
        with pytest.raises(LLMRequestError):  # JSON was not requested
            await ask(provider, schema=False)
        assert len(server.bodies) == 2
        await provider.aclose()


async def test_other_vendor_without_schema_support_drops_response_format() -> None:
    async with FakeOpenAI() as server:
        server.refused["response_format"] = "'response_format' is not supported."
        provider = OpenAIProvider(server.api_key, base_url=server.base_url, retries=0)
        await ask(provider)
        assert formats(server.bodies) == ["json_schema", "json_object", None]
        await provider.aclose()


@pytest.mark.parametrize("stream", [False, True])
async def test_anthropic_request_includes_json_schema(stream: bool) -> None:  # D-027, C09
    async with FakeAnthropic() as server:
        provider = AnthropicProvider(server.api_key, base_url=server.base_url)
        server.script(WRITTEN)
        response = await ask(provider, stream=stream)
        assert json.loads(response.content) == {"answer": "x"}
        schema = {"type": "json_schema", "schema": dict(ANSWER_SCHEMA)}
        assert server.bodies[0]["output_config"] == {"format": schema}
        await ask(provider, schema=False)
        assert "output_config" not in server.bodies[1]
        await provider.aclose()


@pytest.mark.parametrize(
    "text",
    [
        "output_config: Extra inputs are not permitted",
        "output_config.format: structured outputs are not available for this model",
        "'model-1' does not support output format.",
    ],
)
async def test_anthropic_without_schema_support_drops_output_config(text: str) -> None:
    async with FakeAnthropic(refused={"output_config": text}) as server:
        provider = AnthropicProvider(server.api_key, base_url=server.base_url, retries=0)
        response = await ask(provider)
        assert response.metadata["dropped_parameters"] == ["output_config"]
        assert ["output_config" in body for body in server.bodies] == [True, False]
        await ask(provider)
        assert "output_config" not in server.bodies[-1]
        await provider.aclose()


async def test_llama_prompt_request_has_no_response_format() -> None:
    async with FakeCompletions() as server:
        provider = MaxServeProvider(
            server.api_key, base_url=server.base_url, default_model="m", mode="completions"
        )
        await ask(provider)
        assert "response_format" not in server.bodies[0]
        await provider.aclose()
