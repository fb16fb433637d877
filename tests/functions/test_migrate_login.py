"""Login of the migrate function on RDS: with its master user's secret, later with IAM tokens."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from trustme import CA

from tests.functions.migrate_process import Stack, event, fail_in_process, invoke
from tests.support.aws.fake_aws_faults import FaultyAws
from tests.support.aws.fake_rds import FakeRds, keys_in
from tests.support.aws.lambda_context import LambdaContext
from vectorforge.aws.database_login import IamDatabaseLogin
from vectorforge.aws.handlers.migrate import MigrateFunction
from vectorforge.db.connection import Database
from vectorforge.db.schema.migrate import read_migrations
from vectorforge.local.postgres import EmbeddedPostgres

MASTER, FIRST, SECOND = "vectorforge_owner", "canary-first-password", "canary-second-password"
SECRET = "rds!db-11111111-2222-3333-4444-555555555555"
NAMES = [migration.name for migration in read_migrations()]


@pytest.fixture(scope="module")
def cluster(private_dir: Callable[[str], Path]) -> Iterator[EmbeddedPostgres]:
    """Create a server like RDS's: its master user may create roles and databases, but is not a superuser."""
    server = EmbeddedPostgres(private_dir("rds") / "data", settings={"fsync": "off"})
    server.start()
    with psycopg.connect(server.migrator_url, autocommit=True) as connection:
        connection.execute("CREATE ROLE rds_superuser NOLOGIN")
        connection.execute(f"CREATE ROLE {MASTER} LOGIN CREATEROLE CREATEDB IN ROLE rds_superuser".encode())
    yield server
    server.stop(force=True)


@dataclass(frozen=True, slots=True)
class Rds:
    """One database of the cluster, behind its endpoint, and the secret of its master user."""

    endpoint: FakeRds
    root: Path
    aws: FaultyAws

    def environment(self, *, auth: str = "iam", url: str | None = None) -> dict[str, str]:
        """Return the migrate function's environment, as set by the stack."""
        return {
            **self.aws.environment,
            "VECTORFORGE_DATABASE_AUTH": auth,
            "VECTORFORGE_MIGRATOR_DATABASE_URL": url or self.endpoint.url(self.root),
            "VECTORFORGE_MIGRATOR_SECRET_ID": SECRET,
        }

    def exchange(self, password: str) -> None:
        """Rotate the master user's password, as RDS does."""
        self.endpoint.passwords[MASTER] = password
        self.aws.put_secret(SECRET, {"username": MASTER, "password": password})


@pytest.fixture(scope="module")
def faulty_aws() -> Iterator[FaultyAws]:
    with FaultyAws() as server:
        yield server


@pytest.fixture
async def rds(
    cluster: EmbeddedPostgres, faulty_aws: FaultyAws, private_dir: Callable[[str], Path]
) -> AsyncIterator[Rds]:
    with psycopg.connect(cluster.migrator_url, autocommit=True) as connection:
        connection.execute("CREATE ROLE rds_iam NOLOGIN")
        connection.execute("GRANT rds_iam TO rds_superuser WITH ADMIN OPTION")
        connection.execute(f"CREATE DATABASE rag OWNER {MASTER}".encode())
    superuser_url = make_conninfo(cluster.migrator_url, dbname="rag")
    with psycopg.connect(superuser_url, autocommit=True) as connection:
        connection.execute("CREATE EXTENSION vector")  # permitted to the master user on RDS
    authority, root = CA(), private_dir("root") / "database.pem"
    authority.cert_pem.write_to_path(root)
    faulty_aws.recover()
    async with FakeRds(superuser_url, authority, keys_in(faulty_aws.environment)) as endpoint:
        made = Rds(endpoint, root, faulty_aws)
        made.exchange(FIRST)
        yield made
    with psycopg.connect(cluster.migrator_url, autocommit=True) as connection:
        connection.execute("DROP DATABASE rag WITH (FORCE)")
        connection.execute("DROP ROLE rds_iam")


def how_they_came(rds: Rds) -> list[tuple[str, str]]:
    """Return role and method ("password" or "token") of the accepted logins."""
    return [
        (login.user, "token" if "X-Amz-Signature" in login.password else "password")
        for login in rds.endpoint.logins
        if login.refused is None
    ]


# The master user is not a superuser. After the first migration its password is no longer valid: the roles
# that it created have rds_iam, so that it counts as a member of it.
async def test_stack_on_rds_migrates_on_create_and_update(
    rds: Rds, stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = rds.environment()
    _, printed = await invoke(environment, (stack.request("migrate_cloudformation_create"), 60_000))
    [created] = stack.answers
    assert (created["Status"], created["Reason"]) == ("SUCCESS", "")
    assert created["Data"]["Applied"] == str(len(NAMES))
    assert how_they_came(rds) == [(MASTER, "password")] * 2

    for name, value in rds.aws.environment.items():
        monkeypatch.setenv(name, value)
    for role in ("vectorforge_app", "vectorforge_log_writer"):
        url = rds.endpoint.url(rds.root, user=role)
        async with Database(url, pool_size=1, password=IamDatabaseLogin()) as database:
            assert (await database.health()).healthy

    rds.endpoint.logins.clear()
    answers, printed_later = await invoke(
        environment,
        (stack.request("migrate_cloudformation_update"), 60_000),
        (event("migrate_invoke_check"), 60_000),
        (stack.request("migrate_cloudformation_delete"), 60_000),
    )
    assert [answer["Status"] for answer in stack.answers] == ["SUCCESS"] * 3
    assert stack.answers[1]["Data"] == {"Version": str(len(NAMES)), "Applied": "0"}
    assert answers[1] == {"pending": []}
    assert set(how_they_came(rds)) == {(MASTER, "token")}
    assert "canary" not in printed + printed_later + str(stack.answers)
    assert "X-Amz" not in printed + printed_later + str(stack.answers)


# Takes longer than a function may run.
async def test_migrate_command_connects_like_the_function(rds: Rds) -> None:
    async def migrate() -> object:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "vectorforge.cli", "migrate", "--json"),
            env={"PATH": os.environ["PATH"], "HOME": "/nonexistent", **rds.environment()},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, err = await process.communicate()
        assert process.returncode == 0, err.decode()
        return json.loads(out)

    assert await migrate() == {"applied": NAMES}
    assert await migrate() == {"applied": []}
    came = how_they_came(rds)
    assert came[:2] == [(MASTER, "password")] * 2
    assert set(came[2:]) == {(MASTER, "token")}


async def test_password_auth_grants_no_rds_iam(rds: Rds, stack: Stack) -> None:
    environment = rds.environment(auth="password")
    await invoke(
        environment,
        (stack.request("migrate_cloudformation_create"), 60_000),
        (stack.request("migrate_cloudformation_update"), 60_000),
    )
    assert [answer["Status"] for answer in stack.answers] == ["SUCCESS"] * 2
    assert set(how_they_came(rds)) == {(MASTER, "password")}


async def test_rotated_password_is_read_again(rds: Rds, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in rds.environment(auth="password").items():
        monkeypatch.setenv(name, value)
    function = MigrateFunction()
    for password in (FIRST, SECOND):
        rds.exchange(password)
        found = await asyncio.to_thread(function, {"action": "check"}, LambdaContext())
        assert found == {"pending": NAMES}
    assert [login.password for login in rds.endpoint.logins] == [FIRST, SECOND]


async def test_login_error_reason_hides_secret(
    rds: Rds, stack: Stack, capfd: pytest.CaptureFixture[str]
) -> None:
    secret: Mapping[str, object]
    change: dict[str, str]
    for secret, change, reason in (
        (
            {"username": MASTER, "password": SECOND},
            {"auth": "password"},
            "rejected the migrator's role or password",
        ),
        (
            {"username": MASTER, "password": SECOND},
            {},
            "a token of IAM as well. Allow this process rds-db:connect",
        ),
        ({"username": MASTER}, {}, f"Secret {SECRET} must be a JSON object of username and password"),
        ({"username": MASTER, "password": 7}, {}, "of username and password"),
        (
            {"username": MASTER, "password": SECOND},
            {"url": rds.endpoint.url(rds.root, user=MASTER)},
            "no role",
        ),
        (
            {"username": MASTER, "password": SECOND},
            {"url": "canary"},
            "a URL that PostgreSQL understands",
        ),
    ):
        rds.aws.put_secret(SECRET, secret)
        found, printed = await fail_in_process(rds.environment(**change), stack, capfd)
        assert reason in found
        assert "canary" not in printed


async def test_unreadable_secret_error_names_setting(rds: Rds, stack: Stack) -> None:
    environment = {**rds.environment(), "VECTORFORGE_MIGRATOR_SECRET_ID": "another"}
    await invoke(environment, (stack.request("migrate_cloudformation_create"), 30_000))
    assert "Secret another is not there. Check VECTORFORGE_MIGRATOR_SECRET_ID" in stack.answers[0]["Reason"]
    assert rds.endpoint.logins == []


async def test_token_is_sent_to_verified_server_only(rds: Rds, stack: Stack) -> None:
    rds.endpoint.passwords[MASTER] = "another"
    url = rds.endpoint.url(rds.root, sslmode="require")
    await invoke(rds.environment(url=url), (stack.request("migrate_cloudformation_create"), 30_000))
    assert "sslmode=verify-full" in stack.answers[0]["Reason"]
    assert len(rds.endpoint.logins) == 1
