"""One scripted answer on the wire: played from the start, or from the middle for a reader that comes back."""

import asyncio
import json
from dataclasses import dataclass, field

from aiohttp import web

from tests.browser.answer_script import Cut, Hold, Raw, Send, Step


@dataclass
class PlayedAnswer:
    """A script and what has become of it. The id of an event is its step's place, from 1."""

    steps: list[Step]
    stopped: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when somebody wants the answer to end."""

    @property
    def query_id(self) -> str | None:
        """The id in ``meta``; None when there is no such event."""
        for step in self.steps:
            if isinstance(step, Send) and step.event == "meta":
                return str(step.data["request_id"])
        return None

    async def play(self, after: int, response: web.StreamResponse, request: web.Request) -> None:
        """Send what follows this event id. A cut, or a wait that is over, happens once."""
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
                await asyncio.sleep(0.1)  # a reset throws away what the client has not read yet
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
