"""One scripted answer on the wire: played from the start, or from the middle for a returning reader."""

import asyncio
import json
from dataclasses import dataclass, field

from aiohttp import web

from tests.browser.answer_script import Cut, Hold, Raw, Send, Step

_READING_S = 0.4
"""Time in which a client reads what was sent: a reset drops unread data."""


@dataclass
class PlayedAnswer:
    """A script and its progress. The id of an event is its step's position, from 1."""

    steps: list[Step]
    stopped: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when a client stops the answer."""

    @property
    def query_id(self) -> str | None:
        """Return the id in ``meta``, or None without such an event."""
        for step in self.steps:
            if isinstance(step, Send) and step.event == "meta":
                return str(step.data["request_id"])
        return None

    async def play(self, after: int, response: web.StreamResponse, request: web.Request) -> None:
        """Send the events after this id. A cut, or a finished wait, happens once."""
        for number, step in enumerate(self.steps[after:], start=after + 1):
            if self.stopped.is_set():
                break
            if isinstance(step, Send):
                data = json.dumps(step.data, ensure_ascii=False)
                await response.write(f"id: {number}\nevent: {step.event}\ndata: {data}\n\n".encode())
            elif isinstance(step, Raw):
                await response.write(step.content)
            elif isinstance(step, Hold):
                await self._wait(step.until)
            elif isinstance(step, Cut) and request.transport is not None:
                self.steps[number - 1] = Raw(b"")
                await asyncio.sleep(_READING_S)
                request.transport.abort()
                return
        if self.stopped.is_set():
            data = json.dumps({"finish_reason": "stopped", "outcome": "aborted"})
            await response.write(f"id: 999\nevent: done\ndata: {data}\n\n".encode())

    async def _wait(self, until: asyncio.Event) -> None:
        waits = [asyncio.create_task(event.wait()) for event in (until, self.stopped)]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
