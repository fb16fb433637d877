"""Rows 38 to 41: faults of the query log's delivery."""

from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from tests.campaigns.faults.database_faults import background
from tests.campaigns.faults.fault import Fault
from tests.campaigns.faults.load import Answer, Load
from tests.campaigns.faults.system import System
from tests.campaigns.faults.vendor_faults import VendorFault
from tests.support.vendors.fake_vendor import Reply
from tests.support.vendors.vendor_behaviour import Behaviour


class RedeliveredMessages(Fault):
    number = 38
    name = "every message of the log delivered twice"
    client_sees = "a full answer"

    @asynccontextmanager
    async def inject(self, system: System, load: Load) -> AsyncIterator[None]:
        system.sqs.duplicated = 1.0
        try:
            yield
        finally:
            system.sqs.duplicated = 0.0


class PoisonedQueue(Fault):
    number = 39
    name = "messages that can never be stored among the others"
    client_sees = "a full answer; the poison, and nothing else, becomes dead letters"

    @asynccontextmanager
    async def inject(self, system: System, load: Load) -> AsyncIterator[None]:
        system.queue.poison.clear()

        async def poison() -> None:
            for kind in range(max(8, load.requests // 10)):
                await system.queue.add_poison(kind)

        async with background(poison()):
            yield

    async def audit(self, system: System, answers: Sequence[Answer]) -> list[str]:
        sent, dead = Counter(system.queue.poison), Counter(await system.queue.dead())
        found = (
            [f"{sum((sent - dead).values())} poisonous messages are no dead letters"] if sent - dead else []
        )
        if dead - sent:
            found.append(f"{sum((dead - sent).values())} dead letters that were no poison")
        return found


class OversizeRecords(VendorFault):
    number = 40
    name = "records over 1 MiB, and texts that PostgreSQL cannot store"
    client_sees = "a full answer; the record is cut, and marked"

    def request(self, number: int) -> Mapping[str, Any]:
        odd = ("\0", "\ud800", "\udfff\ud800", "\u202e", "\U0001f600")[number % 5]
        question = f"Fault 40, request {number}: how long does a refund take? {odd}"
        return {"query": question, "max_tokens": 16_384}

    def behaviour(self, number: int, attempt: int) -> Behaviour:
        large = ("It takes five days [Source 1]. ", *("\u20ac" * 59_999 + " ",) * 8)
        return Reply(texts=large) if number % 10 < 2 else Reply()


class QueueDown(Fault):
    number = 41
    name = "SQS refuses connections for half of the load"
    client_sees = "a full answer, up to 0.25 s later; the records are printed, and replayed"

    @asynccontextmanager
    async def inject(self, system: System, load: Load) -> AsyncIterator[None]:
        async def outage() -> None:
            await load.until_ended(0.25)
            await system.sqs.close_port()
            await load.until_ended(0.75)
            await system.sqs.open_port()

        async with background(outage()):
            yield


LOG_FAULTS: tuple[type[Fault], ...] = (RedeliveredMessages, PoisonedQueue, OversizeRecords, QueueDown)
