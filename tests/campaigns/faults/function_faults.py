"""Rows 16 to 18 and 46: the query function behind a function URL, as Lambda runs it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import ClassVar

import httpx2

from infra.emulator.lambda_service.front_doors import FunctionUrl
from infra.emulator.lambda_service.lambda_function import LambdaFunction
from tests.campaigns.faults.fault import Fault, is_refused
from tests.campaigns.faults.load import Answer
from tests.campaigns.faults.service import RECORD_LINE
from tests.campaigns.faults.system import System
from tests.campaigns.faults.vendor_faults import VendorFault
from tests.support.vendors.fake_vendor import Reply
from tests.support.vendors.vendor_behaviour import Behaviour

_MARGIN_S = 2
"""Part of the invocation's time that a query reserves."""


class FunctionFault(Fault):
    """The query function answers, in several processes with one query at a time each."""

    timeout_s: ClassVar[float] = 30.0
    concurrency: ClassVar[int] = 4
    at_once = 4

    def environment(self, system: System) -> dict[str, str]:
        return system.environment(**self.settings)

    @asynccontextmanager
    async def serve(self, system: System) -> AsyncIterator[httpx2.AsyncClient]:
        def on_log(line: str) -> None:
            if line.startswith(RECORD_LINE):
                system.printed.append(line)

        configuration = system.surroundings.function(
            self.environment(system), timeout_s=self.timeout_s, freeze_between_invocations=True
        )
        async with (
            LambdaFunction(configuration, concurrency=self.concurrency, on_log=on_log) as function,
            FunctionUrl(function) as front_door,
            system.surroundings.client(front_door.url, timeout=None) as client,
        ):
            yield client


class DeadlineNear(FunctionFault, VendorFault):
    number = 16
    name = "a function near its timeout, and a model that never ends"
    client_sees = "what was said until two seconds before the end, or 504"
    timeout_s = 6.0

    def behaviour(self, number: int, attempt: int) -> Behaviour:
        endless = Reply(texts=("It takes five days [Source 1]. ", *("and on ",) * 2000), pause_s=0.05)
        return endless if number % 4 else Reply()

    def wrong(self, answer: Answer) -> str:
        ended = answer.is_answer or is_refused(answer, 503, 504)
        return "" if ended else "neither ended in good order nor refused with 503 or 504"


class FrozenAfterAnswer(FunctionFault):
    number = 17
    name = "a function frozen (SIGSTOP) after each answer, until the next query"
    client_sees = "a full answer, its record complete before"


class NextInvocation(FunctionFault):
    number = 18
    name = "one process that answers every query, frozen in between"
    client_sees = "a full answer"
    concurrency = 1
    at_once = 1


class ThrottledFunction(FunctionFault):
    number = 46
    name = "a reserved concurrency of two, sixteen concurrent queries"
    client_sees = "an answer, or Lambda's own 429"
    concurrency = 2
    at_once = 16
    throttled = True

    def wrong(self, answer: Answer) -> str:
        return "" if answer.is_answer or answer.status == 429 else "neither an answer nor throttled"


FUNCTION_FAULTS: tuple[type[Fault], ...] = (
    DeadlineNear,
    FrozenAfterAnswer,
    NextInvocation,
    ThrottledFunction,
)
