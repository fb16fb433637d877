"""Rows 1 to 12 and 14: what the vendors of models do."""

import json
import re
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from tests.campaigns.faults.fault import Fault, is_degraded, is_refused
from tests.campaigns.faults.load import Answer, Load
from tests.campaigns.faults.system import System
from vectorforge.testing.fake_vendor import Behaviour, Failure, Reply

_NUMBER = re.compile(r"request (\d+):")
_TEXTS = ("It takes ", "five days ", "[Source 1].")
_SILENT = Reply(pause_s=3600)
_FALLBACK = {"llm_fallbacks": '["anthropic"]'}
_NO_LADDER = {"degraded_answers": "false"}
_NO_BREAKER = {"llm_circuit_failures": "0"}


def request_number(body: Any) -> int:
    """Which question a vendor was asked, by the request's body."""
    found = _NUMBER.findall(json.dumps(body))
    return int(found[-1]) if found else 0


class VendorFault(Fault):
    """The first vendor behaves as ``behaviour`` says; the second one is well."""

    def behaviour(self, number: int, attempt: int) -> Behaviour:
        """What it does with an attempt, from 0, at a question."""
        raise NotImplementedError

    @asynccontextmanager
    async def inject(self, system: System, load: Load) -> AsyncIterator[None]:
        attempts: Counter[int] = Counter()

        def decide(body: Any) -> Behaviour:
            number = request_number(body)
            attempts[number] += 1
            return self.behaviour(number, attempts[number] - 1)

        vendor = system.surroundings.vendor
        vendor.requests.clear()
        vendor.unscripted = decide
        try:
            yield
        finally:
            vendor.unscripted = Reply(texts=_TEXTS)


class ShortRetryAfter(VendorFault):
    number = 1
    name = "429 with a short Retry-After, a twentieth of the calls, up to three times"
    client_sees = "a full answer"

    def behaviour(self, number: int, attempt: int) -> Behaviour:
        limited = number % 20 == 0 and attempt < 1 + number // 20 % 3
        return Failure(429, retry_after="0.1") if limited else Reply(texts=_TEXTS)


class LongRetryAfter(VendorFault):
    number = 2
    name = "Retry-After of 90 s and an hour, without a fallback"
    client_sees = "429 or 503 with Retry-After, at once"
    settings = _NO_LADDER

    def behaviour(self, number: int, attempt: int) -> Behaviour:
        return Failure(429, retry_after="90" if number % 2 else "3600")

    def wrong(self, answer: Answer) -> str:
        return "" if is_refused(answer, 429, 503) else "not refused with 429 or 503"


class ServerErrors(VendorFault):
    number = 3
    name = "500, 503 and 529 from the first vendor, with a fallback"
    client_sees = "the other vendor's answer, marked"
    settings = _FALLBACK

    def behaviour(self, number: int, attempt: int) -> Behaviour:
        return Failure((500, 503, 529)[number % 3])

    def wrong(self, answer: Answer) -> str:
        return "" if is_degraded(answer, "provider") else "not answered by the fallback"


class RefusedKey(VendorFault):
    number = 4
    name = "401 and 403, the key quoted back"
    client_sees = "502, no retry, the key nowhere"

    def behaviour(self, number: int, attempt: int) -> Behaviour:
        return Failure(
            403 if number % 2 else 401, message="Incorrect API key provided: sk-test-0123456789abcdef"
        )

    def wrong(self, answer: Answer) -> str:
        return "" if is_refused(answer, 502) else "not refused with 502"

    async def audit(self, system: System, answers: Sequence[Answer]) -> list[str]:
        vendor = system.surroundings.vendor
        found = []
        if len(vendor.requests) > len(answers):
            found.append(f"{len(vendor.requests)} calls for {len(answers)} questions: retried")
        shown = [json.dumps([one.body, one.events]) for one in answers] + system.service.output
        if any(vendor.api_key in text for text in shown):
            found.append("the key is in an answer or in a line of the log")
        return found


class SilentVendor(VendorFault):
    number = 5
    name = "a vendor that says nothing before its first token, with a fallback"
    client_sees = "the other vendor's answer, marked"
    settings = _FALLBACK
    at_once = 64

    def behaviour(self, number: int, attempt: int) -> Behaviour:
        return _SILENT

    def wrong(self, answer: Answer) -> str:
        return "" if is_degraded(answer, "provider") else "not answered by the fallback"


class StallInTheMiddle(VendorFault):
    number = 6
    name = "a stream that only pings after its second text"
    client_sees = "what was said, ended by the deadline; or passages where nothing was said"
    at_once = 64

    def behaviour(self, number: int, attempt: int) -> Behaviour:
        return Reply(texts=_TEXTS[:2], ending="stall")

    def wrong(self, answer: Answer) -> str:
        if answer.streamed:
            is_ended = answer.is_answer or is_refused(answer, 504)
            return "" if is_ended else "neither ended by the deadline nor an error event"
        return "" if answer.is_answer or is_refused(answer, 503, 504) else "neither degraded nor refused"


class CutStream(VendorFault):
    """Rows 7 to 9: a stream that ends without its vendor's last word."""

    def wrong(self, answer: Answer) -> str:
        if answer.streamed:
            return "" if is_refused(answer, 502) else "not ended by an error event with status 502"
        return ""


class CleanEnd(CutStream):
    number = 7
    name = "a stream that ends in good order, but without the vendor's last event"
    client_sees = "an error event, never done"
    settings = _NO_BREAKER

    def behaviour(self, number: int, attempt: int) -> Behaviour:
        return Reply(texts=_TEXTS, ending="eof")


class BrokenConnection(CutStream):
    number = 8
    name = "a connection of the vendor that breaks within an event"
    client_sees = "an error event; passages instead of a buffered answer"
    settings = _NO_BREAKER

    def behaviour(self, number: int, attempt: int) -> Behaviour:
        return Reply(texts=_TEXTS, ending="cut")


class ErrorInsideStream(CutStream):
    number = 9
    name = "an error event inside a stream with status 200"
    client_sees = "an error event; no text said twice"
    settings = _NO_BREAKER

    def behaviour(self, number: int, attempt: int) -> Behaviour:
        return Reply(texts=_TEXTS, ending="error")


class EmptyAndRefused(VendorFault):
    number = 10
    name = "no choices, a refusal, a cut answer"
    client_sees = "an answer with its finish_reason, or passages"

    def behaviour(self, number: int, attempt: int) -> Behaviour:
        return (
            Reply(texts=("I cannot help with that.",), finish="refusal"),
            Reply(texts=_TEXTS, finish="length"),
            Reply(texts=(), without_choices=True),
        )[number // 2 % 3]

    def wrong(self, answer: Answer) -> str:
        ended = answer.is_answer or is_refused(answer, 502)
        return "" if ended else "neither an answer nor a refusal with 502"


class RateLimitStorm(VendorFault):
    number = 12
    name = "a storm: nineteen of twenty calls get 429"
    client_sees = "answers or passages; retries stay a tenth of the calls"
    at_once = 100

    def behaviour(self, number: int, attempt: int) -> Behaviour:
        return Reply(texts=_TEXTS) if number % 20 == 0 else Failure(429, retry_after="1")

    def wrong(self, answer: Answer) -> str:
        ended = answer.is_answer or is_refused(answer, 429, 503)
        return "" if ended else "neither answered nor refused with 429 or 503"

    async def audit(self, system: System, answers: Sequence[Answer]) -> list[str]:
        calls, allowed = len(system.surroundings.vendor.requests), 1.1 * len(answers) + 20
        return [] if calls <= allowed else [f"{calls} calls for {len(answers)} questions"]


class EveryModelDown(VendorFault):
    number = 14
    name = "every model answers 500"
    client_sees = "the passages with citations, marked"
    settings = _FALLBACK

    def behaviour(self, number: int, attempt: int) -> Behaviour:
        return Failure(500)

    @asynccontextmanager
    async def inject(self, system: System, load: Load) -> AsyncIterator[None]:
        system.other_vendor.unscripted = Failure(529)
        try:
            async with super().inject(system, load):
                yield
        finally:
            system.other_vendor.unscripted = Reply(texts=_TEXTS)

    def wrong(self, answer: Answer) -> str:
        return "" if is_degraded(answer, "passages") else "not the passages"


VENDOR_FAULTS: tuple[type[Fault], ...] = (
    ShortRetryAfter,
    LongRetryAfter,
    ServerErrors,
    RefusedKey,
    SilentVendor,
    StallInTheMiddle,
    CleanEnd,
    BrokenConnection,
    ErrorInsideStream,
    EmptyAndRefused,
    RateLimitStorm,
    EveryModelDown,
)
