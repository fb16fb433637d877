"""Contract of every LLM provider with a vendor, tested against the vendor's fake."""

import asyncio
import traceback
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.contract.suites.llm import (
    MESSAGES,
    LLMProviderContract,
    collect,
)
from tests.support.vendors.fake_vendor import FakeVendor, Reply
from tests.support.vendors.vendor_behaviour import Failure, SmallContext
from vectorforge.deadline import Deadline
from vectorforge.errors import (
    LLMAuthenticationError,
    LLMContextOverflowError,
    LLMError,
    LLMRateLimitError,
    LLMRequestError,
    LLMTimeoutError,
)
from vectorforge.health import HealthChecker
from vectorforge.llm.base import BaseLLMProvider
from vectorforge.llm.types import LLMRequestConfig, StreamEnd
from vectorforge.telemetry import InMemoryMetrics


class LLMVendorContract(LLMProviderContract, ABC):
    """Applies to every provider with a vendor, here a fake one on a real socket."""

    @abstractmethod
    def make_server(self, **kwargs: Any) -> FakeVendor:
        """Create the vendor's fake."""

    @abstractmethod
    def make_provider(self, credentials: str, base_url: str, **kwargs: Any) -> BaseLLMProvider:
        """Create the provider with keyword arguments of ``BaseLLMProvider``."""

    @pytest.fixture
    async def server(self) -> AsyncIterator[FakeVendor]:
        """Start a fake that replies."""
        async with self.make_server() as server:
            yield server

    @pytest.fixture
    async def provider(self, server: FakeVendor, metrics: InMemoryMetrics) -> AsyncIterator[BaseLLMProvider]:
        """Create a provider of that fake, with timeouts for a busy machine."""
        provider = self.make_provider(server.api_key, server.base_url, metrics=metrics, timeout_s=30.0)
        yield provider
        await provider.aclose()

    # A-068 A-135 C23
    @pytest.mark.parametrize("stream", [False, True])
    async def test_three_rate_limits_are_retried(
        self, server: FakeVendor, provider: BaseLLMProvider, metrics: InMemoryMetrics, stream: bool
    ) -> None:
        """Four requests, three counted retries, one answer."""
        server.script(*[Failure(429, retry_after="0")] * 3)
        if stream:
            *_, end = await collect(provider)
            assert isinstance(end, StreamEnd)
            response = end.response
        else:
            response = await provider.generate(MESSAGES)
        assert response.metadata["attempts"] == 4
        assert len(server.requests) == 4
        assert metrics.total("llm.generate.retries") == 3
        assert metrics.total("llm.generate.calls") == 1
        assert metrics.total("llm.generate.errors") == 0

    # A-068 A-073 A-134 C23
    @pytest.mark.parametrize("stream", [False, True])
    async def test_fourth_rate_limit_is_raised(
        self, server: FakeVendor, provider: BaseLLMProvider, metrics: InMemoryMetrics, stream: bool
    ) -> None:
        """Never a fifth request: the SDK adds no retries of its own."""
        server.script(*[Failure(429, retry_after="0")] * 9)
        with pytest.raises(LLMRateLimitError) as caught:
            await (collect(provider) if stream else provider.generate(MESSAGES))
        assert caught.value.retry_after_s == 0
        assert len(server.requests) == 4
        assert metrics.total("llm.generate.errors") == 1

    # C23
    @pytest.mark.parametrize("status", [408, 409, 500, 503, 529])
    async def test_transient_failures_are_retried(
        self, server: FakeVendor, provider: BaseLLMProvider, status: int
    ) -> None:
        """One more request after each of these."""
        server.script(Failure(status, retry_after="0"))
        await provider.generate(MESSAGES)
        assert len(server.requests) == 2

    # C23
    @pytest.mark.parametrize("retry_after", ["90", "3600"])
    async def test_retry_after_beyond_deadline_raises_immediately(
        self, server: FakeVendor, provider: BaseLLMProvider, retry_after: str
    ) -> None:
        """The error is raised immediately, with the time to wait."""
        server.script(Failure(429, retry_after=retry_after))
        with pytest.raises(LLMRateLimitError) as caught:
            await provider.generate(MESSAGES, deadline=Deadline.after(5))
        assert caught.value.retry_after_s == float(retry_after)
        assert len(server.requests) == 1

    # A-069 C23
    @pytest.mark.parametrize("status", [401, 403])
    @pytest.mark.parametrize("stream", [False, True])
    async def test_rejected_credentials_are_not_retried(
        self, server: FakeVendor, provider: BaseLLMProvider, status: int, stream: bool
    ) -> None:
        """One request, and the error text of the design."""
        server.script(Failure(status))
        with pytest.raises(LLMAuthenticationError, match=f"^Invalid credentials for {provider.name}$"):
            await (collect(provider) if stream else provider.generate(MESSAGES))
        assert len(server.requests) == 1

    # A-069 A-064 A-152
    async def test_api_key_is_hidden_from_errors_logs_and_repr(
        self, server: FakeVendor, caplog: pytest.LogCaptureFixture
    ) -> None:
        """A rejected key that the vendor quotes is in no error, log or health report."""
        caplog.set_level("DEBUG")
        key = "sk-secret-that-must-not-be-seen"
        health = HealthChecker()
        provider = self.make_provider(key, server.base_url, health_checker=health)
        with pytest.raises(LLMAuthenticationError) as caught:
            await provider.generate(MESSAGES)
        assert await provider.validate_credentials() is False
        (probe,) = await health.check()
        await provider.aclose()
        assert (probe.name, probe.healthy) == (f"llm.{provider.name}", False)
        seen = "".join(traceback.format_exception(caught.value)) + caplog.text + repr(probe)
        assert key not in seen + repr(provider) + repr(vars(provider)) + repr(provider.info())

    #
    @pytest.mark.parametrize("stream", [False, True])
    async def test_unresponsive_vendor_raises_timeout_after_retries(
        self, server: FakeVendor, stream: bool
    ) -> None:
        """Each attempt ends after the timeout; after the last one the design's error is raised."""
        provider = self.make_provider(server.api_key, server.base_url, retries=1, timeout_s=0.5)
        await provider.preload()  # builds the client, which may take longer than the timeout
        server.script(*[Reply(texts=(), ending="stall")] * 2)
        with pytest.raises(LLMTimeoutError, match=f"^Provider {provider.name} timed out$"):
            await (collect(provider) if stream else provider.generate(MESSAGES))
        assert len(server.requests) == 2
        await provider.aclose()

    async def test_deadline_ends_attempt_before_timeout(
        self, server: FakeVendor, provider: BaseLLMProvider
    ) -> None:
        """The attempt's timeout is 30 s, the deadline far nearer."""
        await provider.list_models()
        server.script(Reply(texts=(), ending="stall"))
        with pytest.raises(LLMTimeoutError):
            await provider.generate(MESSAGES, deadline=Deadline.after(0.5))
        assert len(server.requests) == 1

    async def test_truncated_response_is_retried(self, server: FakeVendor, provider: BaseLLMProvider) -> None:
        """Half a JSON body is not an answer."""
        server.script(Reply(ending="cut"))
        response = await provider.generate(MESSAGES)
        assert response.content == "".join(Reply().texts)
        assert len(server.requests) == 2

    # C23
    async def test_unreachable_vendor_is_retried_then_raised(self) -> None:
        """A refused connection is retried, then raised as such."""
        server = self.make_server()
        async with server:
            url = server.base_url
        metrics = InMemoryMetrics()
        provider = self.make_provider("key", url, metrics=metrics, retries=1)
        with pytest.raises(LLMError, match="could not be reached") as caught:
            await provider.generate(MESSAGES)
        assert caught.value.retryable
        assert metrics.total("llm.generate.retries") == 1
        await provider.aclose()

    @pytest.mark.parametrize("stream", [False, True])
    async def test_rejected_request_is_not_retried(
        self, server: FakeVendor, provider: BaseLLMProvider, stream: bool
    ) -> None:
        """The vendor's text is not copied."""
        server.script(Failure(400, message="prompt too long: 'the prompt itself'"))
        with pytest.raises(LLMRequestError) as caught:
            await (collect(provider) if stream else provider.generate(MESSAGES))
        assert "prompt" not in caught.value.message
        assert len(server.requests) == 1

    # Fault 11: with each vendor's own error text
    @pytest.mark.parametrize("stream", [False, True])
    @pytest.mark.parametrize("limit", [20, 1040])
    async def test_context_overflow_raises_without_retry(
        self, server: FakeVendor, provider: BaseLLMProvider, stream: bool, limit: int
    ) -> None:
        """Not retried, and distinguished from other rejections, for the prompt alone or with its answer."""
        server.script(SmallContext(limit))
        with pytest.raises(LLMContextOverflowError) as caught:
            await (collect(provider) if stream else provider.generate(MESSAGES))
        [body] = server.bodies
        figures = (caught.value.prompt_tokens, caught.value.limit_tokens)
        assert figures in ((server.count_tokens(body), limit), (None, None))
        server.script(SmallContext(9_000))
        assert (await provider.generate(MESSAGES)).content == "".join(Reply().texts)

    @pytest.mark.parametrize(
        ("finish", "expected"),
        [("stop", "stop"), ("length", "length"), ("refusal", "content_filter"), ("tool", "tool_calls")],
    )
    async def test_finish_reasons_map_to_common_values(
        self, server: FakeVendor, provider: BaseLLMProvider, finish: Any, expected: str
    ) -> None:
        """Our own error text, the same for both kinds of call."""
        server.script(Reply(finish=finish), Reply(finish=finish))
        response = await provider.generate(MESSAGES)
        *_, end = await collect(provider)
        assert isinstance(end, StreamEnd)
        assert response.metadata["finish_reason"] == end.response.metadata["finish_reason"] == expected
        assert response.content == end.response.content == "".join(Reply().texts)

    #
    async def test_empty_choices_return_empty_content(
        self, server: FakeVendor, provider: BaseLLMProvider
    ) -> None:
        """An answer without choices is empty; a chunk without choices is skipped."""
        server.script(Reply(without_choices=True), Reply(without_choices=True))
        assert (await provider.generate(MESSAGES)).content == ""
        *_, end = await collect(provider)
        assert isinstance(end, StreamEnd)
        assert end.response.content == "".join(Reply().texts)

    async def test_missing_usage_is_estimated_and_marked(
        self, server: FakeVendor, provider: BaseLLMProvider
    ) -> None:
        """The answer is marked as such."""
        server.script(Reply(usage=None))
        response = await provider.generate(MESSAGES)
        assert response.completion_tokens > 0
        assert response.metadata["usage_estimated"] is True

    async def test_connection_is_reused(self, server: FakeVendor, provider: BaseLLMProvider) -> None:
        """Also after a stream."""
        await collect(provider)
        await collect(provider)
        await provider.generate(MESSAGES)
        assert {request.connection for request in server.requests} == {0}

    def test_each_event_loop_has_own_client(self) -> None:
        """A provider outlives ``asyncio.run``."""

        async def address() -> str:
            async with self.make_server() as server:
                return server.base_url

        url = asyncio.run(address())
        provider = self.make_provider("key", url)

        async def ask() -> str:
            async with self.make_server(api_key="key", port=urlsplit(url).port):
                try:
                    return (await provider.generate(MESSAGES)).content
                finally:
                    await provider.aclose()

        assert asyncio.run(ask()) == asyncio.run(ask()) == "".join(Reply().texts)

    # C12 C38
    async def test_rejected_temperature_is_dropped_once_known(self, metrics: InMemoryMetrics) -> None:
        """After one rejection requests omit the parameter, and answers report it, without using a retry."""
        async with self.make_server(refused={"temperature": "`temperature` is not supported"}) as server:
            provider = self.make_provider(server.api_key, server.base_url, metrics=metrics)
            first = await provider.generate(MESSAGES)
            second = await provider.generate(MESSAGES)
            *_, end = await collect(provider)
            await provider.generate(MESSAGES, LLMRequestConfig(model="another", temperature=None))
            await provider.aclose()
        assert ["temperature" in server.sampling(body) for body in server.bodies] == [
            True,
            False,
            False,
            False,
            False,
        ]
        assert isinstance(end, StreamEnd)
        for response in (first, second, end.response):
            assert response.metadata["dropped_parameters"] == ["temperature"]
            assert response.metadata["attempts"] == 1
        assert metrics.total("llm.generate.retries") == 0
