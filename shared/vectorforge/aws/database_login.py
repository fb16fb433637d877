"""How the role that owns the schema logs in: with its URL's password, a secret's, or a token of IAM.

Passwords for RDS from IAM: each connection logs in with a token of its own, signed in this process.

A token is good for 15 minutes; a connection made with it stays.
https://docs.aws.amazon.com/AmazonRDS/latest/UserGuide/UsingWithRDS.IAMDBAuth.html
"""

import asyncio
import logging
import os
import threading
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, ClassVar, TypeVar

from pydantic import SecretStr

from vectorforge.aws.database_secret import SecretDatabaseLogin, read_login
from vectorforge.aws.observability import unlogged
from vectorforge.config import DatabaseSettings
from vectorforge.db.login import PasswordSource, check_conninfo, parsed, with_login, with_made_password
from vectorforge.errors import ConfigurationError, DatabaseLoginError, DatabaseUnavailableError

if TYPE_CHECKING:
    from botocore.credentials import ReadOnlyCredentials
    from botocore.session import Session


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


_EXPIRES_S = 900
"""What RDS takes at most."""
_SCHEME = "https://"  # the signer wants one, and the token has none


class IamDatabaseLogin:
    """Signs a token for each connection, with the credentials that this process has at that moment.

    They are read anew each time, from where boto3 finds them: those of a Lambda function change, and a
    snapshot of it may be restored when they have long expired. So nothing is kept, not even for a moment.
    """

    makes_tokens: ClassVar[bool] = True

    def __init__(self) -> None:
        self._session: Session | None = None
        self._lock = threading.Lock()  # sessions may be shared by threads, but not built by several at once

    def check(self, parameters: Mapping[str, str]) -> None:
        """Raises ConfigurationError unless the server proves who it is."""
        check_conninfo(parameters, setting="VECTORFORGE_DATABASE_AUTH=iam")

    def renew(self, refused: SecretStr) -> bool:
        """Every token is a new one, and the pool tries again: nothing is gained by doing so at once."""
        return False

    def preload(self) -> None:
        """Import the signer, half a second of a function's init phase; reads no credentials."""
        import botocore.auth
        import botocore.awsrequest  # noqa: F401 - for the first token

        self._aws()

    def __call__(self, host: str, port: int, user: str) -> SecretStr:
        """The token with which a role logs in at an address.

        Signed as ``generate_db_auth_token`` of boto3's RDS client does it, without that client: its model
        of the RDS API takes longer to load than the rest together.

        Args:
            host: Endpoint of the proxy or instance.
            port: Its port.
            user: Role in the database.

        Raises:
            ConfigurationError: There are no AWS credentials, or no region.
            DatabaseUnavailableError: The credentials cannot be fetched now.
        """
        from botocore.auth import SigV4QueryAuth
        from botocore.awsrequest import AWSRequest

        with unlogged("botocore.auth", "botocore.credentials"):
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
            # Not get_credentials(), which remembers the first ones.
            found = self._aws().get_component("credential_provider").load_credentials()
            frozen = found.get_frozen_credentials() if found is not None else None
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
    """What makes the passwords of app and log writer; None when their URLs hold them."""
    return IamDatabaseLogin() if settings.database_auth == "iam" else None


def app_password(settings: DatabaseSettings) -> PasswordSource | None:
    """What gives the app's password; None when its URL holds it.

    Raises:
        ConfigurationError: Two settings say different things.
    """
    if settings.database_secret_id is None:
        return database_password(settings)
    if settings.database_auth == "iam":
        raise ConfigurationError(
            "VECTORFORGE_DATABASE_SECRET_ID holds a password, and VECTORFORGE_DATABASE_AUTH=iam takes none: "
            "set one of the two."
        )
    return SecretDatabaseLogin(settings.database_secret_id)
