"""A proxy that splits a group of statements costs round trips, never answers and never isolation."""

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Literal, Self, TypeAlias

import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from tests.support.http.live_api import add_documents, live_api, new_collection, settings_for
from tests.support.vendors.scripted_llm import ScriptedLLM
from vectorforge.db.connection import Database
from vectorforge.errors import DatabaseUnavailableError
from vectorforge.local.postgres import EmbeddedPostgres

Split: TypeAlias = Literal["hidden", "shown", "refused"]

_PARSE, _EXECUTE, _SYNC, _READY, _QUERY = b"P", b"E", b"S", b"Z", b"Q"
_SYNC_MESSAGE = _SYNC + (4).to_bytes(4)
_TENANT = "SELECT current_setting('vectorforge.tenant', true) AS tenant"


class SplittingProxy:
    """Puts a Sync between the statements of a group, as a proxy that pools by statement may.

    Args:
        server: Socket of the real server.
        directory: Directory of the proxy's socket.
        split: ``hidden``: the client sees the answer to its own Sync only; ``shown``: to every one;
            ``refused``: a second statement before a Sync closes the connection.
        forgets_begin: Whether BEGIN does nothing either.
    """

    def __init__(
        self, server: EmbeddedPostgres, directory: Path, split: Split, *, forgets_begin: bool = False
    ) -> None:
        self._target = f"{conninfo_to_dict(server.app_url)['host']}/.s.PGSQL.5432"
        self._path = directory / ".s.PGSQL.5432"
        self._split = split
        self._forgets_begin = forgets_begin
        self._connections: set[asyncio.Task[None]] = set()
        self.conninfo = make_conninfo(server.app_url, host=str(directory))

    async def __aenter__(self) -> Self:
        self._listener = await asyncio.start_unix_server(self._serve, self._path)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._listener.close()
        while self._connections:
            await asyncio.wait(self._connections)

    async def _serve(self, client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)
        server, to_server = await asyncio.open_unix_connection(self._target)
        answers: deque[bool] = deque()  # per Sync and Query: whether the client sees its answer
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            size = await client.readexactly(4)
            to_server.write(size + await client.readexactly(int.from_bytes(size) - 4))
            back = asyncio.create_task(self._back(server, to_client, answers))
            await self._forward(client, to_server, answers)
            to_server.close()
            await back
        to_client.close()

    async def _forward(
        self, client: asyncio.StreamReader, server: asyncio.StreamWriter, answers: deque[bool]
    ) -> None:
        executed = False
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                kind, message = await _read(client)
                if kind == _PARSE and executed:
                    if self._split == "refused":
                        return
                    server.write(_SYNC_MESSAGE)
                    answers.append(self._split == "shown")
                if kind == _QUERY and self._forgets_begin and message[5:10].upper() == b"BEGIN":
                    message = kind + (13).to_bytes(4) + b"SELECT 1\0"
                executed = kind == _EXECUTE or (executed and kind not in (_PARSE, _SYNC))
                if kind in (_SYNC, _QUERY):
                    answers.append(True)
                server.write(message)

    async def _back(
        self, server: asyncio.StreamReader, client: asyncio.StreamWriter, answers: deque[bool]
    ) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                kind, message = await _read(server)
                if kind != _READY or not answers or answers.popleft():
                    client.write(message)
        client.close()


async def _read(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    head = await reader.readexactly(5)
    return head[:1], head + await reader.readexactly(int.from_bytes(head[1:]) - 4)


@pytest.fixture(params=["hidden", "shown", "refused"])
async def splitter(
    request: pytest.FixtureRequest, postgres_server: EmbeddedPostgres, private_dir: Callable[[str], Path]
) -> AsyncIterator[SplittingProxy]:
    async with SplittingProxy(postgres_server, private_dir("split"), request.param) as proxy:
        yield proxy


# C34
async def test_transaction_through_splitting_proxy_applies_its_tenant(
    splitter: SplittingProxy, make_tenant: Callable[[], str], caplog: pytest.LogCaptureFixture
) -> None:
    tenant = make_tenant()
    with caplog.at_level("WARNING", logger="vectorforge"):
        async with Database(splitter.conninfo, pool_size=2) as database:
            for _ in range(3):
                assert await database.for_tenant(tenant).fetch_one(_TENANT) == {"tenant": tenant}
    warnings = [record for record in caplog.records if "BEGIN" in record.getMessage()]
    assert len(warnings) == 1


# C34
async def test_search_through_splitting_proxy_returns_the_chunk(
    splitter: SplittingProxy, make_tenant: Callable[[], str]
) -> None:
    tenant = make_tenant()
    settings = settings_for(splitter.conninfo, [tenant])
    async with live_api(settings, ScriptedLLM()) as api, api.client(tenant) as client:
        await add_documents(client, await new_collection(client), widgets="Widgets are blue.")
        found = await client.post("/v1/search", json={"query": "What color are widgets?"})
        assert [chunk["text"] for chunk in found.json()["results"]] == ["Widgets are blue."]
        deep = (await client.get("/health", params={"deep": "1"})).json()
    transactions = next(part for part in deep["components"] if part["name"] == "database.transactions")
    assert transactions["healthy"] is True
    assert "BEGIN" in transactions["detail"]


async def test_health_of_server_with_intact_pipelines_reports_one_round_trip(
    postgres_server: EmbeddedPostgres, make_tenant: Callable[[], str]
) -> None:
    tenant = make_tenant()
    settings = settings_for(postgres_server.app_url, [tenant])
    async with live_api(settings, ScriptedLLM()) as api, api.client(tenant) as client:
        deep = (await client.get("/health", params={"deep": "1"})).json()
        shallow = (await client.get("/health")).json()
    transactions = next(part for part in deep["components"] if part["name"] == "database.transactions")
    assert (transactions["healthy"], transactions["detail"]) == (True, "one round trip")
    assert [part["name"] for part in shallow["components"]] == ["database"]


async def test_proxy_that_splits_transactions_is_rejected(
    postgres_server: EmbeddedPostgres, private_dir: Callable[[str], Path]
) -> None:
    async with SplittingProxy(postgres_server, private_dir("split"), "hidden", forgets_begin=True) as proxy:
        database = Database(proxy.conninfo, pool_size=1)
        with pytest.raises(DatabaseUnavailableError, match="transaction"):
            await database.open()


async def test_pipeline_switched_off_is_not_attempted(
    postgres_server: EmbeddedPostgres, private_dir: Callable[[str], Path], caplog: pytest.LogCaptureFixture
) -> None:
    async with SplittingProxy(postgres_server, private_dir("split"), "refused") as proxy:
        with caplog.at_level("WARNING", logger="vectorforge"):
            async with Database(proxy.conninfo, pool_size=1, pipeline=False) as database:
                assert await database.for_tenant("a").fetch_one(_TENANT) == {"tenant": "a"}
        assert not caplog.records
