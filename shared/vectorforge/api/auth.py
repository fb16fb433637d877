"""Who is asking: the tenant comes from the credential and from nowhere else.

A credential is a key of ours, or an identity that one of AWS's front doors has checked. docs/tenants.md has
the rules as a table: a key that is nobody's is refused, unless it may be the one that API Gateway has
checked; and all credentials of a request have to name the same tenant.
"""

import hashlib
import hmac
import re
from collections.abc import Mapping

from vectorforge.api.front_doors import FrontDoorCaller, FrontDoorTenants
from vectorforge.config import ServerSettings
from vectorforge.db.tenant_id import checked_tenant
from vectorforge.errors import AuthenticationError, ConfigurationError, InvalidInputError

MAX_KEY_CHARS = 512
"""Longer credentials are refused unread."""

_SHA256_HEX = re.compile(r"[0-9a-fA-F]{64}")
_NO_CREDENTIAL = "An API key is required: Authorization: Bearer <key>."
_NOBODY_S = "The front door knows the caller, but the caller is assigned to no tenant here."
_WRONG_KEY = "The API key is not valid."
_SEVERAL = "The request's credentials belong to different tenants."


class Authenticator:
    """Finds the tenant of a request.

    Args:
        settings: In mode ``api_key`` the tenant of each key, by its sha256, and of those whom AWS's front
            doors let in; in mode ``local`` everyone is ``local_tenant``.

    Raises:
        ConfigurationError: A key is not a sha256 in hex, an identity is none that AWS gives, or a tenant is
            not one that the database can hold.
    """

    def __init__(self, settings: ServerSettings) -> None:
        _check_tenants(settings)
        self._local_tenant = settings.local_tenant if settings.auth == "local" else None
        self._front_doors = FrontDoorTenants(settings)
        self._tenants: list[tuple[bytes, str]] = []
        for digest, tenant in settings.api_keys.items():
            if not _SHA256_HEX.fullmatch(digest):
                raise ConfigurationError(
                    "VECTORFORGE_API_KEYS maps the sha256 of a key (64 hex digits) to a tenant."
                )
            self._tenants.append((digest.lower().encode(), tenant))

    def authenticate(self, headers: Mapping[str, str], event: object = None) -> str:
        """The tenant.

        Args:
            headers: Of the request, names in lower case. ``authorization: Bearer`` must be a key of ours, and
                so must ``x-api-key`` where there is no Bearer key. But API Gateway's own keys come in both
                headers: when it has checked one, a key that is not ours is taken for its.
            event: What AWS's front door made of the request (``scope["aws.event"]``); None elsewhere.

        Raises:
            AuthenticationError: There is no credential, one that is not ours, or two of different tenants.
        """
        if self._local_tenant is not None:
            return self._local_tenant
        caller = FrontDoorCaller.of(event)
        tenants = self._front_doors.of(caller) | self._of_keys(headers, caller)
        if not tenants:
            raise AuthenticationError(_NO_CREDENTIAL if caller == FrontDoorCaller() else _NOBODY_S)
        if len(tenants) > 1:
            raise AuthenticationError(_SEVERAL)
        return tenants.pop()

    def _of_keys(self, headers: Mapping[str, str], caller: FrontDoorCaller) -> set[str]:
        """The tenants of the keys of ours that were sent."""
        checked = caller.api_key_id is not None
        bearer, key = _bearer_key(headers), headers.get("x-api-key", "").strip()
        found = set[str | None]()
        if bearer is not None:
            found.add(self._find(bearer) if checked else self._required(bearer))
        if key:
            found.add(self._find(key) if checked or bearer is not None else self._required(key))
        return {tenant for tenant in found if tenant is not None}

    def _required(self, key: str) -> str:
        found = self._find(key)
        if found is None:
            raise AuthenticationError(_WRONG_KEY if key else _NO_CREDENTIAL)
        return found

    def _find(self, key: str) -> str | None:
        if len(key) > MAX_KEY_CHARS:
            return None
        digest = hashlib.sha256(key.encode("utf-8", "replace")).hexdigest().encode()
        found: str | None = None
        for known, tenant in self._tenants:  # all of them, so that the time tells nothing
            if hmac.compare_digest(known, digest):
                found = tenant
        return found


def _check_tenants(settings: ServerSettings) -> None:
    named = {
        "VECTORFORGE_LOCAL_TENANT": [settings.local_tenant],
        "VECTORFORGE_API_KEYS": settings.api_keys.values(),
        "VECTORFORGE_API_GATEWAY_KEYS": settings.api_gateway_keys.values(),
        "VECTORFORGE_IAM_TENANTS": settings.iam_tenants.values(),
    }
    for variable, tenants in named.items():
        for tenant in tenants:
            try:
                checked_tenant(tenant)
            except InvalidInputError as exc:
                raise ConfigurationError(f"{variable} names a tenant that cannot be: {exc.message}") from exc


def _bearer_key(headers: Mapping[str, str]) -> str | None:
    """None when there is no Bearer credential; a signature of AWS (SigV4) is none."""
    scheme, _, key = headers.get("authorization", "").partition(" ")
    return key.strip() if scheme.lower() == "bearer" else None
