"""Database logins on AWS: a secret in Secrets Manager, or IAM tokens signed in this process.

An IAM token is valid for 15 minutes; a connection opened with it stays open.
https://docs.aws.amazon.com/AmazonRDS/latest/UserGuide/UsingWithRDS.IAMDBAuth.html
"""

import asyncio
import logging
import os
import threading
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, ClassVar, TypeVar

from pydantic import SecretStr

from vectorforge.aws.clients import AwsClients, suppress_logs
from vectorforge.aws.secret_readers import secret_reader
from vectorforge.config import DatabaseSettings
from vectorforge.db.login import PasswordSource, check_conninfo, parsed, with_login, with_made_password
from vectorforge.errors import (
    ConfigurationError,
    DatabaseLoginError,
    DatabaseUnavailableError,
    VectorForgeError,
)

if TYPE_CHECKING:
    from botocore.credentials import ReadOnlyCredentials
    from botocore.session import Session

logger = logging.getLogger(__name__)

_SETTING = "VECTORFORGE_DATABASE_SECRET_ID"
_PAUSE_S = 1.0
"""Minimum time between two reads for rejected passwords: many connections fail at the same time."""


def read_login(secret_id: str, *, setting: str) -> tuple[str, SecretStr]:
    """Return role and password from the secret of a name or ARN, which ``setting`` holds.

    Raises:
        ConfigurationError: The secret is missing, not readable or not a login.
        SecretsUnavailableError: AWS does not respond.
    """
    clients = AwsClients(connect_timeout_s=1.0, read_timeout_s=2.0, max_attempts=2)
    try:
        fields = secret_reader(clients, secret_id, setting=setting, content="username and password")()
    finally:
        clients.close()
    username, password = fields.get("username"), fields.get("password")
    if not (isinstance(username, str) and username and isinstance(password, str) and password):
        raise ConfigurationError(f"Secret {secret_id} must be a JSON object of username and password.")
    return username, SecretStr(password)


class SecretDatabaseLogin:
    """Password of one role from a secret, read on first use and again after a server rejected it.

    Rotation (``ALTER ROLE``) ends no connection: the next new connection needs the new password.

    Args:
        secret_id: Name or ARN.
    """

    makes_tokens: ClassVar[bool] = False

    def __init__(self, secret_id: str) -> None:
        self._secret_id = secret_id
        self._login: tuple[str, SecretStr] | None = None
        self._read_at = float("-inf")
        self._lock = threading.Lock()  # held while the secret is read, once for all waiting threads

    def check(self, parameters: Mapping[str, str]) -> None:
        """Raise ConfigurationError unless the connection verifies the server or is local."""
        check_conninfo(parameters, setting=_SETTING, sockets=True)

    def __call__(self, host: str, port: int, user: str) -> SecretStr:
        """Return the password as last read.

        Raises:
            ConfigurationError: As ``read_login``, or the secret is of another role.
            SecretsUnavailableError: As ``read_login``.
        """
        with self._lock:
            username, password = self._login or self._read()
        if username != user:
            raise ConfigurationError(f"Secret {self._secret_id} is not the login of the role in the URL.")
        return password

    def renew(self, refused: SecretStr) -> bool:
        """Return True if the secret has another password; reads it at most once a second. Never raises."""
        with self._lock:
            if self._login is None or self._login[1] != refused:
                return True
            if time.monotonic() - self._read_at < _PAUSE_S:
                return False
            try:
                _, password = self._read()
            except VectorForgeError as exc:
                logger.warning("%s The rejected password cannot be renewed.", exc.message)
                return False
        if password == refused:
            logger.warning("Secret %s holds the password that the database rejected", self._secret_id)
            return False
        logger.info("The database rejected the password; using a new one")
        return True

    def preload(self) -> None:
        """Import the packages that read the secret."""
        import aws_lambda_powertools.utilities.parameters  # noqa: F401
        import boto3  # noqa: F401

    def _read(self) -> tuple[str, SecretStr]:
        self._read_at = time.monotonic()
        self._login = read_login(self._secret_id, setting=_SETTING)
        return self._login


T = TypeVar("T")


async def as_migrator(settings: DatabaseSettings, work: Callable[[str], Awaitable[T]]) -> T:
    """Run work on the database as the role that owns the schema.

    The password is the URL's or, with a secret, the current one of the secret. If it is rejected and
    ``database_auth`` is "iam", a token replaces it: RDS accepts only tokens for members of ``rds_iam``, and
    PostgreSQL makes the creator of a role a member of it. Once the login roles have ``rds_iam``, so has the
    master user who created them, and its password stops working.
    https://www.postgresql.org/docs/17/role-attributes.html, https://www.postgresql.org/docs/17/auth-pg-hba-conf.html

    Args:
        settings: Settings with the migrator's URL.
        work: Receives a connection string with the password. Called again with another one if it fails with
            ``DatabaseLoginError``.

    Raises:
        ConfigurationError: No URL is set, or it cannot be parsed; the secret is missing, not readable or not
            a login; the URL has a role or a password besides the secret's; or no token can be signed.
        SecretsUnavailableError: AWS does not respond.
        DatabaseLoginError: The database rejected password and token.
    """
    url = await asyncio.to_thread(_migrator_url, settings)
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


def _migrator_url(settings: DatabaseSettings) -> str:
    if settings.migrator_database_url is None:
        raise ConfigurationError("Set VECTORFORGE_MIGRATOR_DATABASE_URL to the role that owns the schema.")
    url = settings.migrator_database_url.get_secret_value()
    parameters = parsed(url, variable="VECTORFORGE_MIGRATOR_DATABASE_URL")
    if settings.migrator_secret_id is None:
        return url
    if {"user", "password"} & parameters.keys():
        raise ConfigurationError(
            "VECTORFORGE_MIGRATOR_DATABASE_URL must hold no role and no password, since "
            "VECTORFORGE_MIGRATOR_SECRET_ID names them."
        )
    user, password = read_login(settings.migrator_secret_id, setting="VECTORFORGE_MIGRATOR_SECRET_ID")
    return with_login(url, user=user, password=password.get_secret_value())


_EXPIRES_S = 900
"""Maximum that RDS accepts."""
_SCHEME = "https://"  # required by the signer, not part of the token


class IamDatabaseLogin:
    """Signer of a token for each connection, with the current AWS credentials of this process.

    Credentials are read from boto3's chain each time and never cached: those of a Lambda function change, and
    a snapshot may be restored long after they expired.
    """

    makes_tokens: ClassVar[bool] = True

    def __init__(self) -> None:
        self._session: Session | None = None
        self._lock = threading.Lock()  # sessions may be shared by threads, but not built by several at once

    def check(self, parameters: Mapping[str, str]) -> None:
        """Raise ConfigurationError unless the connection verifies the server's certificate."""
        check_conninfo(parameters, setting="VECTORFORGE_DATABASE_AUTH=iam")

    def renew(self, refused: SecretStr) -> bool:
        """Return False: every token is new, and the pool retries anyway."""
        return False

    def preload(self) -> None:
        """Import the signer, half a second of a function's init phase; reads no credentials."""
        import botocore.auth
        import botocore.awsrequest  # noqa: F401 - for the first token

        self._aws()

    def __call__(self, host: str, port: int, user: str) -> SecretStr:
        """Return the token of a role for an address.

        Signed like ``generate_db_auth_token`` of boto3's RDS client, without loading that client's model of
        the RDS API, which takes longer than the rest together.

        Raises:
            ConfigurationError: There are no AWS credentials, or no region.
            DatabaseUnavailableError: The credentials cannot be fetched now.
        """
        from botocore.auth import SigV4QueryAuth
        from botocore.awsrequest import AWSRequest

        with suppress_logs("botocore.auth", "botocore.credentials"):
            signer = SigV4QueryAuth(self._credentials(), "rds-db", self._region(), expires=_EXPIRES_S)
            query = {"Action": "connect", "DBUser": user}
            request = AWSRequest(method="GET", url=f"{_SCHEME}{host}:{port}/", params=query)
            signer.add_auth(request)
        return SecretStr(request.url.removeprefix(_SCHEME))

    def _aws(self) -> "Session":
        from botocore.session import Session

        with self._lock:
            if self._session is None:
                self._session = Session()
                self._session.get_component("credential_provider")
            return self._session

    def _credentials(self) -> "ReadOnlyCredentials":
        from botocore.exceptions import BotoCoreError, CredentialRetrievalError, MetadataRetrievalError

        try:
            # Not get_credentials(), which caches the first ones.
            loaded = self._aws().get_component("credential_provider").load_credentials()
            frozen = loaded.get_frozen_credentials() if loaded is not None else None
        except (CredentialRetrievalError, MetadataRetrievalError) as exc:
            raise DatabaseUnavailableError(
                "The AWS credentials for the database cannot be read now."
            ) from exc
        except BotoCoreError as exc:
            raise ConfigurationError(
                f"The AWS credentials for the database cannot be used ({type(exc).__name__})."
            ) from exc
        if frozen is None:
            raise ConfigurationError(
                "VECTORFORGE_DATABASE_AUTH is iam, and there are no AWS credentials to sign with."
            )
        return frozen

    def _region(self) -> str:
        region = os.environ.get("AWS_REGION") or self._aws().get_config_variable("region")
        if not region:
            raise ConfigurationError("VECTORFORGE_DATABASE_AUTH is iam: set AWS_REGION to the database's.")
        return str(region)


def database_password(settings: DatabaseSettings) -> PasswordSource | None:
    """Return the source of the passwords of app and log writer; None if their URLs hold them."""
    return IamDatabaseLogin() if settings.database_auth == "iam" else None


def app_password(settings: DatabaseSettings) -> PasswordSource | None:
    """Return the source of the app's password; None if its URL holds it.

    Raises:
        ConfigurationError: Two settings contradict each other.
    """
    if settings.database_secret_id is None:
        return database_password(settings)
    if settings.database_auth == "iam":
        raise ConfigurationError(
            "VECTORFORGE_DATABASE_SECRET_ID holds a password, and VECTORFORGE_DATABASE_AUTH=iam takes none: "
            "set one of the two."
        )
    return SecretDatabaseLogin(settings.database_secret_id)
