"""Every provider against fakes on real sockets: OpenAI and Anthropic over HTTP and over their SDKs."""

from typing import Any, ClassVar

# Imported before the first test, since it takes seconds on a busy machine, and the tests' timeouts are short.
import anthropic.resources.messages  # noqa: F401 - see above
import openai.resources.chat  # noqa: F401 - see above
import pytest

from tests.contract.suites.llm import MESSAGES, LLMProviderContract, collect
from tests.contract.suites.llm_streams import LLMStreamContract
from tests.support.vendors.fake_anthropic import FakeAnthropic
from tests.support.vendors.fake_completions import FakeCompletions
from tests.support.vendors.fake_openai import FakeOpenAI
from tests.support.vendors.fake_vendor import FakeVendor
from vectorforge.errors import InvalidInputError
from vectorforge.llm.base import BaseLLMProvider
from vectorforge.llm.providers.anthropic import AnthropicProvider
from vectorforge.llm.providers.extractive import ExtractiveProvider
from vectorforge.llm.providers.openai import OpenAIProvider
from vectorforge.llm.providers.openai_compatible import (
    MaxServeProvider,
    format_chat_prompt,
)
from vectorforge.llm.types import LLMRequestConfig, StreamEnd
from vectorforge.telemetry import InMemoryMetrics
from vectorforge.vendors.accounts import ClientKind

FULL_CONFIG = LLMRequestConfig(
    model="m",
    temperature=0.2,
    max_tokens=99,
    top_p=0.9,
    frequency_penalty=0.5,
    presence_penalty=-0.5,
    stop_sequences=("END",),
)
BARE_CONFIG = LLMRequestConfig(model="m", temperature=None)


#
class TestOpenAI(LLMStreamContract):
    client: ClassVar[ClientKind] = "http"

    def make_server(self, **kwargs: Any) -> FakeVendor:
        return FakeOpenAI(**kwargs)

    def make_provider(self, credentials: str, base_url: str, **kwargs: Any) -> BaseLLMProvider:
        return OpenAIProvider(credentials, base_url=base_url, client=self.client, **kwargs)

    # A-057 A-058 A-075 A-078 A-079 A-080 C12
    async def test_request_bodies_match_chat_completions_api(
        self, server: FakeVendor, provider: BaseLLMProvider
    ) -> None:
        await provider.generate(MESSAGES)
        await provider.generate(MESSAGES, FULL_CONFIG)
        await provider.generate(MESSAGES, BARE_CONFIG)
        await collect(provider)
        default = {"model": "gpt-4o", "messages": MESSAGES, "temperature": 0.7, "max_tokens": 1024}
        assert server.bodies == [
            default,
            {
                "model": "m",
                "messages": MESSAGES,
                "temperature": 0.2,
                "max_tokens": 99,
                "top_p": 0.9,
                "frequency_penalty": 0.5,
                "presence_penalty": -0.5,
                "stop": ["END"],
            },
            {"model": "m", "messages": MESSAGES, "max_tokens": 1024},
            {**default, "stream": True, "stream_options": {"include_usage": True}},
        ]

    #
    async def test_response_maps_content_model_and_usage(self, provider: BaseLLMProvider) -> None:
        response = await provider.generate(MESSAGES)
        assert (response.content, response.model, response.provider) == (
            "The answer is 42 [Source 1].",
            "gpt-4o-2026-01-01",
            "openai",
        )
        assert (response.prompt_tokens, response.completion_tokens, response.total_tokens) == (11, 7, 18)

    #
    async def test_foreign_environment_variables_are_ignored(
        self, server: FakeVendor, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("OPENAI_ORG_ID", "somebody-else")
        monkeypatch.setenv("OPENAI_PROJECT_ID", "somebody-else")
        monkeypatch.setenv("OPENAI_CUSTOM_HEADERS", "X-Foreign: 1\nAuthorization: somebody-else")
        for organization in (None, "org-ours"):
            provider = self.make_provider(server.api_key, server.base_url, organization=organization)
            await provider.generate(MESSAGES)
            await provider.aclose()
        first, second = ({k.lower(): v for k, v in r.headers.items()} for r in server.requests)
        assert "openai-organization" not in first
        assert second["openai-organization"] == "org-ours"
        assert not {"openai-project", "x-foreign"} & first.keys()
        assert first["authorization"] == f"Bearer {server.api_key}"

    # defect 8
    async def test_max_tokens_parameter_is_renamed_once(self) -> None:
        text = "'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."
        async with FakeOpenAI(refused={"max_tokens": text}) as server:
            provider = self.make_provider(server.api_key, server.base_url)
            response = await provider.generate(MESSAGES)
            await collect(provider)
            await provider.aclose()
        spelled = ["max_completion_tokens" in body for body in server.bodies]
        assert spelled == [False, True, True]
        assert all(("max_tokens" in body) != new for body, new in zip(server.bodies, spelled, strict=True))
        assert "dropped_parameters" not in response.metadata

    # defect 7
    async def test_rejected_stream_options_are_dropped(self) -> None:
        async with FakeOpenAI(refused={"stream_options": "unknown"}) as server:
            provider = self.make_provider(server.api_key, server.base_url)
            *_, end = await collect(provider)
            await provider.aclose()
        assert end.response.metadata["usage_estimated"] is True  # type: ignore[union-attr]  # the last event
        assert len(server.requests) == 2

    # C12
    async def test_temperature_above_two_is_rejected(self, provider: BaseLLMProvider) -> None:
        with pytest.raises(InvalidInputError, match="temperature must be from 0 to 2 for openai") as caught:
            await provider.generate(MESSAGES, LLMRequestConfig(model="m", temperature=2.1))
        assert caught.value.field == "temperature"


# The same over the package openai
class TestOpenAIWithSdk(TestOpenAI):
    client = "sdk"


# A-088 A-155
class CachingAnthropic(FakeAnthropic):
    """Reads 30 tokens of each prompt from its cache."""

    def _message(self, *args: Any) -> dict[str, Any]:
        message = super()._message(*args)
        message["usage"] |= {"cache_creation_input_tokens": 0, "cache_read_input_tokens": 30}
        return message


class TestAnthropic(LLMStreamContract):
    client: ClassVar[ClientKind] = "http"

    def make_server(self, **kwargs: Any) -> FakeVendor:
        return FakeAnthropic(**kwargs)

    def make_provider(self, credentials: str, base_url: str, **kwargs: Any) -> BaseLLMProvider:
        return AnthropicProvider(credentials, base_url=base_url, client=self.client, **kwargs)

    # A-083 A-084 A-085 A-086 C12 C38
    async def test_request_bodies_match_messages_api(
        self, server: FakeVendor, provider: BaseLLMProvider
    ) -> None:
        await provider.generate(MESSAGES)
        full = await provider.generate(MESSAGES, FULL_CONFIG)
        await provider.generate(MESSAGES[1:], BARE_CONFIG)
        await collect(provider)
        system, conversation = MESSAGES[0]["content"], MESSAGES[1:]
        default = {
            "model": "claude-sonnet-4-20250514",
            "system": system,
            "messages": conversation,
            "temperature": 0.7,
            "max_tokens": 1024,
        }
        assert server.bodies == [
            default,
            {
                "model": "m",
                "system": system,
                "messages": conversation,
                "temperature": 0.2,
                "top_p": 0.9,
                "max_tokens": 99,
                "stop_sequences": ["END"],
            },
            {"model": "m", "messages": conversation, "max_tokens": 1024},
            {**default, "stream": True},
        ]
        assert full.metadata["dropped_parameters"] == ["frequency_penalty", "presence_penalty"]

    async def test_shared_messages_are_cached_and_cached_tokens_counted(self) -> None:
        config = LLMRequestConfig(model="m", temperature=None, shared_messages=2)
        messages = [*MESSAGES[:2], {"role": "user", "content": "And?"}]
        async with CachingAnthropic() as server:
            provider = self.make_provider(server.api_key, server.base_url)
            answer = await provider.generate(messages, config)
            [*_, end] = [event async for event in provider.stream_events(messages, config)]
            await provider.generate(
                messages[:1] * 2 + messages[1:], config
            )  # instructions alone are not cached
            await provider.aclose()
        assert isinstance(end, StreamEnd)
        assert (answer.prompt_tokens, end.response.prompt_tokens) == (41, 41)
        text = {"type": "text", "text": MESSAGES[1]["content"], "cache_control": {"type": "ephemeral"}}
        cached = [{"role": "user", "content": [text]}, messages[2]]
        assert [body["messages"] for body in server.bodies] == [cached, cached, messages[1:]]

    #
    async def test_foreign_environment_variables_are_ignored(
        self, server: FakeVendor, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("ANTHROPIC_CUSTOM_HEADERS", "X-Foreign: 1\nx-api-key: somebody-else")
        monkeypatch.setenv("ANTHROPIC_AUTH_TOKEN", "somebody-else")
        monkeypatch.setenv("ANTHROPIC_BASE_URL", "http://localhost:1")
        provider = self.make_provider(server.api_key, server.base_url)
        await provider.generate(MESSAGES)
        await provider.aclose()
        headers = {k.lower(): v for k, v in server.requests[0].headers.items()}
        assert headers["authorization"] == f"Bearer {server.api_key}"
        assert not {"x-foreign", "x-api-key"} & headers.keys()

    #
    async def test_response_maps_content_model_and_usage(self, provider: BaseLLMProvider) -> None:
        response = await provider.generate(MESSAGES)
        assert (response.content, response.model, response.provider) == (
            "The answer is 42 [Source 1].",
            "claude-sonnet-4-20250514-20260101",
            "anthropic",
        )
        assert (response.prompt_tokens, response.completion_tokens, response.total_tokens) == (11, 7, 18)

    # C12
    async def test_temperature_above_one_is_rejected(
        self, server: FakeVendor, provider: BaseLLMProvider
    ) -> None:
        with pytest.raises(
            InvalidInputError, match="temperature must be from 0 to 1 for anthropic"
        ) as caught:
            await provider.generate(MESSAGES, LLMRequestConfig(model="m", temperature=1.1))
        assert caught.value.field == "temperature"
        assert not server.requests

    # C38: https://github.com/BerriAI/litellm/issues/15070
    async def test_exclusive_sampling_parameters_retain_temperature(self) -> None:
        text = "`temperature` and `top_p` cannot both be specified for this model. Please use only one."
        async with FakeAnthropic(refused={"top_p": text}) as server:
            provider = self.make_provider(server.api_key, server.base_url)
            response = await provider.generate(MESSAGES, FULL_CONFIG)
            await provider.aclose()
        assert (server.bodies[-1]["temperature"], "top_p" in server.bodies[-1]) == (0.2, False)
        assert "top_p" in response.metadata["dropped_parameters"]

    #
    async def test_system_messages_alone_are_rejected(self, provider: BaseLLMProvider) -> None:
        with pytest.raises(InvalidInputError) as caught:
            await provider.generate(MESSAGES[:1])
        assert caught.value.field == "messages"


# The same over the package anthropic
class TestAnthropicWithSdk(TestAnthropic):
    client = "sdk"


# C13 B-035 B-036
class TestMaxServeCompletions(LLMStreamContract):
    def make_server(self, **kwargs: Any) -> FakeVendor:
        return FakeCompletions(**kwargs)

    def make_provider(self, credentials: str, base_url: str, **kwargs: Any) -> BaseLLMProvider:
        return MaxServeProvider(
            credentials, base_url=base_url, mode="completions", **{"default_model": "llama", **kwargs}
        )

    # B-035 B-036 C12: the prompt as one text, with both stop tokens
    async def test_request_bodies_match_completions_api(
        self, server: FakeVendor, provider: BaseLLMProvider
    ) -> None:
        assert isinstance(provider, MaxServeProvider)
        config = LLMRequestConfig(model="m", temperature=0.2, max_tokens=99, top_p=0.9)
        assert await provider.call_max_serve(MESSAGES, config) == ("The answer is 42 [Source 1].", 11, 7)
        await provider.generate(MESSAGES, FULL_CONFIG)
        await collect(provider)
        prompt, stop = format_chat_prompt(MESSAGES), ["<|eot_id|>", "<|end_of_text|>"]
        first, second, third = server.bodies
        assert first == {
            "model": "m",
            "prompt": prompt,
            "temperature": 0.2,
            "top_p": 0.9,
            "max_tokens": 99,
            "stop": stop,
        }
        assert second["stop"] == [*stop, "END"]
        assert (third["prompt"], third["stop"], third["model"]) == (prompt, stop, "llama")
        assert third["stream_options"] == {"include_usage": True}
        assert {request.path for request in server.requests} == {"/v1/completions"}


class TestExtractive(LLMProviderContract):
    @pytest.fixture
    def provider(self, metrics: InMemoryMetrics) -> BaseLLMProvider:
        return ExtractiveProvider(metrics=metrics)
