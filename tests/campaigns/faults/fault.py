"""Base class of the rows of the fault matrix: the injection of a fault and its invariants."""

from abc import ABC
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, ClassVar

import httpx2

from tests.campaigns.faults.load import Answer, Load
from tests.campaigns.faults.system import System


class Fault(ABC):
    """One row. ``inject`` is entered before the load begins and exited after it ends."""

    number: ClassVar[int]
    """Number of the row in docs/results/reliability.md."""
    name: ClassVar[str]
    client_sees: ClassVar[str]
    """Permitted answers, as text."""
    settings: ClassVar[Mapping[str, str]] = {}
    """Settings of the service, as for ``System.environment``."""
    cuts: ClassVar[bool] = False
    """True if the fault itself breaks connections of clients."""
    throttled: ClassVar[bool] = False
    """True if Lambda itself may reject a request: 429 without problem details."""
    at_once: ClassVar[int] = 16
    unlogged: ClassVar[bool] = False
    """True if answers of this row need no row in the log, because their requests are not queries."""

    def missing(self) -> str:
        """Return the requirement that this machine lacks, or an empty string."""
        return ""

    def request(self, number: int) -> Mapping[str, Any]:
        """Return further fields of a request's body."""
        return {}

    def leaves(self, number: int) -> bool:
        """Return whether a client disconnects in the middle of its stream."""
        return False

    async def ask(self, load: Load, number: int) -> Answer:
        """Send a client's query, and return its last answer."""
        return await load.ask(number)

    @asynccontextmanager
    async def serve(self, system: System) -> AsyncIterator[httpx2.AsyncClient]:
        """Run the service of this row; yield a client with the tenant's key."""
        async with system.serving(self.settings) as client:
            yield client

    @asynccontextmanager
    async def inject(self, system: System, load: Load) -> AsyncIterator[None]:
        """Inject the fault, and remove it at the end of the block."""
        yield

    def wrong(self, answer: Answer) -> str:
        """Return the violation in an answer of this row, or an empty string."""
        return "" if answer.is_answer and not answer.degraded else "no full answer"

    async def audit(self, system: System, answers: Sequence[Answer]) -> list[str]:
        """Yield further violations after the load, while the service still runs."""
        return []


def is_degraded(answer: Answer, *steps: str) -> bool:
    """Return whether an answer has exactly these degradation steps."""
    return answer.is_answer and answer.degraded == list(steps)


def is_refused(answer: Answer, *statuses: int) -> bool:
    """Return whether it ended with one of these statuses and problem details, before or in its stream."""
    problem = answer.problem
    return problem is not None and problem.get("status") in statuses
