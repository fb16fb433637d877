"""Providers' keys: fixed, rotated, or tokens printed by a command (``az account get-access-token``)."""

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
    """Origin of a key."""

    ENVIRONMENT = "environment"
    SECRET = "secret"  # noqa: S105 - the name of a place, not a password
    PARAMETER = "parameter"
    COMMAND = "command"


class Credentials(Protocol):
    """Source of one key, read before each request."""

    @property
    def origin(self) -> KeyOrigin:
        """Origin of the key."""

    async def current(self) -> SecretStr:
        """Return the key as last read, re-read first if it is too old. Never raises."""

    async def refresh(self, refused: SecretStr) -> SecretStr:
        """Return the replacement of a rejected key, or the same key if there is no other.

        Safe to call for every rejection: keys are re-read at most once for many rejections of one key.
        """


class FixedCredentials:
    """Key from the environment, the source of all settings; it never changes."""

    origin = KeyOrigin.ENVIRONMENT

    def __init__(self, key: SecretStr | str) -> None:
        self.key = key if isinstance(key, SecretStr) else SecretStr(key)

    async def current(self) -> SecretStr:
        """Return the key."""
        return self.key

    async def refresh(self, refused: SecretStr) -> SecretStr:
        """Return the key."""
        return self.key


class AccessToken:
    """Token of an identity service, for vendors that accept tokens and keys in different headers."""

    def __init__(self, inner: Credentials) -> None:
        self.inner = inner
        self.origin = inner.origin

    async def current(self) -> SecretStr:
        """Return the token; see ``Credentials``."""
        return await self.inner.current()

    async def refresh(self, refused: SecretStr) -> SecretStr:
        """Return another token; see ``Credentials``."""
        return await self.inner.refresh(refused)


class CredentialStore(Protocol):
    """Keys stored outside the environment."""

    def find(self, setting: str) -> Credentials | None:
        """Return the key stored under the name of this setting, or None.

        Raises:
            ConfigurationError: The store is missing, not readable, or has other content.
            SecretsUnavailableError: The store does not respond.
        """

    def close(self) -> None:
        """Close the store; safe to call twice."""

    def release(self) -> None:
        """Close connections; the next use reads the keys again."""


def find_credentials(
    setting: str, value: SecretStr | None, store: CredentialStore | None
) -> Credentials | None:
    """Return a key from the environment, else from the store, else None. Errors as ``CredentialStore.find``.

    Args:
        setting: Name of the setting, e.g. "openai_api_key".
        value: Value in the environment; empty counts as unset.
        store: Fallback for an unset value.
    """
    if value is not None and value.get_secret_value():
        return FixedCredentials(value)
    return None if store is None else store.find(setting)


def as_credentials(key: SecretStr | str | Credentials) -> Credentials:
    """Return a key as fixed credentials, and credentials unchanged."""
    return FixedCredentials(key) if isinstance(key, SecretStr | str) else key


logger = logging.getLogger(__name__)

_MAX_AGE_S = 300.0
"""Tokens of Entra ID are valid for 60 to 90 minutes; the commands that print them cache them."""
_PAUSE_S = 5.0
"""Minimum time between two runs caused by rejections."""
_TIMEOUT_S = 15.0
_MAX_CHARS = 16 * 1024


class CommandCredentials:
    """Token from a command's output, refreshed every 5 minutes and when it is rejected.

    Args:
        command: Command with arguments; run without a shell.
        setting: Variable that holds it, for errors and the log.

    Raises:
        ConfigurationError: The command cannot be split into words.
    """

    origin = KeyOrigin.COMMAND

    def __init__(self, command: str, setting: str) -> None:
        try:
            self._words = shlex.split(command)
        except ValueError as exc:
            raise ConfigurationError(f"{setting} is not a command: {exc}.") from None
        self._setting = setting
        self._lock = threading.Lock()
        self._token = SecretStr("")
        self._run_at = float("-inf")

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
        with self._lock:  # one run for all waiting threads
            if time.monotonic() - self._run_at < age_s:
                return
            try:
                self._token = SecretStr(self._printed())
            except (OSError, ValueError, subprocess.SubprocessError) as exc:
                reason = str(exc) if isinstance(exc, _NoTokenError) else type(exc).__name__
                logger.warning("%s printed no token (%s); the last one remains in use", self._setting, reason)
            self._run_at = time.monotonic()

    def _printed(self) -> str:
        """Return the token; errors never quote the output."""
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
    """The command failed, or printed other output."""
