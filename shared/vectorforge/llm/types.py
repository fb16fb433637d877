"""What goes into a language model and what comes out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, TypeAlias

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
    """finish_reason (stop | length | content_filter | other), attempts, dropped_parameters."""


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
