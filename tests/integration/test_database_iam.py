"""Logins with IAM tokens at an endpoint that checks them as RDS does, over TLS."""

import asyncio
import hashlib
import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import psycopg
import pytest
from trustme import CA

from infra.emulator.lambda_service.function_configuration import FunctionConfiguration
from infra.emulator.lambda_service.function_process import FunctionProcess
from tests.conftest import ObservedPostgres
from tests.integration.conftest import MakeWriter
from tests.support.aws.credentials_endpoint import CredentialsEndpoint
from tests.support.aws.fake_aws import REGION
from tests.support.aws.fake_rds import FakeRds, keys_in
from tests.support.aws.iam_token import AwsKeys
from tests.support.aws.sqs_events import Queue
from tests.support.http.live_api import key_of, settings_for
from tests.support.rag.query_logs import make_log, message
from vectorforge.aws.database_login import IamDatabaseLogin
from vectorforge.bootstrap import Application
from vectorforge.config import DatabaseSettings
from vectorforge.db.connection import Database
from vectorforge.db.repositories.query_log_repo import QueryLog
from vectorforge.errors import ConfigurationError, DatabaseLoginError, DatabaseUnavailableError

APP, LOG_WRITER = "vectorforge_app", "vectorforge_log_writer"


@pytest.fixture(scope="module")
def iam_roles(postgres_server: ObservedPostgres) -> Iterator[None]:
    """Make the login roles members of ``rds_iam``, as after migrating on RDS."""
    with psycopg.connect(postgres_server.migrator_url, autocommit=True) as connection:
        connection.execute("CREATE ROLE rds_iam NOLOGIN")
        connection.execute(f"GRANT rds_iam TO {APP}, {LOG_WRITER}".encode())
        yield
        connection.execute("DROP ROLE rds_iam")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "database.pem"


@pytest.fixture
async def rds(
    postgres_server: ObservedPostgres, iam_roles: None, root: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[FakeRds]:
    """Start the endpoint; this process has the credentials "first", and IAM accepts "first" and "second"."""
    authority = CA()
    authority.cert_pem.write_to_path(root)
    monkeypatch.setenv("AWS_REGION", REGION)
    have(monkeypatch, "first")
    keys = {name: AwsKeys(f"secret of {name}", f"session of {name}") for name in ("first", "second")}
    async with FakeRds(postgres_server.migrator_url, authority, keys) as endpoint:
        yield endpoint


def have(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Change the credentials of this process."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", name)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", f"secret of {name}")
    monkeypatch.setenv("AWS_SESSION_TOKEN", f"session of {name}")


def database(rds: FakeRds, root: Path, *, timeout_s: float = 20) -> Database:
    return Database(rds.url(root, user=APP), pool_size=3, timeout_s=timeout_s, password=IamDatabaseLogin())


def end_connections(rds: FakeRds) -> None:
    with psycopg.connect(rds.superuser_url, autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE usename = 'vectorforge_app'"
        )


def signed_with(rds: FakeRds) -> list[str]:
    """Return the access key of each accepted login."""
    return [
        login.password.partition("X-Amz-Credential=")[2].partition("%2F")[0]
        for login in rds.logins
        if login.refused is None
    ]


async def test_connections_use_their_own_iam_token(
    rds: FakeRds, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with database(rds, root) as opened:
        tenant = opened.for_tenant("a")
        await asyncio.gather(*(tenant.fetch_one("SELECT pg_sleep(0.3)") for _ in range(3)))
        before = signed_with(rds)
        assert len(before) > 2
        assert set(before) == {"first"}
        # The function's credentials change, and RDS no longer accepts the old ones.
        have(monkeypatch, "second")
        del rds.keys["first"]
        end_connections(rds)
        assert await tenant.fetch_one("SELECT session_user::text AS role") == {"role": APP}
        assert set(signed_with(rds)[len(before) :]) == {"second"}
    assert [login.refused for login in rds.logins if login.refused] == []


# SQLSTATE 28000: the token has expired in transit, or its credentials are no longer valid.
async def test_rejected_token_is_replaced_and_retried(
    rds: FakeRds, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with database(rds, root) as opened:
        tenant = opened.for_tenant("a")
        await tenant.fetch_one("SELECT 1")
        del rds.keys["first"]
        end_connections(rds)

        async def exchange() -> None:
            while not any(login.refused for login in rds.logins):  # noqa: ASYNC110 - the endpoint has no events
                await asyncio.sleep(0.02)
            have(monkeypatch, "second")

        answer, _ = await asyncio.gather(tenant.fetch_one("SELECT 1 AS n"), exchange())
        assert answer == {"n": 1}
    assert "signed with unknown credentials" in {login.refused for login in rds.logins}
    assert signed_with(rds)[-1] == "second"


async def test_role_without_iam_login_raises_login_error(rds: FakeRds, root: Path) -> None:
    rds.refuse_next = 1
    with pytest.raises(DatabaseLoginError, match=r"rds-db:connect.*rds_iam") as caught:
        await database(rds, root).open()
    assert "X-Amz" not in str(caught.value) + str(caught.value.__cause__)
    async with database(rds, root, timeout_s=1.5) as opened:
        rds.refuse_next = 100
        with pytest.raises(DatabaseLoginError, match="rds-db:connect"):
            await opened.for_tenant("a").fetch_one("SELECT 1")


async def test_process_without_credentials_fails_and_recovers_without_restart(
    rds: FakeRds, root: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    async with database(rds, root, timeout_s=60) as opened:
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "")
        end_connections(rds)
        with pytest.raises(DatabaseUnavailableError, match="no AWS credentials"):
            await opened.for_tenant("a").fetch_one("SELECT 1")
        with pytest.raises(ConfigurationError, match="no AWS credentials"):
            await database(rds, root).open()
        have(monkeypatch, "second")
        while not (await opened.health()).healthy:  # noqa: ASYNC110 - the database has no events
            await asyncio.sleep(0.1)


async def test_app_and_log_writer_log_in_with_iam_tokens(
    rds: FakeRds,
    root: Path,
    queue: Queue,
    make_writer: MakeWriter,
    make_tenant: Callable[[], str],
    rows: Callable[[str], Awaitable[list[QueryLog]]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("VECTORFORGE_DATABASE_AUTH", "iam")
    rds.keys |= keys_in(os.environ)  # accepted by the queue's emulator
    config = settings_for(rds.url(root, user=APP))
    settings = DatabaseSettings(database_url=config.database.database_url)
    async with Application.build(config.model_copy(update={"database": settings})) as application:
        assert (await application.database.health()).healthy
    tenant, log = make_tenant(), make_log()
    writer = make_writer(rds.url(root, user=LOG_WRITER))
    queue.send(message(tenant, log))
    await asyncio.to_thread(queue.deliver, writer)
    assert [row.id for row in await rows(tenant)] == [log.id]
    assert {login.user for login in rds.logins if login.refused is None} == {APP, LOG_WRITER}
    assert not any(login.refused for login in rds.logins)


# Init phase, snapshot, restore, first request: nothing is fetched or signed before the restore.
async def test_lambda_snapshot_contains_no_token_or_credentials(rds: FakeRds, root: Path) -> None:
    with CredentialsEndpoint() as endpoint:
        rds.keys = endpoint.keys
        configuration = FunctionConfiguration(
            handler="functions.query.handler.handler",
            environment={
                **endpoint.environment,
                "AWS_REGION": REGION,
                "AWS_DEFAULT_REGION": REGION,
                "VECTORFORGE_DATABASE_AUTH": "iam",
                "VECTORFORGE_DATABASE_URL": rds.url(root, user=APP),
                "VECTORFORGE_API_KEYS": json.dumps({hashlib.sha256(key_of("a").encode()).hexdigest(): "a"}),
                "VECTORFORGE_DEFAULT_EMBEDDING_PROVIDER": "openai",
                "VECTORFORGE_OPENAI_API_KEY": "sk-canary",
                "VECTORFORGE_RESPONSE_MODE": "buffered",
            },
            init_timeout_s=60.0,  # this machine is not Lambda
            snap_start=True,
        )
        async with FunctionProcess(configuration) as function:
            await function.start()  # to the snapshot, and from it
            assert (endpoint.keys, rds.logins) == ({}, [])
            event = json.loads(
                (Path(__file__).parents[2] / "events/query_function_url_health.json").read_text()
            )
            answer = await (await function.invoke(event)).result()
        assert answer["statusCode"] == 200
        assert rds.logins
        assert set(signed_with(rds)) <= set(endpoint.keys)
        assert "X-Amz" not in function.output.text
