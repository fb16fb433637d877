"""Row 25: packets to the database are lost."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import httpx2
from psycopg.conninfo import make_conninfo

from tests.campaigns.faults.database_faults import AnsweredOr503, background
from tests.campaigns.faults.fault import Fault
from tests.campaigns.faults.load import Answer, Load
from tests.campaigns.faults.system import System
from tests.campaigns.faults.vendor_faults import request_number
from tests.support.postgres.faulty_relay import TcpRelay
from tests.support.postgres.packet_drops import PacketDrops

_ADDRESS = "127.25.25.25"


class DroppedPackets(AnsweredOr503):
    number = 25
    name = "every packet of the database dropped by the kernel, until two fifths of the queries failed"
    client_sees = "503 or 504 within the deadline; all well at once afterwards"

    def missing(self) -> str:
        return PacketDrops.missing()

    @asynccontextmanager
    async def serve(self, system: System) -> AsyncIterator[httpx2.AsyncClient]:
        async with TcpRelay(_ADDRESS, system.relay.target) as relay:
            url = make_conninfo(system.surroundings.app_url, host=relay.host, port=relay.port)
            async with system.serving({**self.settings, "database_url": url}) as client:
                yield client

    @asynccontextmanager
    async def inject(self, system: System, load: Load) -> AsyncIterator[None]:
        await Load(load.client, 2500, self.at_once).run()
        drops = PacketDrops(_ADDRESS).__enter__()

        async def heal() -> None:
            await load.until_ended(0.4)
            drops.__exit__(None, None, None)
            self._asked_before = load.asked

        try:
            async with background(heal()):
                yield
        finally:
            drops.__exit__(None, None, None)

    async def audit(self, system: System, answers: Sequence[Answer]) -> list[str]:
        """Check that queries are answered once packets pass again."""
        after = [one for one in answers if request_number(one.question) >= self._asked_before]
        failed = sum(not one.is_answer for one in after)
        return [f"{failed} of {len(after)} questions not answered after it healed"] if failed else []


NETWORK_FAULTS: tuple[type[Fault], ...] = (DroppedPackets,)
