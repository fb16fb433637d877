"""What goes into a language model and what comes out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, Literal, TypeAlias

_MOST_TOKENS: Final = 2**31 - 1

Message: TypeAlias = Mapping[str, str]
"""``{"role": "system" | "user" | "assistant", "content": text}``"""


class ProviderCapability(StrEnum):
    """What a provider can do."""

    GENERATE = "generate"
    STREAM = "stream"
    LIST_MODELS = "list_models"
    EXTRACTIVE = "extractive"
    """Quotes the given sources; no model writes."""


@dataclass(frozen=True, slots=True)
class ProviderInfo:
    """A provider, described for a person choosing one. Holds no secret."""

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
    """JSON Schema of an object that the whole answer shall be, every property required and no others allowed.
    Models that cannot promise it get as close as they can; the text may then be anything."""


@dataclass(frozen=True, slots=True)
class GroundingSource:
    """A passage the answer may quote, as data beside the prompt that holds it as text."""

    number: int
    """The N of its label, from 1."""
    label: str
    """The label as the prompt spells it, e.g. "[Source 1]"."""
    text: str
    score: float
    title: str | None = None
    relevance: float | None = None
    """What a hybrid or lexical search, or a reranker, ranked it by; None: by score."""


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
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """finish_reason (``FinishReason``), attempts, dropped_parameters (names that the model refused and the
    request went without), usage_estimated (the vendor gave no token counts)."""


@dataclass(frozen=True, slots=True)
class TextDelta:
    """A piece of a streamed answer; never empty."""

    text: str


@dataclass(frozen=True, slots=True)
class StreamEnd:
    """Last event of a streamed answer."""

    response: LLMResponse
    """The whole: ``content`` is all deltas joined."""


LLMStreamEvent: TypeAlias = TextDelta | StreamEnd


FinishReason: TypeAlias = Literal["stop", "length", "content_filter", "other"]
"""Why an answer ended; every vendor's own words are mapped to these."""


@dataclass(frozen=True, slots=True)
class ProviderCall:
    """One attempt as a provider gets it: checked, with every default filled in."""

    messages: Sequence[Message]
    config: LLMRequestConfig
    sources: Sequence[GroundingSource]
    timeout_s: float
    """Time of this attempt (in a stream: until the first text). The base class ends the attempt then."""


@dataclass(frozen=True, slots=True)
class Completion:
    """What a provider says about a finished answer. Numbers that count no tokens are as if not said.

    Raises:
        TypeError: The text or the model's name is no text, so that the answer cannot be used.
    """

    model: str
    finish_reason: FinishReason
    content: str = ""
    """The whole answer; empty at the end of a stream, whose texts went before."""
    prompt_tokens: int | None = None
    """None: the vendor did not say, and the number is estimated."""
    completion_tokens: int | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """Goes into ``LLMResponse.metadata``, e.g. ``dropped_parameters``."""

    def __post_init__(self) -> None:
        for name in ("content", "model"):
            if not isinstance(getattr(self, name), str):
                raise TypeError(f"{name} is no text")
        for name in ("prompt_tokens", "completion_tokens"):
            if not _is_count(getattr(self, name)):
                object.__setattr__(self, name, None)


def _is_count(value: object) -> bool:
    """JSON of a vendor may hold anything in its place; the log's columns take 32 bits."""
    return type(value) is int and 0 <= value <= _MOST_TOKENS
