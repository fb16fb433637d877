"""Where and how the campaign stops and kills the query function, from outside of its process."""

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from infra.emulator.lambda_service.function_process import FunctionProcess


class Point(StrEnum):
    """A moment of a query, in order; nothing of it goes on before the disturbance is over."""

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
    """What is done to the process there."""

    NONE = "none"
    STOP = "SIGSTOP, SIGCONT"
    KILL = "SIGKILL"
    STOP_AND_KILL = "SIGSTOP, SIGKILL"

    @property
    def is_deadly(self) -> bool:
        """Whether the process is gone afterwards."""
        return self in (Action.KILL, Action.STOP_AND_KILL)


@dataclass(slots=True)
class Disturbance:
    """One query's: happens once, when its point is reached."""

    point: Point
    action: Action
    stopped_s: float
    """How long the process stands still. Longer than 250 ms: what it waits for has timed out meanwhile."""
    happened: bool = False
    """Whether it has begun."""
    over: asyncio.Event = field(default_factory=asyncio.Event)

    async def reach(self, point: Point, function: FunctionProcess) -> None:
        """The query is at ``point``."""
        if point is not self.point or self.happened or self.action is Action.NONE:
            return
        self.happened = True
        try:
            await self._act(function)
        finally:  # cancelled, where the point lies in a vendor that notices the death of its client
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
    """All points equally often, at each all actions equally often, in an order that the seed decides."""
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
