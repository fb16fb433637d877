"""Contract for the ends of a vendor's stream: complete, or with an error."""

import asyncio
from contextlib import aclosing
from typing import Any

import pytest

from tests.contract.suites.llm import ALWAYS, MESSAGES, STREAM, collect, measured_once, said
from tests.contract.suites.llm_vendor import LLMVendorContract
from tests.support.vendors.fake_vendor import FakeVendor, Reply
from vectorforge.deadline import Deadline
from vectorforge.errors import LLMError, LLMStreamError, LLMTimeoutError
from vectorforge.llm.base import BaseLLMProvider
from vectorforge.llm.types import LLMStreamEvent, StreamEnd
from vectorforge.telemetry import InMemoryMetrics


class LLMStreamContract(LLMVendorContract):
    """Everything of ``LLMVendorContract``, and streams that break."""

    async def test_pings_do_not_prevent_token_gap_timeout(self, server: FakeVendor) -> None:
        """A stream that only pings after its first texts ends with a timeout and is not retried."""
        provider = self.make_provider(server.api_key, server.base_url, timeout_s=30.0, token_gap_s=1.0)
        await provider.preload()
        server.script(Reply(ending="stall"))
        seen: list[LLMStreamEvent] = []
        with pytest.raises(LLMTimeoutError) as caught:
            await collect(provider, into=seen)
        assert said(seen) == "".join(Reply().texts)
        assert caught.value.retryable is False
        assert len(server.requests) == 1
        await asyncio.wait_for(server.requests[0].client_closed.wait(), 20)
        await provider.aclose()

    async def test_deadline_ends_flowing_stream(self, server: FakeVendor, provider: BaseLLMProvider) -> None:
        """Continuing texts do not extend the deadline."""
        await collect(provider)  # loads the SDK, which may take longer than the deadline
        server.script(Reply(texts=("x",) * 100, pause_s=0.05))
        with pytest.raises(LLMTimeoutError):
            await collect(provider, deadline=Deadline.after(1))
        assert len(server.requests) == 2

    # A-072 A-134 C26
    @pytest.mark.parametrize(
        ("ending", "error"), [("eof", LLMStreamError), ("cut", LLMStreamError), ("error", LLMError)]
    )
    async def test_broken_stream_raises_and_is_not_retried(
        self,
        server: FakeVendor,
        provider: BaseLLMProvider,
        metrics: InMemoryMetrics,
        ending: Any,
        error: type[LLMError],
    ) -> None:
        """Both SDKs report the first of these as a complete answer. None is retried."""
        server.script(Reply(ending=ending))
        seen: list[LLMStreamEvent] = []
        with pytest.raises(error) as caught:
            await collect(provider, into=seen)
        assert said(seen) == "".join(Reply().texts)
        assert caught.value.retryable is False
        assert len(server.requests) == 1
        measured_once(metrics, ALWAYS | STREAM | {"llm.generate.errors"})

    # C23
    @pytest.mark.parametrize("ending", ["eof", "cut", "error"])
    async def test_stream_broken_before_first_text_is_retried(
        self, server: FakeVendor, provider: BaseLLMProvider, ending: Any
    ) -> None:
        """Before the first text, the request is retried."""
        server.script(Reply(texts=(), ending=ending))
        *_, end = await collect(provider)
        assert isinstance(end, StreamEnd)
        assert end.response.metadata["attempts"] == 2
        assert len(server.requests) == 2

    async def test_disconnect_closes_vendor_connection(
        self, server: FakeVendor, provider: BaseLLMProvider
    ) -> None:
        """A disconnect stops the generation."""
        server.script(Reply(texts=("x",) * 10_000, pause_s=0.01))
        async with aclosing(provider.generate_stream(MESSAGES)) as texts:
            assert set(await anext(texts)) == {"x"}  # texts that arrive together are one
        await asyncio.wait_for(server.requests[0].client_closed.wait(), 20)
