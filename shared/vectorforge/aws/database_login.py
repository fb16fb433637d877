"""Passwords for RDS from IAM: each connection logs in with a token of its own, signed in this process.

A token is good for 15 minutes; a connection made with it stays.
https://docs.aws.amazon.com/AmazonRDS/latest/UserGuide/UsingWithRDS.IAMDBAuth.html
"""

import os
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from pydantic import SecretStr

from vectorforge.aws.database_secret import SecretDatabaseLogin
from vectorforge.aws.unlogged import unlogged
from vectorforge.config import DatabaseSettings
from vectorforge.db.login import PasswordSource, check_conninfo
from vectorforge.errors import ConfigurationError, DatabaseUnavailableError

if TYPE_CHECKING:
    from botocore.credentials import ReadOnlyCredentials
    from botocore.session import Session

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
