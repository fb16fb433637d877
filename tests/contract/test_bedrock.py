"""Bedrock's Converse API through boto3, against a fake that checks requests by botocore's service model."""

import asyncio
import json
import threading
from contextlib import aclosing
from typing import Any

import pytest

from tests.contract.bedrock_client import CONVERSATION, QUESTION, SYSTEM, bedrock, session
from tests.contract.suites.llm import MESSAGES, collect
from tests.contract.suites.llm_streams import LLMStreamContract
from tests.support.vendors.fake_bedrock import MODEL, FakeBedrock, check_input
from tests.support.vendors.fake_vendor import FakeVendor, Reply
from vectorforge.config import LLMSettings, VectorForgeConfig
from vectorforge.errors import (
    ConfigurationError,
    InvalidInputError,
    LLMAuthenticationError,
)
from vectorforge.llm.base import BaseLLMProvider
from vectorforge.llm.providers.bedrock import BedrockProvider
from vectorforge.llm.registry import LLMProviderRegistry
from vectorforge.llm.types import LLMRequestConfig, StreamEnd
from vectorforge.telemetry import InMemoryMetrics
from vectorforge.vendors.bedrock import BedrockClient


# A-155 C29
class TestBedrock(LLMStreamContract):
    def make_server(self, **kwargs: Any) -> FakeVendor:
        return FakeBedrock(**kwargs)

    def make_provider(self, credentials: str, base_url: str, **kwargs: Any) -> BaseLLMProvider:
        return BedrockProvider(
            base_url=base_url, session=session(credentials), **{"default_model": MODEL, **kwargs}
        )

    # A-057 A-058 C12: unset and unsupported parameters are omitted, the latter reported
    async def test_request_bodies_match_converse_api(
        self, server: FakeVendor, provider: BaseLLMProvider
    ) -> None:
        await provider.generate(MESSAGES)
        full = LLMRequestConfig("m", 0.2, 99, 0.9, 0.5, -0.5, ("END",))
        response = await provider.generate(MESSAGES, full)
        await provider.generate(MESSAGES[1:], LLMRequestConfig(model="arn:aws:b:r:1:p/m", temperature=None))
        await collect(provider)
        system = [{"text": SYSTEM}]
        default = {
            "messages": CONVERSATION,
            "system": system,
            "inferenceConfig": {"temperature": 0.7, "maxTokens": 1024},
        }
        assert server.bodies == [
            default,
            {
                "messages": CONVERSATION,
                "system": system,
                "inferenceConfig": {
                    "temperature": 0.2,
                    "maxTokens": 99,
                    "topP": 0.9,
                    "stopSequences": ["END"],
                },
            },
            {"messages": CONVERSATION, "inferenceConfig": {"maxTokens": 1024}},
            default,
        ]
        assert [request.path for request in server.requests] == [
            f"/model/{MODEL}/converse",
            "/model/m/converse",
            "/model/arn:aws:b:r:1:p/m/converse",
            f"/model/{MODEL}/converse-stream",
        ]
        assert response.metadata["dropped_parameters"] == ["frequency_penalty", "presence_penalty"]

    async def test_response_maps_content_model_and_usage(self, provider: BaseLLMProvider) -> None:
        response = await provider.generate(MESSAGES)
        assert (response.content, response.model, response.provider) == (
            "The answer is 42 [Source 1].",
            MODEL,
            "bedrock",
        )
        assert (response.prompt_tokens, response.completion_tokens, response.total_tokens) == (11, 7, 18)

    async def test_consecutive_messages_of_one_role_are_merged(
        self, server: FakeVendor, provider: BaseLLMProvider
    ) -> None:
        await provider.generate([MESSAGES[1], {"role": "user", "content": "Well?"}])
        assert server.bodies[0]["messages"] == [
            {"role": "user", "content": [{"text": QUESTION}, {"text": "Well?"}]}
        ]

    async def test_system_messages_alone_are_rejected(self, provider: BaseLLMProvider) -> None:
        with pytest.raises(InvalidInputError) as caught:
            await provider.generate(MESSAGES[:1])
        assert caught.value.field == "messages"

    # C12
    async def test_temperature_above_one_is_rejected(self, provider: BaseLLMProvider) -> None:
        with pytest.raises(InvalidInputError, match="temperature must be from 0 to 1 for bedrock") as caught:
            await provider.generate(MESSAGES, LLMRequestConfig(model="m", temperature=1.1))
        assert caught.value.field == "temperature"

    #
    async def test_list_models_returns_regional_models_and_profiles(self, provider: BaseLLMProvider) -> None:
        assert await provider.list_models() == ["amazon.nova-2-lite-v1:0", MODEL]

    async def test_cancelled_call_returns_without_waiting(
        self, server: FakeVendor, provider: BaseLLMProvider
    ) -> None:
        await provider.preload()
        server.script(Reply(ending="stall"))
        task = asyncio.create_task(provider.generate(MESSAGES))
        while not server.requests:  # noqa: ASYNC110 - the server has no event for it
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    async def test_closed_stream_leaves_no_thread(
        self, server: FakeVendor, provider: BaseLLMProvider
    ) -> None:
        server.script(Reply(texts=("x",) * 10_000, pause_s=0.01))
        async with aclosing(provider.generate_stream(MESSAGES)) as texts:
            await anext(texts)
        await asyncio.wait_for(server.requests[0].client_closed.wait(), 20)
        async with asyncio.timeout(20):
            while any(t.name == "bedrock" for t in threading.enumerate()):  # noqa: ASYNC110 - threads
                await asyncio.sleep(0.01)


# C12 C38: the texts are Bedrock's own: https://github.com/BerriAI/litellm/issues/15070 and
# https://github.com/DayuanJiang/next-ai-draw-io/issues/861
@pytest.mark.parametrize(
    ("refused", "sent", "dropped"),
    [
        (
            {
                "topP": "The model returned the following errors: `temperature` and `top_p` cannot both be "
                "specified for this model. Please use only one."
            },
            {"temperature": 0.2, "stopSequences": ["END"]},
            ["top_p"],
        ),
        (
            {
                "temperature": "The model returned the following errors: temperature is deprecated for this "
                "model."
            },
            {"topP": 0.9, "stopSequences": ["END"]},
            ["temperature"],
        ),
        (
            {
                "stopSequences": "This model doesn't support the stopSequences field. Remove stopSequences "
                "and try again.",
                "topP": "Malformed input request: extraneous key [top_p] is not permitted.",
            },
            {"temperature": 0.2},
            ["top_p", "stop_sequences"],
        ),
    ],
)
async def test_rejected_parameters_are_dropped_and_reported(
    refused: dict[str, str], sent: dict[str, Any], dropped: list[str]
) -> None:
    config = LLMRequestConfig(model="m", temperature=0.2, max_tokens=9, top_p=0.9, stop_sequences=("END",))
    async with FakeBedrock(refused=refused) as server:
        provider = bedrock(server)
        response = await provider.generate(MESSAGES, config)
        again = await provider.generate(MESSAGES, config)
        await provider.aclose()
    assert len(server.requests) == len(refused) + 2  # cached from then on
    assert server.bodies[-1]["inferenceConfig"] == {"maxTokens": 9, **sent}
    assert sorted(response.metadata["dropped_parameters"]) == sorted(dropped)
    assert again.metadata["dropped_parameters"] == response.metadata["dropped_parameters"]


# C11
async def test_response_schema_is_sent_until_rejected() -> None:
    schema = {"type": "object", "properties": {"answer": {"type": "string"}}, "required": ["answer"]}
    config = LLMRequestConfig(model="m", temperature=None, response_schema=schema)
    text = "This model doesn't support the outputConfig.textFormat field."
    async with FakeBedrock() as server, FakeBedrock(refused={"outputConfig": text}) as older:
        found = []
        for one in (server, older):
            provider = bedrock(one)
            found.append(await provider.generate(MESSAGES, config))
            await provider.aclose()
    structure = server.bodies[0]["outputConfig"]["textFormat"]["structure"]["jsonSchema"]
    assert json.loads(structure["schema"]) == schema
    assert ["outputConfig" in body for body in older.bodies] == [True, False]
    assert [one.metadata.get("dropped_parameters") for one in found] == [None, ["output_config"]]


# A-093 C25: without a key, the name of a model registers it
async def test_settings_register_bedrock_provider(monkeypatch: pytest.MonkeyPatch) -> None:
    async with FakeBedrock(api_key="the-roles-secret") as server:
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIATEST")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", server.api_key)
        settings = LLMSettings(
            bedrock_model=MODEL, bedrock_region="eu-west-1", bedrock_base_url=server.base_url
        )
        registry = LLMProviderRegistry()
        registry.auto_discover(VectorForgeConfig(llm=settings))
        *_, end = await collect(registry.get("bedrock"))
        await registry.aclose()
    assert isinstance(end, StreamEnd)
    assert end.response.content == "The answer is 42 [Source 1]."
    authorization = server.requests[0].headers["Authorization"]
    assert "/eu-west-1/bedrock/aws4_request" in authorization


async def test_missing_credentials_raise_authentication_error(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    provider = BedrockProvider(default_model=MODEL, region="eu-central-1", base_url="http://127.0.0.1:9")
    with pytest.raises(LLMAuthenticationError, match="Invalid credentials for bedrock"):
        await provider.generate(MESSAGES)
    assert await provider.validate_credentials() is False
    await provider.aclose()


async def test_missing_region_error_names_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ConfigurationError, match="VECTORFORGE_BEDROCK_REGION"):
        await BedrockProvider(default_model=MODEL).generate(MESSAGES)


async def test_concurrent_calls_do_not_block_event_loop() -> None:
    """More concurrent calls than asyncio's own pool has threads."""
    arrived, everybody = [], asyncio.Event()

    async def gate(_: int) -> None:
        arrived.append(1)
        if len(arrived) == 40:
            everybody.set()
        await everybody.wait()

    async with FakeBedrock() as server:
        server.unscripted = Reply(texts=("x",), gate=gate)
        provider = bedrock(server, metrics=InMemoryMetrics())
        async with asyncio.timeout(20):
            await asyncio.gather(*(collect(provider) for _ in range(40)))
        await provider.aclose()


@pytest.mark.parametrize(
    "body",
    [
        {"messages": [{"role": "user", "content": [{"text": 1}]}]},
        {"messages": [{"role": "robot", "content": [{"text": "x"}]}]},
        {"messages": [], "inferenceConfig": {"temperature": 1.5}},
        {"messages": [], "inferenceConfig": {"top_p": 0.5}},
        {"messages": [], "max_tokens": 5},
    ],
)
def test_fake_service_rejects_invalid_input(body: Any) -> None:
    with pytest.raises(ValueError, match=r"\S"):
        check_input("bedrock-runtime", "Converse", {**body, "modelId": "m"})


async def test_client_is_built_once_for_concurrent_calls() -> None:
    async with FakeBedrock() as server:
        client = BedrockClient(endpoint_url=lambda: server.base_url, session=session(server.api_key))
        await asyncio.gather(*(client.preload() for _ in range(5)))
        first = client._get("bedrock-runtime")
        assert first is client._get("bedrock-runtime")
        client.close()
