"""Providers' keys: fixed ones, and ones that may be exchanged while the process lives."""

from enum import StrEnum
from typing import Protocol

from pydantic import SecretStr


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
