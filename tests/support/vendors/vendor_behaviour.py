"""Scripted reactions of a fake vendor: a reply, an error, or a context overflow."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

FinishWord: TypeAlias = Literal["stop", "length", "refusal", "tool"]


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A tool call of a model."""

    name: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer with status 200."""

    texts: tuple[str, ...] = ("The answer", " is ", "42 [Source 1].")
    """Pieces of the text, one event each in a stream."""
    finish: FinishWord = "stop"
    """Finish reason; each fake translates it into its vendor's term."""
    tool_calls: tuple[ToolCall, ...] = ()
    """Calls after the texts; ``finish`` should be "tool" then."""
    usage: tuple[int, int] | None = (11, 7)
    """Prompt and completion tokens, or None if the vendor does not report them."""
    ending: Literal["complete", "eof", "cut", "stall", "error"] = "complete"
    """Ending after the last text: regular; the body ends without the vendor's last event; the connection
    breaks within an event; endless pings; an error event."""
    without_choices: bool = False
    """True for an empty list in place of the answer."""
    pause_s: float = 0.0
    """Seconds before each text."""
    gate: Callable[[int], Awaitable[None]] | None = None
    """Awaited in a stream before text n, from 0, and before its ending with the number of texts, so that a
    test decides when the stream continues."""


@dataclass(frozen=True, slots=True)
class Failure:
    """An answer with an error status."""

    status: int
    retry_after: str | None = None
    message: str = "scripted failure"


@dataclass(frozen=True, slots=True)
class SmallContext:
    """A model with a small context: longer requests are rejected with the vendor's error."""

    tokens: int
    """Maximum tokens of prompt and longest answer together, as counted by ``FakeVendor.count_tokens``."""
    reply: Reply = Reply()
    """Reply to a request that fits."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """A vendor's error for a rejected request."""

    message: str
    param: str | None = None
    code: str | None = None


Behaviour: TypeAlias = Reply | Failure | SmallContext
