"""Row 42: secrets are rotated while the service runs."""

import asyncio
import tempfile
import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2
from psycopg.conninfo import make_conninfo

from tests.campaigns.faults.database_faults import background
from tests.campaigns.faults.fault import Fault
from tests.campaigns.faults.load import Answer, Load
from tests.campaigns.faults.system import POOL_SIZE, System
from tests.support.aws.fake_aws_faults import FaultyAws
from tests.support.postgres.faulty_relay import FaultyRelay
from tests.support.postgres.pgbouncer import PgBouncer

_ROLE = "vectorforge_app"
_LOGIN, _KEYS = "campaign/database", "campaign/keys"


class RotatedSecrets(Fault):
    number = 42
    name = "the database's password and a vendor's key rotated twice, all connections ended"
    client_sees = "a full answer; each secret is read once more"
    at_once = 8

    @asynccontextmanager
    async def serve(self, system: System) -> AsyncIterator[httpx2.AsyncClient]:
        """Serve behind a separate PgBouncer that checks the role's current password."""
        with tempfile.TemporaryDirectory(prefix="vf-") as folder, FaultyAws() as self._aws:
            place = Path(folder)
            _open_to_all(place)
            await self._exchange(system)
            with PgBouncer(
                place / "bouncer", system.server_socket, pool_size=POOL_SIZE, asks_for_passwords=True
            ) as bouncer:
                socket = place / "network" / bouncer.socket.name
                async with FaultyRelay(socket, bouncer.socket) as self._relay:
                    settings = {
                        "database_url": make_conninfo(system.surroundings.app_url, host=str(socket.parent)),
                        "database_secret_id": _LOGIN,
                        "provider_secret_id": _KEYS,
                        "openai_api_key": "",
                    }
                    secrets_manager = self._aws.environment["AWS_ENDPOINT_URL"]
                    variables = {"AWS_ENDPOINT_URL_SECRETS_MANAGER": secrets_manager}
                    async with system.serving(settings, variables) as client:
                        yield client

    @asynccontextmanager
    async def inject(self, system: System, load: Load) -> AsyncIterator[None]:
        self._aws.calls.clear()
        await self._exchange(system)
        self._relay.cut()
        self._expected = 2

        async def rotate() -> None:
            await load.until_ended(0.3)
            await self._exchange(system)
            self._relay.cut()
            if load.asked < load.requests:  # otherwise the new ones are never needed
                self._expected += 2

        async with background(rotate()):
            yield

    async def audit(self, system: System, answers: Sequence[Answer]) -> list[str]:
        await system.fetch_nothing(f"ALTER ROLE {_ROLE} PASSWORD NULL")
        read = self._aws.calls.count("GetSecretValue")
        return [] if read == self._expected else [f"secrets were read {read} times, not {self._expected}"]

    async def _exchange(self, system: System) -> None:
        """Rotate both secrets, the role's and the vendor's; the old ones become invalid."""
        password, key = f"password-{uuid.uuid4().hex}", f"sk-{uuid.uuid4().hex}"
        login = {"username": _ROLE, "password": password}
        await asyncio.to_thread(self._aws.put_secret, _LOGIN, login)
        await asyncio.to_thread(self._aws.put_secret, _KEYS, {"openai_api_key": key})
        await system.fetch_nothing(f"ALTER ROLE {_ROLE} PASSWORD '{password}'")
        system.surroundings.vendor.api_key = key


def _open_to_all(place: Path) -> None:
    """Make the folders of both sockets, and let PgBouncer's account traverse them."""
    place.chmod(0o755)
    for name in ("bouncer", "network"):
        (place / name).mkdir()


SECRET_FAULTS: tuple[type[Fault], ...] = (RotatedSecrets,)
