"""Logins of the database that are kept in Secrets Manager, in the form that RDS gives them."""

import logging
import threading
import time
from collections.abc import Mapping
from typing import ClassVar

from pydantic import SecretStr

from vectorforge.aws.clients import AwsClients
from vectorforge.aws.secret_readers import secret_reader
from vectorforge.db.login import check_conninfo
from vectorforge.errors import ConfigurationError, VectorForgeError

logger = logging.getLogger(__name__)

_SETTING = "VECTORFORGE_DATABASE_SECRET_ID"
_PAUSE_S = 1.0
"""Between two readings because of a refused password: many connections are refused at the same time."""


def read_login(secret_id: str, *, setting: str) -> tuple[str, SecretStr]:
    """Role and password as the secret has them now.

    Args:
        secret_id: Name or ARN.
        setting: The variable that names the secret.

    Raises:
        ConfigurationError: It is not there, may not be read or is not a login.
        SecretsUnavailableError: AWS does not answer.
    """
    clients = AwsClients(connect_timeout_s=1.0, read_timeout_s=2.0, max_attempts=2)
    try:
        read = secret_reader(
            clients, secret_id, max_age_s=1, setting=setting, content="username and password"
        )
        fields = read()
    finally:
        clients.close()
    username, password = fields.get("username"), fields.get("password")
    if not (isinstance(username, str) and username and isinstance(password, str) and password):
        raise ConfigurationError(f"Secret {secret_id} must be a JSON object of username and password.")
    return username, SecretStr(password)


class SecretDatabaseLogin:
    """The password of one role, read when it is first needed and once more when a server has refused it.

    Rotation (``ALTER ROLE``) ends no connection: the new password is needed when the next one is made.

    Args:
        secret_id: Name or ARN.
    """

    makes_tokens: ClassVar[bool] = False

    def __init__(self, secret_id: str) -> None:
        self._secret_id = secret_id
        self._login: tuple[str, SecretStr] | None = None
        self._read_at = float("-inf")
        self._lock = threading.Lock()  # held while the secret is read: who waits for it takes what was read

    def check(self, parameters: Mapping[str, str]) -> None:
        """Raises ConfigurationError unless the server proves who it is, or is on this machine."""
        check_conninfo(parameters, setting=_SETTING, sockets=True)

    def __call__(self, host: str, port: int, user: str) -> SecretStr:
        """The password as last read.

        Raises:
            ConfigurationError: As ``read_login``, or it is another role's.
            SecretsUnavailableError: As ``read_login``.
        """
        with self._lock:
            username, password = self._login or self._read()
        if username != user:
            raise ConfigurationError(f"Secret {self._secret_id} is not the login of the role in the URL.")
        return password

    def renew(self, refused: SecretStr) -> bool:
        """Whether the secret holds another password now; read at most once a second. Never raises."""
        with self._lock:
            if self._login is None or self._login[1] != refused:
                return True
            if time.monotonic() - self._read_at < _PAUSE_S:
                return False
            try:
                _, password = self._read()
            except VectorForgeError as exc:
                logger.warning("%s The password that was refused cannot be renewed.", exc.message)
                return False
        if password == refused:
            logger.warning("Secret %s holds the password that the database refused", self._secret_id)
            return False
        logger.info("The database refused its password; going on with a new one")
        return True

    def preload(self) -> None:
        """Import what reads the secret."""
        import aws_lambda_powertools.utilities.parameters  # noqa: F401
        import boto3  # noqa: F401

    def _read(self) -> tuple[str, SecretStr]:
        self._read_at = time.monotonic()
        self._login = read_login(self._secret_id, setting=_SETTING)
        return self._login
