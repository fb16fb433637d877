"""Points and ways of stopping and killing the query function from outside its process."""

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from infra.emulator.lambda_service.function_process import FunctionProcess


class Point(StrEnum):
    """A moment of a query, in order; the query does not continue before the disturbance ends."""

    EVENT = "event handed out"
    START_SENT = "start record before the queue"
    START_QUEUED = "start record in the queue, unanswered"
    RESPONSE_OPENED = "response opened"
    SOURCES = "client holds the sources"
    FIRST_TOKEN = "client holds the first token"
    MIDDLE = "client holds the second of three tokens"
    LAST_TOKEN = "client holds the last token"
    END_SENT = "end record before the queue"
    END_QUEUED = "end record in the queue, unanswered"
    DONE = "done event sent, body not ended"
    TAKEN = "response complete, before the next poll"


class Action(StrEnum):
    """Action on the process at a point."""

    NONE = "none"
    STOP = "SIGSTOP, SIGCONT"
    KILL = "SIGKILL"
    STOP_AND_KILL = "SIGSTOP, SIGKILL"

    @property
    def is_deadly(self) -> bool:
        """Return whether the process has exited afterwards."""
        return self in (Action.KILL, Action.STOP_AND_KILL)


@dataclass(slots=True)
class Disturbance:
    """Disturbance of one query: happens once, when its point is reached."""

    point: Point
    action: Action
    stopped_s: float
    """Seconds for which the process is stopped: longer than its timeout of 250 ms."""
    happened: bool = False
    """True once it has begun."""
    over: asyncio.Event = field(default_factory=asyncio.Event)

    async def reach(self, point: Point, function: FunctionProcess) -> None:
        """Apply the disturbance if the query is at ``point``."""
        if point is not self.point or self.happened or self.action is Action.NONE:
            return
        self.happened = True
        try:
            await self._act(function)
        finally:  # canceled if the point is in a vendor that detects the disconnect of its client
            self.over.set()

    async def _act(self, function: FunctionProcess) -> None:
        if self.action is not Action.KILL:
            function.freeze()
            await asyncio.sleep(self.stopped_s)
        if self.action.is_deadly:
            await function.kill()
        else:
            function.thaw()


def plan(queries: int, seed: int) -> Sequence[Disturbance]:
    """Return all points equally often, each with all actions equally often, in an order set by the seed."""
    rng = random.Random(seed)
    actions, points = list(Action), list(Point)
    planned = [
        Disturbance(
            points[number % len(points)],
            actions[number // len(points) % len(actions)],
            rng.choice((0.05, 0.2, 0.4)),
        )
        for number in range(queries)
    ]
    rng.shuffle(planned)
    return planned
