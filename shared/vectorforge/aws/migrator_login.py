"""How the role that owns the schema logs in: with its URL's password, a secret's, or a token of IAM."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from vectorforge.aws.database_login import IamDatabaseLogin
from vectorforge.aws.database_secret import read_login
from vectorforge.config import DatabaseSettings
from vectorforge.db.conninfo import parsed, with_login
from vectorforge.db.login import with_made_password
from vectorforge.errors import ConfigurationError, DatabaseLoginError

logger = logging.getLogger(__name__)

T = TypeVar("T")


async def as_migrator(settings: DatabaseSettings, work: Callable[[str], Awaitable[T]]) -> T:
    """Do something with the database as the role that owns the schema.

    The password is the URL's or, with a secret, the one that it holds now. Where that is refused and
    ``database_auth`` is "iam", a token takes its place. For RDS wants nothing but tokens of a member of
    ``rds_iam``, and PostgreSQL makes whoever creates a role a member of it: once the login roles have
    ``rds_iam``, the master user who created them has it as well, and his password is good no longer.
    https://www.postgresql.org/docs/17/role-attributes.html, https://www.postgresql.org/docs/17/auth-pg-hba-conf.html

    Args:
        settings: With the migrator's URL.
        work: Is given a connection string that holds the password. Called a second time, with another one,
            when it fails with ``DatabaseLoginError``.

    Raises:
        ConfigurationError: No URL is set; the secret is not there, may not be read or is not a login; the URL
            has a role or a password besides the secret's; or no token can be made for it.
        SecretsUnavailableError: AWS does not answer.
        DatabaseLoginError: Neither was let in.
    """
    if settings.migrator_database_url is None:
        raise ConfigurationError("Set VECTORFORGE_MIGRATOR_DATABASE_URL to the role that owns the schema.")
    url = settings.migrator_database_url.get_secret_value()
    if settings.migrator_secret_id is not None:
        url = await asyncio.to_thread(_with_secret, url, settings.migrator_secret_id)
    try:
        return await work(url)
    except DatabaseLoginError:
        if settings.database_auth != "iam":
            raise
    logger.info("The migrator's password was refused; it logs in with a token of IAM")
    try:
        return await work(await asyncio.to_thread(with_made_password, IamDatabaseLogin(), url))
    except DatabaseLoginError as exc:
        raise DatabaseLoginError(
            "The database refused the migrator's password, and a token of IAM as well. Allow this process "
            "rds-db:connect for the migrator's role."
        ) from exc


def _with_secret(url: str, secret_id: str) -> str:
    if {"user", "password"} & parsed(url).keys():
        raise ConfigurationError(
            "VECTORFORGE_MIGRATOR_DATABASE_URL must hold no role and no password, since "
            "VECTORFORGE_MIGRATOR_SECRET_ID names them."
        )
    user, password = read_login(secret_id, setting="VECTORFORGE_MIGRATOR_SECRET_ID")
    return with_login(url, user=user, password=password.get_secret_value())
