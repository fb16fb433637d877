"""The app's database password in Secrets Manager: read once, and again when the database rejects it."""

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from pydantic import SecretStr

from tests.support.aws.fake_aws_faults import AwsFailure, FaultyAws
from tests.support.postgres.pgbouncer import PgBouncer
from vectorforge.aws.database_login import SecretDatabaseLogin, app_password
from vectorforge.config import DatabaseSettings
from vectorforge.db.connection import Database
from vectorforge.errors import ConfigurationError, DatabaseLoginError, SecretsUnavailableError

ROLE = "vectorforge_app"
pytestmark = pytest.mark.pgbouncer


class Rotated:
    """The role's password and the secret, which change together."""

    def __init__(self, aws: FaultyAws, migrator_url: str) -> None:
        self.secret_id = f"vectorforge/{uuid.uuid4().hex[:8]}"
        self._aws = aws
        self._migrator_url = migrator_url

    def exchange(self) -> str:
        """Change the password of both."""
        password = f"canary-{uuid.uuid4().hex}"
        self._aws.put_secret(self.secret_id, {"username": ROLE, "password": password})
        self.alter(password)
        return password

    def alter(self, password: str) -> None:
        """Change the role's password only, and end its connections."""
        with psycopg.connect(self._migrator_url, autocommit=True) as connection:
            connection.execute(f"ALTER ROLE {ROLE} PASSWORD '{password}'".encode())

    @property
    def readings(self) -> int:
        return self._aws.calls.count("GetSecretValue")


@pytest.fixture
def rotated(aws: FaultyAws, make_database: Callable[..., str]) -> Iterator[Rotated]:
    made = Rotated(aws, make_database())
    made.exchange()
    yield made
    with psycopg.connect(made._migrator_url, autocommit=True) as connection:
        connection.execute(f"ALTER ROLE {ROLE} PASSWORD NULL".encode())


@pytest.fixture
def bouncer(postgres_server: Any, private_dir: Callable[[str], Path]) -> Iterator[PgBouncer]:
    with PgBouncer(private_dir("pgb"), postgres_server.socket, asks_for_passwords=True) as started:
        yield started


@pytest.fixture
def url(bouncer: PgBouncer, rotated: Rotated) -> str:
    return bouncer.route(make_conninfo(rotated._migrator_url, user=ROLE))


async def cut(database: Database) -> None:
    """Make the next statement open a connection."""
    async with database.connection() as connection:
        connection.give_up()


async def ask(database: Database) -> None:
    await database.for_tenant("a").fetch_one("SELECT 1", repeatable=True)


async def test_rotated_password_is_read_again_on_reconnect(url: str, rotated: Rotated) -> None:
    async with Database(url, timeout_s=5, password=SecretDatabaseLogin(rotated.secret_id)) as database:
        await ask(database)
        assert rotated.readings == 1
        rotated.exchange()
        await ask(database)  # connections stay open
        assert rotated.readings == 1
        await cut(database)
        await ask(database)
        await cut(database)
        await ask(database)
        assert rotated.readings == 2


async def test_wrong_password_raises_login_error_after_bounded_reads(
    url: str, rotated: Rotated, aws: FaultyAws
) -> None:
    login = SecretDatabaseLogin(rotated.secret_id)
    async with Database(url, timeout_s=3, password=login) as database:
        await ask(database)
        rotated.alter("another")
        await cut(database)
        with pytest.raises(DatabaseLoginError) as caught:
            await ask(database)
        assert "canary" not in str(caught.value)
        assert 1 < rotated.readings < 6  # at most one a second


def test_unreadable_secret_raises_and_is_not_renewed(rotated: Rotated, aws: FaultyAws) -> None:
    login = SecretDatabaseLogin(rotated.secret_id)
    aws.failure = AwsFailure(503, "InternalServiceError")
    with pytest.raises(SecretsUnavailableError):
        login("host", 5432, ROLE)
    aws.recover()
    password = login("host", 5432, ROLE)
    assert login.renew(SecretStr("an older one"))  # another caller has read it meanwhile
    aws.failure = AwsFailure(503, "InternalServiceError")
    assert not login.renew(password)
    with pytest.raises(ConfigurationError, match="not the login of the role"):
        login("host", 5432, "vectorforge_log_writer")


@pytest.mark.parametrize(
    ("url", "fault"),
    [
        ("postgresql://vectorforge_app:old@/db?host=/tmp", "must hold no password"),
        ("postgresql:///db?host=/tmp", "must name the role"),
        ("postgresql://vectorforge_app@db.example/db?sslmode=require", "must have sslmode=verify-full"),
    ],
)
def test_database_url_incompatible_with_secret_is_rejected(url: str, fault: str) -> None:
    with pytest.raises(ConfigurationError, match=f"VECTORFORGE_DATABASE_SECRET_ID a database URL {fault}"):
        Database(url, password=SecretDatabaseLogin("anything")).preload()


def test_database_secret_and_iam_auth_are_mutually_exclusive() -> None:
    with pytest.raises(ConfigurationError, match="set one of the two"):
        app_password(DatabaseSettings(database_secret_id="anything", database_auth="iam"))
    assert isinstance(app_password(DatabaseSettings(database_secret_id="anything")), SecretDatabaseLogin)
