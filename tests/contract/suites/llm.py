"""Contract of every LLM provider. Inherit it in a test module that creates the provider."""

from collections.abc import Sequence
from contextlib import aclosing
from typing import Any

import pytest

from vectorforge.deadline import Deadline
from vectorforge.errors import DeadlineExceededError, InvalidInputError
from vectorforge.llm.base import BaseLLMProvider
from vectorforge.llm.types import GroundingSource, LLMStreamEvent, StreamEnd, TextDelta
from vectorforge.telemetry import InMemoryMetrics

MESSAGES = [
    {"role": "system", "content": "Answer from the context.\n\n[Source 1]\nThe answer is 42."},
    {"role": "user", "content": "What is the answer?"},
]
SOURCES = [GroundingSource(1, "[Source 1]", "The answer is 42. It took a while.", 0.9, "The Guide")]
ALWAYS = {"llm.generate.calls", "llm.generate.duration_ms"}
TOKENS = {"llm.tokens_input", "llm.tokens_output"}
STREAM = {"llm.streaming.chunks", "llm.streaming.first_token_ms"}


async def collect(
    provider: BaseLLMProvider, *, into: list[LLMStreamEvent] | None = None, **kwargs: Any
) -> list[LLMStreamEvent]:
    """Return all events of a streamed answer to ``MESSAGES``; events before an error are in ``into``."""
    events = [] if into is None else into
    async for event in provider.stream_events(MESSAGES, sources=SOURCES, **kwargs):
        events.append(event)  # retained even if the next one raises
    return events


def said(events: Sequence[LLMStreamEvent]) -> str:
    """Return the text of events that are all texts, some of which may be joined."""
    assert all(isinstance(event, TextDelta) for event in events)
    return "".join(event.text for event in events if isinstance(event, TextDelta))


def measured_once(metrics: InMemoryMetrics, names: set[str]) -> None:
    """Assert that exactly these metrics were emitted, once each, with provider and model."""
    assert {name: series.count for name, _, series in metrics.items()} == dict.fromkeys(names, 1)
    for _, tags, _ in metrics.items():
        assert set(tags) - {"error_type"} == {"provider", "model"}


class LLMProviderContract:
    """Applies to every provider. The fixture ``provider`` measures into ``metrics``."""

    @pytest.fixture
    def metrics(self) -> InMemoryMetrics:
        """Return the provider's metrics."""
        return InMemoryMetrics()

    # A-059 A-062 A-067 A-071 A-074
    async def test_generate_returns_complete_response(self, provider: BaseLLMProvider) -> None:
        """Every field of the answer is set and consistent."""
        response = await provider.generate(MESSAGES, sources=SOURCES)
        assert response.content
        assert response.provider == provider.name == provider.provider_name()
        assert response.total_tokens == response.prompt_tokens + response.completion_tokens
        assert response.latency_ms > 0
        assert response.metadata["finish_reason"] == "stop"
        assert response.metadata["attempts"] == 1

    # A-063 A-072 A-156
    async def test_stream_emits_deltas_then_one_end(self, provider: BaseLLMProvider) -> None:
        """The final event has the streamed text, and the token counts."""
        *deltas, end = await collect(provider)
        assert isinstance(end, StreamEnd)
        assert all(isinstance(delta, TextDelta) and delta.text for delta in deltas)
        assert "".join(d.text for d in deltas if isinstance(d, TextDelta)) == end.response.content
        assert end.response.total_tokens > 0
        assert end.response.metadata["finish_reason"] == "stop"

    #
    async def test_streamed_text_equals_generated_text(self, provider: BaseLLMProvider) -> None:
        """``generate_stream`` yields the text that ``generate`` returns."""
        whole = await provider.generate(MESSAGES, sources=SOURCES)
        texts = [text async for text in provider.generate_stream(MESSAGES, sources=SOURCES)]
        assert "".join(texts) == whole.content

    # A-132 A-133 A-136 A-137 A-144 C26
    async def test_generate_is_measured_once(
        self, provider: BaseLLMProvider, metrics: InMemoryMetrics
    ) -> None:
        """Each metric of a whole answer, exactly once."""
        response = await provider.generate(MESSAGES, sources=SOURCES)
        measured_once(metrics, ALWAYS | TOKENS)
        assert metrics.total("llm.tokens_input") == response.prompt_tokens
        assert metrics.total("llm.tokens_output") == response.completion_tokens

    # A-138 A-139 C26
    async def test_stream_is_measured_once(self, provider: BaseLLMProvider, metrics: InMemoryMetrics) -> None:
        """Each metric of a stream, exactly once; chunks are counted one by one."""
        *deltas, _ = await collect(provider)
        measured_once(metrics, ALWAYS | TOKENS | STREAM)
        assert metrics.total("llm.streaming.chunks") == len(deltas)

    async def test_disconnected_stream_counts_as_call_not_error(
        self, provider: BaseLLMProvider, metrics: InMemoryMetrics
    ) -> None:
        """A stream closed after its first text was a call, but not an error."""
        async with aclosing(provider.stream_events(MESSAGES, sources=SOURCES)) as events:
            assert isinstance(await anext(events), TextDelta)
        measured_once(metrics, ALWAYS | STREAM)

    async def test_expired_deadline_raises_before_request(self, provider: BaseLLMProvider) -> None:
        """A deadline that has passed."""
        with pytest.raises(DeadlineExceededError):
            await provider.generate(MESSAGES, sources=SOURCES, deadline=Deadline.after(-1))
        with pytest.raises(DeadlineExceededError):
            await collect(provider, deadline=Deadline.after(-1))

    @pytest.mark.parametrize(
        ("messages", "field"),
        [
            ([], "messages"),
            ([{"role": "wizard", "content": "x"}], "messages[0].role"),
            ([{"role": "user"}], "messages[0].content"),
        ],
    )
    async def test_invalid_messages_are_rejected_by_field(
        self, provider: BaseLLMProvider, messages: list[dict[str, str]], field: str
    ) -> None:
        """The error names the field."""
        with pytest.raises(InvalidInputError) as caught:
            await provider.generate(messages, sources=SOURCES)
        assert caught.value.field == field

    # A-060 A-061 A-066
    async def test_info_describes_provider(self, provider: BaseLLMProvider) -> None:
        """Name, default model and capabilities."""
        info = provider.info(is_default=True)
        assert (info.name, info.default_model, info.is_default) == (
            provider.name,
            provider.default_model,
            True,
        )
        assert info.capabilities == provider.capabilities

    # A-064 A-065
    async def test_list_models_returns_models_with_valid_credentials(self, provider: BaseLLMProvider) -> None:
        """Models are named; the credentials are good."""
        assert await provider.list_models()
        assert await provider.validate_credentials() is True

    # A-151 A-152
    async def test_health_probe_is_healthy(self, provider: BaseLLMProvider) -> None:
        """The health probe of every provider returns its state."""
        health = await provider._health_probe()
        assert (health.name, health.healthy) == (f"llm.{provider.name}", True)
