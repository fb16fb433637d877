"""Providers' keys: fixed ones, and ones that may be exchanged while the process lives.

Short-lived tokens that a command prints, such as ``az account get-access-token``.
"""

import asyncio
import logging
import shlex
import subprocess
import threading
import time
from enum import StrEnum
from typing import Protocol

from pydantic import SecretStr

from vectorforge.errors import ConfigurationError


class KeyOrigin(StrEnum):
    """Where a key was found."""

    ENVIRONMENT = "environment"
    SECRET = "secret"  # noqa: S105 - the name of a place, not a password
    PARAMETER = "parameter"
    COMMAND = "command"


class Credentials(Protocol):
    """One key. Whoever uses it asks for it before each request, and does not keep it."""

    @property
    def origin(self) -> KeyOrigin:
        """Where the key was found."""

    async def current(self) -> SecretStr:
        """The key as last read; read again first when it is older than allowed.

        Never raises: when it cannot be read again, the last one is as good as any.
        """

    async def refresh(self, refused: SecretStr) -> SecretStr:
        """The key to use instead of one that the vendor refused; the same one when there is no other.

        Safe to call for every refusal: keys are read again at most once for many refusals of one key.

        Args:
            refused: The key that was sent.
        """


class FixedCredentials:
    """A key that stays what it is for the life of the process."""

    def __init__(self, key: SecretStr | str) -> None:
        self._key = key if isinstance(key, SecretStr) else SecretStr(key)

    @property
    def key(self) -> SecretStr:
        """The key."""
        return self._key

    @property
    def origin(self) -> KeyOrigin:
        """The environment, from which all settings come."""
        return KeyOrigin.ENVIRONMENT

    async def current(self) -> SecretStr:
        """The key."""
        return self._key

    async def refresh(self, refused: SecretStr) -> SecretStr:
        """The key; there is no other."""
        return self._key


class AccessToken:
    """A token of an identity service, where a vendor takes tokens and keys in different headers.

    Args:
        inner: Where the token is.
    """

    def __init__(self, inner: Credentials) -> None:
        self.inner = inner

    @property
    def origin(self) -> KeyOrigin:
        """Where the token was found."""
        return self.inner.origin

    async def current(self) -> SecretStr:
        """The token; see ``Credentials``."""
        return await self.inner.current()

    async def refresh(self, refused: SecretStr) -> SecretStr:
        """Another token; see ``Credentials``."""
        return await self.inner.refresh(refused)


class CredentialStore(Protocol):
    """Keys kept outside the environment."""

    def find(self, setting: str) -> Credentials | None:
        """The key that is stored under the name of this setting; None when there is none.

        Raises:
            ConfigurationError: The store is not there, may not be read, or holds something else.
            SecretsUnavailableError: The store does not answer.
        """

    def close(self) -> None:
        """Release what it holds; safe to call twice."""

    def release(self) -> None:
        """Close connections, and read the keys again when they are next needed."""


def find_credentials(
    setting: str, value: SecretStr | None, store: CredentialStore | None
) -> Credentials | None:
    """A key from the environment, else from the store; None when it is in neither.

    Args:
        setting: Name of the setting, e.g. "openai_api_key".
        value: What the environment says; empty counts as nothing.
        store: Where else to look.

    Raises:
        ConfigurationError: As ``CredentialStore.find``.
        SecretsUnavailableError: As ``CredentialStore.find``.
    """
    if value is not None and value.get_secret_value():
        return FixedCredentials(value)
    return None if store is None else store.find(setting)


def as_credentials(key: SecretStr | str | Credentials) -> Credentials:
    """A bare key as fixed credentials; credentials as they are."""
    return FixedCredentials(key) if isinstance(key, SecretStr | str) else key


logger = logging.getLogger(__name__)

_MAX_AGE_S = 300.0
"""Tokens of Entra ID live for 60 to 90 minutes; the commands that print them have caches of their own."""
_PAUSE_S = 5.0
"""Between two runs that refusals ask for."""
_TIMEOUT_S = 15.0
_MAX_CHARS = 16 * 1024


class CommandCredentials:
    """A token read from a command's output, again every 5 minutes and when it is refused.

    Args:
        command: With its arguments; run without a shell.
        setting: Name of the variable that holds it, for errors and the log.

    Raises:
        ConfigurationError: The command cannot be split into words.
    """

    def __init__(self, command: str, setting: str) -> None:
        try:
            self._words = shlex.split(command)
        except ValueError as exc:
            raise ConfigurationError(f"{setting} is not a command: {exc}.") from None
        self._setting = setting
        self._lock = threading.Lock()
        self._token = SecretStr("")
        self._run_at = float("-inf")

    @property
    def origin(self) -> KeyOrigin:
        """A command that the environment names."""
        return KeyOrigin.COMMAND

    async def current(self) -> SecretStr:
        """Return the token; run the command first if the last one is older than 5 minutes."""
        return await self._younger_than(_MAX_AGE_S)

    async def refresh(self, refused: SecretStr) -> SecretStr:
        """Return another token if the command prints one; it runs at most every 5 seconds."""
        return self._token if self._token != refused else await self._younger_than(_PAUSE_S)

    async def _younger_than(self, age_s: float) -> SecretStr:
        if time.monotonic() - self._run_at >= age_s:
            await asyncio.to_thread(self._read, age_s)
        return self._token

    def _read(self, age_s: float) -> None:
        with self._lock:  # one run for all that wait
            if time.monotonic() - self._run_at < age_s:
                return
            try:
                self._token = SecretStr(self._printed())
            except (OSError, ValueError, subprocess.SubprocessError) as exc:
                reason = str(exc) if isinstance(exc, _NoTokenError) else type(exc).__name__
                logger.warning("%s printed no token (%s); the last one stays in use", self._setting, reason)
            self._run_at = time.monotonic()

    def _printed(self) -> str:
        """The token; errors never show what the command printed."""
        finished = subprocess.run(  # noqa: S603 - named by the operator
            self._words,
            capture_output=True,
            text=True,
            check=False,
            timeout=_TIMEOUT_S,
            stdin=subprocess.DEVNULL,
        )
        token = finished.stdout.strip()
        if finished.returncode:
            raise _NoTokenError(f"exit code {finished.returncode}")
        if not token or len(token) > _MAX_CHARS or len(token.split()) > 1:
            raise _NoTokenError(f"it must print one token of at most {_MAX_CHARS} characters, nothing else")
        return token


class _NoTokenError(ValueError):
    """The command failed, or printed something else."""
