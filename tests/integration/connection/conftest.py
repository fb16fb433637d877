"""A network between the driver and PostgreSQL that can drop data and close connections."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from tests.support.postgres.postgres_messages import CANCEL_REQUEST
from vectorforge.local.postgres import EmbeddedPostgres


class Proxy:
    """A network between driver and server that can start to drop all data."""

    def __init__(self, server: EmbeddedPostgres, directory: Path) -> None:
        self.directory = directory
        self.target = f"{conninfo_to_dict(server.app_url)['host']}/.s.PGSQL.5432"
        self.conninfo = make_conninfo(server.app_url, host=str(directory))
        self.open = asyncio.Event()
        self.open.set()
        self.round_trips = 0
        self.passes_cancel_requests = True
        self.cuts = 0
        """Number of connections to close when their client sends data."""
        self._turn = "server"
        self._writers: list[asyncio.StreamWriter] = []

    async def run(self) -> asyncio.Server:
        return await asyncio.start_unix_server(self._serve, f"{self.directory}/.s.PGSQL.5432")

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        start = await reader.readexactly(8)
        if int.from_bytes(start[4:]) == CANCEL_REQUEST and not self.passes_cancel_requests:
            writer.close()
            return
        up_reader, up_writer = await asyncio.open_unix_connection(self.target)
        up_writer.write(start)
        self._writers += [writer, up_writer]
        with contextlib.suppress(ConnectionError):
            await asyncio.gather(
                self._copy(reader, up_writer, "client"), self._copy(up_reader, writer, "server")
            )

    async def stop(self) -> None:
        self.open.set()
        for writer in self._writers:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, side: str) -> None:
        while data := await reader.read(65536):
            await self.open.wait()
            if side == "client" and self.cuts:
                self.cuts -= 1
                break
            if side == "client":
                self.round_trips += self._turn == "server"
            self._turn = side
            writer.write(data)
            await writer.drain()
        writer.close()


@pytest.fixture
async def proxy(
    postgres_server: EmbeddedPostgres, private_dir: Callable[[str], Path]
) -> AsyncIterator[Proxy]:
    made = Proxy(postgres_server, private_dir("proxy"))
    listener = await made.run()
    yield made
    listener.close()
    await made.stop()
