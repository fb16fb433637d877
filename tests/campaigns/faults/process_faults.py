"""Rows 15, 21, 34, 45 and 47: faults of the service's process and of its clients."""

import asyncio
import json
import socket
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

from tests.campaigns.faults.audit import GRACE_S
from tests.campaigns.faults.database_faults import AnsweredOr503, background
from tests.campaigns.faults.fault import Fault, is_refused
from tests.campaigns.faults.load import Answer, Load
from tests.campaigns.faults.system import DEADLINE_S, TENANT, System
from tests.campaigns.faults.vendor_faults import VendorFault, request_number
from tests.support.aws.live_query_function import QUERY_PATH
from tests.support.http.live_api import key_of
from tests.support.vendors.fake_vendor import RecordedRequest, Reply
from tests.support.vendors.vendor_behaviour import Behaviour

_PATIENCE_S = 20
_SLOW = Reply(texts=("It takes five days [Source 1]. ", *("and so on " * 10,) * 40), pause_s=0.05)

_SLOW_READERS = 4
"""Each gets four megabytes: the longest answer that a request may set, and more than the buffers of its
connection hold. Masking its text in the log takes a while: twenty of them starve the others."""
_LARGE = Reply(texts=("It takes five days [Source 1]. ", *("\U0001f600" * 9_999 + " ",) * 104))


class LeavingClients(VendorFault):
    number = 15
    name = "clients that disconnect after their first token"
    client_sees = "nothing; the vendor's stream is closed"
    at_once = 32

    def leaves(self, number: int) -> bool:
        return number % 2 == 1

    def behaviour(self, number: int, attempt: int) -> Behaviour:
        return _SLOW if number % 2 else Reply()

    def wrong(self, answer: Answer) -> str:
        return "" if answer.left or answer.is_answer else "no answer"

    async def audit(self, system: System, answers: Sequence[Answer]) -> list[str]:
        vendor_requests = system.surroundings.vendor.requests
        left = [one for one in vendor_requests if request_number(one.body) % 2]
        open_ones = len(left) - await _closed(left)
        return [f"{open_ones} streams of the vendor were not closed"] if open_ones else []


async def _closed(requests: Sequence[RecordedRequest]) -> int:
    """Count the requests that the client closes before the patience ends."""
    waits = [asyncio.create_task(one.client_closed.wait()) for one in requests]
    if not waits:
        return 0
    done, pending = await asyncio.wait(waits, timeout=_PATIENCE_S)
    for wait in pending:
        wait.cancel()
    return len(done)


class EverythingAtOnce(AnsweredOr503):
    number = 21
    name = "a storm: all queries at the same time, eight connections to the database"
    at_once = 1000


class OddTexts(Fault):
    number = 34
    name = "NUL, unpaired surrogates and text directions in queries and filters"
    client_sees = "an answer, or 422"

    def request(self, number: int) -> Mapping[str, Any]:
        odd = ("\0", "\ud800", "\udc00\ud800", "\u202e", "\ufeff", "a\0\0b")[number % 6]
        vendor_requests = {"query": f"Fault 34, request {number}: how long does a refund take? {odd}"}
        return vendor_requests | ({"filters": {"metadata.kind": odd}} if number % 3 == 2 else {})

    def wrong(self, answer: Answer) -> str:
        ended = answer.is_answer or is_refused(answer, 400, 422)
        return "" if ended else "neither an answer nor refused with 422"


class KilledService(Fault):
    number = 45
    name = "kill -9 of the service under load, twice, started again"
    client_sees = "an answer, or a cut connection"
    cuts = True

    @asynccontextmanager
    async def inject(self, system: System, load: Load) -> AsyncIterator[None]:
        async def kill() -> None:
            for share in (0.2, 0.5):
                await load.until_ended(share)
                await system.service.kill()
                await system.service.start()

        async with background(kill()):
            yield

    def wrong(self, answer: Answer) -> str:
        return "" if answer.is_answer or answer.cut else "neither an answer nor a cut connection"

    async def audit(self, system: System, answers: Sequence[Answer]) -> list[str]:
        return [] if answers[-1].is_answer else ["not answered after the last start"]


class SlowReaders(VendorFault):
    number = 47
    name = "readers of ten bytes a second, during the load"
    client_sees = "a full answer; the slow ones' streams end half a second after the deadline at the latest"

    def behaviour(self, number: int, attempt: int) -> Behaviour:
        return Reply()

    @asynccontextmanager
    async def inject(self, system: System, load: Load) -> AsyncIterator[None]:
        readers = min(_SLOW_READERS, max(2, load.requests // 10))
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(super().inject(system, load))
            system.surroundings.vendor.script(*[_LARGE] * readers)
            vendor_requests = [_ask(system.service.url, f"Slow reader {number}") for number in range(readers)]
            sockets = [stack.enter_context(one) for one in vendor_requests]
            async with asyncio.timeout(3 * _PATIENCE_S):  # each is sent megabytes before the next one
                while len(system.surroundings.vendor.requests) < readers:  # noqa: ASYNC110 - a list of the fake
                    await asyncio.sleep(0.05)
            async with background(_sip(sockets), endless=True):
                yield
            self._took_s = await self._ended(system, readers)
            self._open = readers - len(self._took_s)

    async def _ended(self, system: System, readers: int) -> list[float]:
        """Return the durations of the finished slow queries, as logged."""
        give_up_at = time.monotonic() + DEADLINE_S + _PATIENCE_S
        query = """
        SELECT latency_ms FROM vectorforge.query_logs
        WHERE tenant_id = %s AND query_text LIKE 'Slow reader%%' AND outcome <> 'started'
        """
        while True:
            await system.drain()  # records that the queue did not accept in time were printed
            rows = await system.fetch(query, (TENANT,))
            if len(rows) >= readers or time.monotonic() > give_up_at:
                return [row["latency_ms"] / 1000 for row in rows]
            await asyncio.sleep(0.2)

    async def audit(self, system: System, answers: Sequence[Answer]) -> list[str]:
        found = [f"{self._open} slow streams did not end"] if self._open else []
        if late := [f"{took_s:.1f}" for took_s in self._took_s if took_s > DEADLINE_S + GRACE_S]:
            found.append(f"slow streams were open for {', '.join(late)} s")
        return found


def _ask(url: str, question: str) -> socket.socket:
    """Send a streamed query over a connection with the smallest buffer, without reading."""
    address = urlsplit(url)
    body = json.dumps({"query": question, "stream": True, "max_tokens": 16_384}).encode()
    head = (
        f"POST {QUERY_PATH} HTTP/1.1\r\nHost: {address.netloc}\r\nContent-Type: application/json\r\n"
        f"Authorization: Bearer {key_of(TENANT)}\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
    made.connect((address.hostname or "", address.port or 80))
    made.sendall(head.encode() + body)
    made.setblocking(False)
    return made


async def _sip(sockets: Sequence[socket.socket]) -> None:
    while True:
        await asyncio.sleep(0.1)
        for one in sockets:
            try:
                one.recv(1)
            except OSError:
                continue


PROCESS_FAULTS: tuple[type[Fault], ...] = (
    LeavingClients,
    EverythingAtOnce,
    OddTexts,
    KilledService,
    SlowReaders,
)
