"""What a row of the fault matrix is: how its fault is injected, and what has to hold."""

from abc import ABC
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, ClassVar

import httpx2

from tests.campaigns.faults.load import Answer, Load
from tests.campaigns.faults.system import System


class Fault(ABC):
    """One row. ``inject`` is entered before the load begins and left when it has ended."""

    number: ClassVar[int]
    """Number of the row in docs/results/reliability.md."""
    name: ClassVar[str]
    client_sees: ClassVar[str]
    """What an answer may be, in words."""
    settings: ClassVar[Mapping[str, str]] = {}
    """Of the service, as ``System.environment`` takes them."""
    cuts: ClassVar[bool] = False
    """Whether the fault itself breaks connections of clients."""
    throttled: ClassVar[bool] = False
    """Whether Lambda itself may refuse a request: 429 without a word of ours."""
    at_once: ClassVar[int] = 16
    unlogged: ClassVar[bool] = False
    """Whether answers of this row need no row in the log: their requests are no questions."""

    def missing(self) -> str:
        """What this machine lacks for it; empty: nothing."""
        return ""

    def request(self, number: int) -> Mapping[str, Any]:
        """More fields of a request's body."""
        return {}

    def leaves(self, number: int) -> bool:
        """Whether a client goes away in the middle of its stream."""
        return False

    async def ask(self, load: Load, number: int) -> Answer:
        """What a client does with its question; its last answer."""
        return await load.ask(number)

    @asynccontextmanager
    async def serve(self, system: System) -> AsyncIterator[httpx2.AsyncClient]:
        """What answers in this row, as long as it lasts; gives a client with the tenant's key."""
        async with system.serving(self.settings) as client:
            yield client

    @asynccontextmanager
    async def inject(self, system: System, load: Load) -> AsyncIterator[None]:
        """Do it, and undo it."""
        yield

    def wrong(self, answer: Answer) -> str:
        """What is wrong with an answer in this row; empty if nothing is."""
        return "" if answer.is_answer and not answer.degraded else "no full answer"

    async def audit(self, system: System, answers: Sequence[Answer]) -> list[str]:
        """What else is wrong afterwards, while the service still runs."""
        return []


def is_degraded(answer: Answer, *steps: str) -> bool:
    """Whether it is an answer that names just these steps."""
    return answer.is_answer and answer.degraded == list(steps)


def is_refused(answer: Answer, *statuses: int) -> bool:
    """Whether it ended with one of these statuses and problem details, before or in its stream."""
    problem = answer.problem
    return problem is not None and problem.get("status") in statuses
