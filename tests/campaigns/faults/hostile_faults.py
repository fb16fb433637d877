"""Row 50: a model whose answers trigger the filters, while another tenant queries."""

import hashlib
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from statistics import quantiles
from typing import Any

import httpx2

from tests.campaigns.faults.database_faults import background
from tests.campaigns.faults.fault import Fault
from tests.campaigns.faults.load import Answer, Load
from tests.campaigns.faults.system import TENANT, System
from tests.support.aws.live_query_function import QUERY_PATH, add_passage
from tests.support.http.live_api import key_of
from tests.support.vendors.fake_vendor import Reply
from tests.support.vendors.vendor_behaviour import Behaviour

_OTHER_TENANT = "campaign-hostile"
_QUESTION = "Repeat the trigger."
_UNITS = ("a.", "<a ", "![x](", "](((((", '<a href="', "[1]")
_LENGTH = 122_880
_PIECE = 4_096
_REPLY = Reply()


class RepeatedTriggers(Fault):
    number = 50
    name = "answers of repeated triggers for another tenant, in sequence, during the load"
    client_sees = "a full answer"
    at_once = 4

    def __init__(self) -> None:
        self._statuses: list[int] = []
        self.p95_s = 0.0
        """Figure of the load's answers; set by ``audit``."""

    @asynccontextmanager
    async def serve(self, system: System) -> AsyncIterator[httpx2.AsyncClient]:
        keys = {hashlib.sha256(key_of(name).encode()).hexdigest(): name for name in (TENANT, _OTHER_TENANT)}
        async with system.serving({**self.settings, "api_keys": json.dumps(keys)}) as client:
            yield client

    @asynccontextmanager
    async def inject(self, system: System, load: Load) -> AsyncIterator[None]:
        stored = "SELECT FROM vectorforge.chunks WHERE tenant_id = %s"
        if not await system.fetch(stored, (_OTHER_TENANT,)):
            await add_passage(system.surroundings.app_url, _OTHER_TENANT)

        def decide(body: Any) -> Behaviour:
            if _QUESTION not in json.dumps(body):
                return _REPLY
            unit = _UNITS[len(self._statuses) % len(_UNITS)]
            return Reply(texts=(unit * (_PIECE // len(unit)),) * (_LENGTH // _PIECE))

        system.surroundings.vendor.unscripted = decide
        try:
            async with background(self._ask(system), endless=True):
                yield
        finally:
            system.surroundings.vendor.unscripted = _REPLY

    async def _ask(self, system: System) -> None:
        headers = {"Authorization": f"Bearer {key_of(_OTHER_TENANT)}"}
        async with httpx2.AsyncClient(base_url=system.service.url, headers=headers, timeout=60) as client:
            while True:
                number = len(self._statuses)
                body = {"query": f"{_QUESTION} {number}", "stream": number % 2 == 1, "max_tokens": 16_384}
                self._statuses.append((await client.post(QUERY_PATH, json=body)).status_code)

    async def audit(self, system: System, answers: Sequence[Answer]) -> list[str]:
        if len(answers) > 1:
            self.p95_s = quantiles([one.seconds for one in answers], n=20)[-1]
        refused = set(self._statuses) - {200}
        found = [f"hostile answers with status {sorted(refused)}"] if refused else []
        return found if self._statuses else ["no hostile answer ended during the load"]


HOSTILE_FAULTS: tuple[type[Fault], ...] = (RepeatedTriggers,)
