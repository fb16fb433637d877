"""Input and output of language models, and the checks on the input."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, Literal, TypeAlias, TypedDict

from vectorforge.deadline import Deadline, off_event_loop
from vectorforge.errors import InvalidInputError
from vectorforge.health import HealthChecker
from vectorforge.llm.tools import ToolCall, ToolCallDelta, ToolChoice, ToolDefinition, join_tool_calls
from vectorforge.telemetry import MetricsCollector

_MAX_COUNT: Final = 2**31 - 1
_ROLES: Final = ("system", "user", "assistant", "tool")

Message: TypeAlias = Mapping[str, Any]
"""``{"role": "system" | "user" | "assistant" | "tool", "content": text}``; of the assistant also
``tool_calls``, a sequence of ``ToolCall``; of a tool ``tool_call_id``, the id of the call that it answers."""


class ProviderCapability(StrEnum):
    """Capability of a provider."""

    GENERATE = "generate"
    STREAM = "stream"
    LIST_MODELS = "list_models"
    EXTRACTIVE = "extractive"
    """Quotes the given chunks; no model generates text."""


MODEL_CAPABILITIES: Final = frozenset(ProviderCapability) - {ProviderCapability.EXTRACTIVE}


class ProviderOptions(TypedDict, total=False):
    """Options of every provider."""

    metrics: MetricsCollector | None
    """Receives the measurements; in memory by default."""
    health_checker: HealthChecker | None
    """Receives the probe ``llm.<name>``."""
    retries: int
    """Attempts after the first, 0 or more; default: 3."""
    timeout_s: float
    """Time limit of one attempt, for a complete answer or a stream's first token; default: 60."""
    token_gap_s: float
    """Time limit between two texts of a stream, at most ``timeout_s``; default: 10."""


@dataclass(frozen=True, slots=True)
class ProviderInfo:
    """Public description of a provider; holds no secret."""

    name: str
    default_model: str
    capabilities: frozenset[ProviderCapability]
    is_default: bool = False


@dataclass(frozen=True, slots=True)
class LLMRequestConfig:
    """Sampling of one call. ``None`` is left out of the request, so the vendor's default applies."""

    model: str
    temperature: float | None = 0.7
    max_tokens: int = 1024
    top_p: float | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    stop_sequences: Sequence[str] = ()
    response_schema: Mapping[str, Any] | None = None
    """JSON Schema of the object that the whole answer must be: every property required, no others allowed.
    Best effort on models without structured outputs; the text may then be anything."""
    schema_name: str = "answer"
    strict_schema: bool = True
    """False: the schema may be outside of the vendor's subset, which then guarantees nothing."""
    is_callers_schema: bool = False
    """True: a refusal of the schema says nothing about other requests to the model."""
    json_object: bool = False
    """The whole answer must be a JSON object of any form."""
    shared_messages: int = 0
    """Messages at the beginning that further calls will repeat, for vendors that cache prompts on demand
    only; others cache them unasked, or not at all."""
    tools: Sequence[ToolDefinition] = ()
    tool_choice: ToolChoice = "auto"
    parallel_tool_calls: bool | None = None
    """False: at most one call in an answer."""


@dataclass(frozen=True, slots=True)
class GroundingSource:
    """A chunk that the answer may quote; the prompt holds the same chunk as text."""

    number: int
    """Number in the label, from 1."""
    label: str
    """Label as rendered in the prompt, e.g. "[Source 1]"."""
    text: str
    score: float
    title: str | None = None
    relevance: float | None = None
    """Ranking value of a hybrid or lexical search or of a reranker; None: ranked by ``score``."""
    heading: str | None = None
    """Path of the headings above it: "Install > Linux"."""
    headings: Sequence[tuple[int, str]] = ()
    """Heading paths within the text, with the offset where each begins; empty if unknown."""


@dataclass(frozen=True, slots=True)
class LLMResponse:
    """A complete answer."""

    content: str
    model: str
    provider: str
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    latency_ms: float
    tool_calls: Sequence[ToolCall] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """finish_reason (``FinishReason``), attempts, dropped_parameters (names that the model refused and the
    request left out), usage_estimated (the vendor reported no token counts)."""


@dataclass(frozen=True, slots=True)
class TextDelta:
    """A piece of a streamed answer; never empty."""

    text: str


@dataclass(frozen=True, slots=True)
class StreamEnd:
    """Last event of a streamed answer."""

    response: LLMResponse
    """The complete answer: ``content`` is all deltas joined."""


AnswerPart: TypeAlias = str | ToolCallDelta
LLMStreamEvent: TypeAlias = TextDelta | ToolCallDelta | StreamEnd


FinishReason: TypeAlias = Literal["stop", "length", "content_filter", "tool_calls", "other"]
"""Reason for the end of an answer; vendors' own values are mapped to these."""


@dataclass(slots=True)
class ProviderCall:
    """Validated input of one request and its attempts, with every default filled in."""

    provider: str
    messages: Sequence[Message]
    config: LLMRequestConfig
    sources: Sequence[GroundingSource]
    timeout_s: float
    """Time limit of this attempt (in a stream: until the first text), enforced by the base class."""
    deadline: Deadline
    """Time limit of all attempts."""
    attempts: int = 0
    """Attempts started so far."""

    @property
    def tags(self) -> Mapping[str, str]:
        """Tags of all measurements of this request."""
        return {"provider": self.provider, "model": self.config.model}


@dataclass(frozen=True, slots=True)
class Completion:
    """A provider's report on a finished answer. Invalid token counts are treated as missing.

    Raises:
        TypeError: The text or the model's name is not a string.
    """

    model: str
    finish_reason: FinishReason
    content: str = ""
    """The whole answer; empty at the end of a stream."""
    prompt_tokens: int | None = None
    """None: not reported by the vendor; estimated instead."""
    completion_tokens: int | None = None
    tool_calls: Sequence[ToolCall] = ()
    """Calls in a whole answer; empty at the end of a stream."""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """Copied to ``LLMResponse.metadata``, e.g. ``dropped_parameters``."""

    def __post_init__(self) -> None:
        for name in ("content", "model"):
            if not isinstance(getattr(self, name), str):
                raise TypeError(f"{name} is not a string")
        for name in ("prompt_tokens", "completion_tokens"):
            if not _is_count(getattr(self, name)):
                object.__setattr__(self, name, None)


def _is_count(value: object) -> bool:
    """Reject other JSON values, and numbers beyond the 32 bits of the query log's columns."""
    return type(value) is int and 0 <= value <= _MAX_COUNT


async def response_of(
    call: ProviderCall,
    completion: Completion,
    parts: Sequence[AnswerPart],
    latency_ms: float,
    estimate: Callable[[str, str], int],
) -> LLMResponse:
    """Return the finished answer.

    Args:
        call: The request.
        completion: The provider's report.
        parts: Texts, and pieces of the tool calls of a stream.
        latency_ms: Time since the request, retries included.
        estimate: Counts the tokens of a text for a model, where the vendor omitted the counts.
    """
    content = "".join([part for part in parts if isinstance(part, str)])
    calls = [part for part in parts if not isinstance(part, str)]
    sent, received = completion.prompt_tokens, completion.completion_tokens
    metadata = {"finish_reason": completion.finish_reason, "attempts": call.attempts}
    if sent is None or received is None:
        texts = ("\n".join(message["content"] for message in call.messages), content)
        sent, received = await off_event_loop(
            sum(map(len, texts)), lambda: [estimate(text, completion.model) for text in texts]
        )
        metadata["usage_estimated"] = True
    return LLMResponse(
        content=content,
        model=completion.model,
        provider=call.provider,
        prompt_tokens=sent,
        completion_tokens=received,
        total_tokens=sent + received,
        latency_ms=latency_ms,
        tool_calls=join_tool_calls(calls) if calls else completion.tool_calls,
        metadata={**metadata, **completion.metadata},
    )


def check_messages(messages: Sequence[Message]) -> None:
    """Raise ``InvalidInputError`` unless there is a message and each has a valid role and a text."""
    if not messages:
        raise InvalidInputError("messages must hold at least one message.", field="messages")
    for index, message in enumerate(messages):
        if message.get("role") not in _ROLES:
            name = f"messages[{index}].role"
            raise InvalidInputError(f"{name} must be one of {', '.join(_ROLES)}.", field=name)
        if not isinstance(message.get("content"), str):
            name = f"messages[{index}].content"
            raise InvalidInputError(f"{name} must be a text.", field=name)


def check_sampling(config: LLMRequestConfig, provider: str, max_temperature: float) -> None:
    """Raise ``InvalidInputError`` naming the first value outside the provider's range.

    Args:
        config: Optional fields that are None are not sent and not checked.
        provider: Name shown in the error.
        max_temperature: Highest temperature of the provider, from 0.

    Ranges: https://platform.openai.com/docs/api-reference/chat/create; Anthropic's temperature ends at 1.
    """
    if not config.model:
        raise InvalidInputError("model must not be empty.", field="model")
    if config.max_tokens < 1:
        raise InvalidInputError("max_tokens must be at least 1.", field="max_tokens")
    ranges = {
        "temperature": (config.temperature, 0.0, max_temperature),
        "top_p": (config.top_p, 0.0, 1.0),
        "frequency_penalty": (config.frequency_penalty, -2.0, 2.0),
        "presence_penalty": (config.presence_penalty, -2.0, 2.0),
    }
    for name, (value, low, high) in ranges.items():
        if value is not None and not low <= value <= high:
            raise InvalidInputError(f"{name} must be from {low:g} to {high:g} for {provider}.", field=name)
