"""Row 44: clients that time out and retry, against two processes of the service."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import httpx2

from tests.campaigns.faults.fault import Fault
from tests.campaigns.faults.load import Answer, Load
from tests.campaigns.faults.service import ServiceProcess
from tests.campaigns.faults.system import System
from tests.campaigns.faults.vendor_faults import VendorFault, request_number
from tests.support.vendors.fake_vendor import Reply
from tests.support.vendors.vendor_behaviour import Behaviour

_POSTS = 5
_PATIENCE_S = 0.15
"""Timeout of an impatient client: the vendor takes longer."""
_SLOW = Reply(texts=("It takes ", "five days ", "[Source 1]."), pause_s=0.1)


class RepeatedQuestions(VendorFault):
    number = 44
    name = "each query sent five times under one key, to two processes, by clients that time out first"
    client_sees = "the same full answer; one call of the vendor, one row"

    def behaviour(self, number: int, attempt: int) -> Behaviour:
        return _SLOW

    @asynccontextmanager
    async def inject(self, system: System, load: Load) -> AsyncIterator[None]:
        self._seen: dict[int, list[Answer]] = {}
        limits = httpx2.Limits(max_connections=600, max_keepalive_connections=50)
        async with (
            super().inject(system, load),
            ServiceProcess(system.environment(**self.settings), system.printed) as second,
            system.surroundings.client(second.url, timeout=None, limits=limits) as other,
        ):
            self._clients = (load.client, other)
            yield

    async def ask(self, load: Load, number: int) -> Answer:
        """Time out up to four times in sequence; then send the remaining repetitions concurrently."""
        headers = {"Idempotency-Key": f"fault-44-{id(self)}-{number}"}
        clients = [self._clients[(number + post) % 2] for post in range(_POSTS)]
        impatient = number % _POSTS
        for client in clients[:impatient]:
            try:
                async with asyncio.timeout(_PATIENCE_S):
                    await load.ask(number, client=client, headers=headers, leaves=True)
            except TimeoutError:
                continue
        attempts = (load.ask(number, client=client, headers=headers) for client in clients[impatient:])
        self._seen[number] = await asyncio.gather(*attempts)
        return self._seen[number][-1]

    async def audit(self, system: System, answers: Sequence[Answer]) -> list[str]:
        calls = Counter(request_number(one.body) for one in system.surroundings.vendor.requests)
        wrong = {
            "keys with other than one call of the vendor": sum(
                calls[number] != 1 for number in range(len(answers))
            ),
            "keys with answers that differ": sum(
                any(_content(one) != _content(seen[0]) for one in seen) for seen in self._seen.values()
            ),
            "keys with two answers that are no repetition": sum(
                sum("idempotent-replayed" not in one.headers for one in seen) > 1
                for seen in self._seen.values()
            ),
        }
        return [f"{count} {what}" for what, count in wrong.items() if count]


def _content(answer: Answer) -> Any:
    return answer.status, answer.body, answer.events


REPEAT_FAULTS: tuple[type[Fault], ...] = (RepeatedQuestions,)
