"""Who is asking: the tenant comes from the credential and from nowhere else."""

import hashlib
import hmac
import re
from collections.abc import Mapping

from vectorforge.config import ServerSettings
from vectorforge.db.tenant_id import checked_tenant
from vectorforge.errors import AuthenticationError, ConfigurationError, InvalidInputError

MAX_KEY_CHARS = 512
"""Longer credentials are refused unread."""

_SHA256_HEX = re.compile(r"[0-9a-fA-F]{64}")


class Authenticator:
    """Finds the tenant of a request.

    Args:
        settings: In mode ``api_key`` the sha256 of each key and its tenant; in mode ``local`` everyone is
            ``local_tenant``.

    Raises:
        ConfigurationError: A key is not a sha256 in hex, or a tenant is not one that the database can hold.
    """

    def __init__(self, settings: ServerSettings) -> None:
        for tenant in (settings.local_tenant, *settings.api_keys.values()):
            _check_tenant(tenant)
        self._local_tenant = settings.local_tenant if settings.auth == "local" else None
        self._tenants: list[tuple[bytes, str]] = []
        for digest, tenant in settings.api_keys.items():
            if not _SHA256_HEX.fullmatch(digest):
                raise ConfigurationError(
                    "VECTORFORGE_API_KEYS maps the sha256 of a key (64 hex digits) to a tenant."
                )
            self._tenants.append((digest.lower().encode(), tenant))

    def authenticate(self, headers: Mapping[str, str]) -> str:
        """The tenant.

        Args:
            headers: Of the request, names in lower case; ``authorization: Bearer`` wins over ``x-api-key``.

        Raises:
            AuthenticationError: There is no key, or not one of ours.
        """
        if self._local_tenant is not None:
            return self._local_tenant
        key = _key_in(headers)
        if not key or len(key) > MAX_KEY_CHARS:
            raise AuthenticationError("An API key is required: Authorization: Bearer <key>.")
        digest = hashlib.sha256(key.encode("utf-8", "replace")).hexdigest().encode()
        found: str | None = None
        for known, tenant in self._tenants:  # all of them, so that the time tells nothing
            if hmac.compare_digest(known, digest):
                found = tenant
        if found is None:
            raise AuthenticationError("The API key is not valid.")
        return found


def _check_tenant(tenant: str) -> None:
    try:
        checked_tenant(tenant)
    except InvalidInputError as exc:
        raise ConfigurationError(
            f"VECTORFORGE_API_KEYS or VECTORFORGE_LOCAL_TENANT names a tenant that cannot be: {exc.message}"
        ) from exc


def _key_in(headers: Mapping[str, str]) -> str:
    scheme, _, key = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        return key.strip()
    return headers.get("x-api-key", "").strip()
