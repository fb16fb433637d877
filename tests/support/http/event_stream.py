"""Reads and checks server-sent events as a client of the API sees them."""

import json
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any


@dataclass(frozen=True, slots=True)
class ReceivedEvent:
    """One event; ``name`` is "comment" for a keep-alive."""

    name: str
    data: Any
    id: str | None = None


async def read_events(lines: AsyncIterator[str]) -> AsyncIterator[ReceivedEvent]:
    """Parse a stream's lines: fields until a blank line; comments start with a colon."""
    fields: dict[str, str] = {}
    async for line in lines:
        if line.startswith(":"):
            yield ReceivedEvent("comment", line[1:].strip())
        elif line:
            field, _, value = line.partition(":")
            value = value.removeprefix(" ")
            fields[field] = f"{fields[field]}\n{value}" if field in fields else value
        elif "data" in fields:
            yield ReceivedEvent(fields.get("event", "message"), json.loads(fields["data"]), fields.get("id"))
            fields = {}
        else:  # a block without data is not an event, such as a lone ``retry``
            fields = {}


def check_order(events: Sequence[ReceivedEvent]) -> None:
    """Check a complete stream against the order that the API guarantees.

    Raises:
        AssertionError: Anything else than meta, (plan | search)*, sources, degraded*, (token | citation)*,
            usage, done, with an ``error`` that may end it anywhere after ``sources``; ids that do not count
            1, 2, 3; a citation whose label has not been sent.
    """
    sent = [event for event in events if event.name != "comment"]
    names = [event.name for event in sent]
    steps = len(list(takewhile({"plan", "search"}.__contains__, names[1:])))
    names = names[:1] + names[1 + steps :]
    if [event.id for event in sent] != [str(number) for number in range(1, len(sent) + 1)]:
        raise AssertionError(f"ids do not count from 1: {[event.id for event in sent]}")
    if names[:2] != ["meta", "sources"] or names[-1] not in ("done", "error"):
        raise AssertionError(f"wrong first or last event: {names}")
    middle = names[2:-1]
    while middle and middle[0] == "degraded":
        middle = middle[1:]
    if middle and middle[-1] == "usage":
        middle = middle[:-1]
    elif names[-1] == "done":
        raise AssertionError(f"no usage before done: {names}")
    if not set(middle) <= {"token", "citation"}:
        raise AssertionError(f"wrong order: {names}")
    text = ""
    for event in sent:
        text += event.data["text"] if event.name == "token" else ""
        if event.name == "citation" and event.data["end"] > len(text):
            raise AssertionError(f"a citation of text that has not been sent: {event.data}")
