"""Rows 1 to 10, 12 and 14: faults of model vendors."""

import json
import re
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from tests.campaigns.faults.fault import Fault, is_degraded, is_refused
from tests.campaigns.faults.load import Answer, Load
from tests.campaigns.faults.system import System
from tests.support.vendors.fake_vendor import Reply
from tests.support.vendors.vendor_behaviour import Behaviour, Failure

_NUMBER = re.compile(r"request (\d+):")
_TEXTS = ("It takes ", "five days ", "[Source 1].")
_REPLY = Reply(texts=_TEXTS)
_SILENT = Reply(pause_s=3600)
_FALLBACK = {"llm_fallbacks": '["anthropic"]'}
_NO_LADDER = {"degraded_answers": "false"}
_NO_BREAKER = {"llm_circuit_failures": "0"}


def request_number(body: Any) -> int:
    """Return the number of the query in a request's body."""
    found = _NUMBER.findall(json.dumps(body))
    return int(found[-1]) if found else 0


class VendorFault(Fault):
    """A first vendor that behaves as defined by ``behaviour``; the second one works."""

    def behaviour(self, number: int, attempt: int) -> Behaviour:
        """Return the reaction to an attempt, from 0, at a query."""
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
            vendor.unscripted = _REPLY


def _row(
    number: int,
    name: str,
    client_sees: str,
    behaviour: Callable[[int, int], Behaviour],
    is_right: Callable[[Answer], bool],
    *,
    settings: Mapping[str, str] = {},
    at_once: int = VendorFault.at_once,
) -> type[VendorFault]:
    """Define a row by the vendor's behavior and the permitted answers."""

    class Row(VendorFault):
        def behaviour(self, number: int, attempt: int) -> Behaviour:
            return behaviour(number, attempt)

        def wrong(self, answer: Answer) -> str:
            return "" if is_right(answer) else f"not {client_sees}"

    Row.number, Row.name, Row.client_sees = number, name, client_sees
    Row.settings, Row.at_once = settings, at_once
    return Row


def _is_full(answer: Answer) -> bool:
    return is_degraded(answer)


def _is_the_fallbacks(answer: Answer) -> bool:
    return is_degraded(answer, "provider")


def _is_cut_stream(answer: Answer) -> bool:
    """Return whether a stream was cut before the vendor's last event; a buffered answer may be degraded."""
    return is_refused(answer, 502) if answer.streamed else True


def _ends_by_the_deadline(answer: Answer) -> bool:
    statuses = (504,) if answer.streamed else (503, 504)
    return answer.is_answer or is_refused(answer, *statuses)


def _is_limited(number: int, attempt: int) -> bool:
    return number % 20 == 0 and attempt < 1 + number // 20 % 3


_ODD_ENDS = (
    Reply(texts=("I cannot help with that.",), finish="refusal"),
    Reply(texts=_TEXTS, finish="length"),
    Reply(texts=(), without_choices=True),
)

_ROWS = (
    _row(
        1,
        "429 with a short Retry-After, a twentieth of the calls, up to three times",
        "a full answer",
        lambda number, attempt: Failure(429, retry_after="0.1") if _is_limited(number, attempt) else _REPLY,
        _is_full,
    ),
    _row(
        2,
        "Retry-After of 90 s and an hour, without a fallback",
        "429 or 503 with Retry-After, at once",
        lambda number, _: Failure(429, retry_after="90" if number % 2 else "3600"),
        lambda answer: is_refused(answer, 429, 503),
        settings=_NO_LADDER,
    ),
    _row(
        3,
        "500, 503 and 529 from the first vendor, with a fallback",
        "the other vendor's answer, marked",
        lambda number, _: Failure((500, 503, 529)[number % 3]),
        _is_the_fallbacks,
        settings=_FALLBACK,
    ),
    _row(
        5,
        "a vendor that is silent before its first token, with a fallback",
        "the other vendor's answer, marked",
        lambda *_: _SILENT,
        _is_the_fallbacks,
        settings=_FALLBACK,
        at_once=64,
    ),
    _row(
        6,
        "a stream that only pings after its second text",
        "what was said, ended by the deadline; or passages where nothing was said",
        lambda *_: Reply(texts=_TEXTS[:2], ending="stall"),
        _ends_by_the_deadline,
        at_once=64,
    ),
    _row(
        7,
        "a stream that ends in good order, but without the vendor's last event",
        "an error event, never done",
        lambda *_: Reply(texts=_TEXTS, ending="eof"),
        _is_cut_stream,
        settings=_NO_BREAKER,
    ),
    _row(
        8,
        "a connection of the vendor that breaks within an event",
        "an error event; passages instead of a buffered answer",
        lambda *_: Reply(texts=_TEXTS, ending="cut"),
        _is_cut_stream,
        settings=_NO_BREAKER,
    ),
    _row(
        9,
        "an error event inside a stream with status 200",
        "an error event; no text said twice",
        lambda *_: Reply(texts=_TEXTS, ending="error"),
        _is_cut_stream,
        settings=_NO_BREAKER,
    ),
    _row(
        10,
        "no choices, a refusal, a cut answer",
        "an answer with its finish_reason, or passages",
        lambda number, _: _ODD_ENDS[number // 2 % 3],
        lambda answer: answer.is_answer or is_refused(answer, 502),
    ),
)


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


class RateLimitStorm(VendorFault):
    number = 12
    name = "a storm: nineteen of twenty calls get 429"
    client_sees = "answers or passages; retries stay a tenth of the calls"
    at_once = 100

    def behaviour(self, number: int, attempt: int) -> Behaviour:
        return _REPLY if number % 20 == 0 else Failure(429, retry_after="1")

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
            system.other_vendor.unscripted = _REPLY

    def wrong(self, answer: Answer) -> str:
        return "" if is_degraded(answer, "passages") else "not the passages"


VENDOR_FAULTS: tuple[type[Fault], ...] = (*_ROWS, RefusedKey, RateLimitStorm, EveryModelDown)
