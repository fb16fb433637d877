"""What a vendor's fake does with a request: answers, fails, or finds it too long."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

FinishWord: TypeAlias = Literal["stop", "length", "refusal", "tool"]


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call of a tool that a model wants made."""

    name: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer with status 200."""

    texts: tuple[str, ...] = ("The answer", " is ", "42 [Source 1].")
    """Its pieces; one event each in a stream."""
    finish: FinishWord = "stop"
    """Why it ends; each fake has its vendor's word for it."""
    tool_calls: tuple[ToolCall, ...] = ()
    """Calls after the texts; ``finish`` should be "tool" then."""
    usage: tuple[int, int] | None = (11, 7)
    """Prompt and completion tokens; None: the vendor does not say."""
    ending: Literal["complete", "eof", "cut", "stall", "error"] = "complete"
    """What happens after the last text: all is well; the body ends in good order, but without the vendor's
    last event; the connection breaks within an event; nothing but pings, for ever; an error event."""
    without_choices: bool = False
    """Whether the list that should hold the answer is empty."""
    pause_s: float = 0.0
    """Before each text."""
    gate: Callable[[int], Awaitable[None]] | None = None
    """Awaited in a stream before text n, from 0, and before its ending with the number of texts: so a test
    decides when the stream goes on."""


@dataclass(frozen=True, slots=True)
class Failure:
    """An answer with an error status."""

    status: int
    retry_after: str | None = None
    message: str = "scripted failure"


@dataclass(frozen=True, slots=True)
class SmallContext:
    """A model whose context is small: what is longer is refused in the vendor's own words."""

    tokens: int
    """Of prompt and longest answer together, as ``FakeVendor.count_tokens`` counts."""
    reply: Reply = Reply()
    """To a request that fits."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """A vendor's words for a request that it does not take."""

    message: str
    param: str | None = None
    code: str | None = None


Behaviour: TypeAlias = Reply | Failure | SmallContext
