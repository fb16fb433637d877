"""Scripts of the scripted server's answers, step by step, so that a test controls when each byte is sent."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias
from uuid import uuid4

Json: TypeAlias = dict[str, Any]


@dataclass(frozen=True)
class Send:
    """One server-sent event."""

    event: str
    data: Any


@dataclass(frozen=True)
class Raw:
    """Bytes sent unchanged."""

    content: bytes


@dataclass(frozen=True)
class Hold:
    """Sending stops until the test sets the event."""

    until: asyncio.Event


@dataclass(frozen=True)
class Cut:
    """The connection is reset in the middle of the body."""


@dataclass(frozen=True)
class Refuse:
    """A problem document instead of a stream; must be the first step."""

    status: int
    detail: str


Step: TypeAlias = Send | Raw | Hold | Cut | Refuse


def source(number: int, document: Json, start: int, end: int, **changes: Any) -> Json:
    """Return a source as the API sends it; offsets count code points, as in Python."""
    return {
        "number": number,
        "document_source": document["source"],
        "title": document["title"],
        "heading": None,
        "chunk_id": str(uuid4()),
        "document_id": document["id"],
        "chunk_index": number - 1,
        "score": round(0.9 - number / 10, 4),
        "snippet": document["text"][start:end][:200],
        "truncated": end - start > 200,
        "start_offset": start,
        "end_offset": end,
        "text": document["text"][start:end],
    } | changes


FUNNEL: Json = {
    "matched": 340,
    "matched_is_at_least": False,
    "candidates": 10,
    "below_min_score": 2,
    "dropped_by_budget": 1,
    "used": 7,
    "cited": 1,
}


def citation(text: str, label: str, number: int, verdict: str, occurrence: int = 1) -> Send:
    """Return the event for a label in the answer; offsets count code points."""
    start = -1
    for _ in range(occurrence):
        start = text.index(label, start + 1)
    place = {"source_number": number, "start": start, "end": start + len(label)}
    return Send("citation", {**place, "chunk_id": str(uuid4()), "document_id": "d", "verdict": verdict})


def answer(
    *texts: str | Step,
    sources: Sequence[Json] = (),
    extractive: bool = False,
    finish_reason: str = "stop",
    **done: Any,
) -> list[Step]:
    """Return the script of a whole answer: meta, sources, texts as tokens (or steps), usage, done.

    ``done`` changes fields of the last event.
    """
    meta = {"request_id": str(uuid4()), "collection_id": "c1", "provider": "fake", "model": "fake-1"}
    tokens: list[Step] = [Send("token", {"text": t}) if isinstance(t, str) else t for t in texts]
    latency = {
        "retrieval_ms": 12.4,
        "context_ms": 0.3,
        "generation_ms": 900.0,
        "total_ms": 913.0,
        "first_token_ms": 412.4,
    }
    return [
        Send("meta", meta | {"extractive": extractive, "query_truncated": False}),
        Send("sources", {"sources": list(sources), "retrieval_ms": 12.4}),
        *tokens,
        Send("usage", {"prompt_tokens": 812, "completion_tokens": 96, "total_tokens": 908}),
        Send(
            "done",
            {
                "finish_reason": finish_reason,
                "outcome": "answered",
                "answer": "".join(t for t in texts if isinstance(t, str)),
                "invalid_citations": 0,
                "latency": latency,
                "funnel": FUNNEL,
                "cost_usd": 0.00123,
                "cached": False,
            }
            | done,
        ),
    ]
