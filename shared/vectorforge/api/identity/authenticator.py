"""Authentication of requests; the tenant comes from the credential only.

A credential is a key of ours, an access token, or an identity that one of AWS's front doors has checked.
docs/identity.md has the rules as a table: a key that is nobody's is refused, unless it may be the one that
API Gateway has checked; all credentials of a request have to name the same tenant, and the request may do
what all of them may.
"""

import hashlib
import hmac
import re
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from starlette.datastructures import Headers

from vectorforge.api.identity.front_doors import (
    API_KEY_ID,
    FrontDoorCaller,
    FrontDoorIdentities,
    StoredGatewayKeys,
)
from vectorforge.api.identity.issued_keys import IssuedKeys
from vectorforge.config import ServerSettings
from vectorforge.db.key_check import WRONG_KEY
from vectorforge.db.tenant_database import checked_tenant
from vectorforge.errors import AuthenticationError, ConfigurationError, InvalidInputError
from vectorforge.types import Principal, Scope

if TYPE_CHECKING:  # where there is an identity provider
    from vectorforge.api.identity.access_tokens import AccessTokens

MAX_KEY_CHARS = 512
"""Longer credentials that are no access tokens are refused unread."""

_SECOND_CREDENTIAL = re.compile(r",\s*[A-Za-z][A-Za-z0-9-]*\s+\S")
"""Of ``Authorization`` headers that a front door has joined; signatures of AWS have commas, too."""
_SHA256_HEX = re.compile(r"[0-9a-fA-F]{64}")
_NO_CREDENTIAL = "An API key is required: Authorization: Bearer <key>."
_NOBODY_S = "The front door knows the caller, but the caller is assigned to no tenant here."
_SEVERAL = "The request's credentials belong to different tenants."


class Authenticator:
    """Finds out who sends a request.

    Args:
        settings: In mode ``api_key`` the tenants and scopes of keys, by their sha256, and of those whom AWS's
            front doors let in; in mode ``local`` everyone is ``local_tenant`` and may do everything.
        issued: Keys of the database; None: there are none.
        tokens: Checks access tokens; None: they are taken for keys, which they are not.
        gateway_keys: Keys of API Gateway that the settings do not hold; None: there are none.

    Raises:
        ConfigurationError: A key is not a sha256 in hex, an identity is none that AWS gives, a tenant is not
            one that the database can hold, or a scope is given to nobody.
    """

    def __init__(
        self,
        settings: ServerSettings,
        *,
        issued: IssuedKeys | None = None,
        tokens: "AccessTokens | None" = None,
        gateway_keys: StoredGatewayKeys | None = None,
    ) -> None:
        _check_tenants(settings)
        _check_scopes(settings, keys_are_stored=gateway_keys is not None)
        self._local: Principal | None = None
        if settings.auth == "local":
            self._local = Principal(settings.local_tenant, Scope.ADMIN.included, "local")
        self._front_doors = FrontDoorIdentities(settings, gateway_keys)
        self._issued = issued
        self._tokens = tokens
        self._configured: list[tuple[bytes, Principal]] = []
        scopes = {name.lower(): scope for name, scope in settings.credential_scopes.items()}
        for digest, tenant in settings.api_keys.items():
            if not _SHA256_HEX.fullmatch(digest):
                raise ConfigurationError(
                    "VECTORFORGE_API_KEYS maps the sha256 of a key (64 hex digits) to a tenant."
                )
            known = digest.lower()
            scope = scopes.get(known, Scope.ADMIN)
            self._configured.append(
                (known.encode(), Principal(tenant, scope.included, f"sha256:{known[:12]}"))
            )

    async def authenticate(self, headers: Mapping[str, str], event: object = None) -> Principal:
        """Return the principal of a request.

        Args:
            headers: Of the request, names in lower case. ``authorization: Bearer`` must be a key of ours or
                an access token, and ``x-api-key`` a key of ours where there is no Bearer key. But API
                Gateway's own keys come in both headers: when it has checked one, a key that is not ours is
                taken for its.
            event: What AWS's front door made of the request (``scope["aws.event"]``); None elsewhere.

        Raises:
            AuthenticationError: There is no credential, one that is not ours, or two of different tenants.
            DatabaseUnavailableError: A key cannot be looked up.
            GatewayKeysUnavailableError: A key of API Gateway cannot be looked up.
            IdentityProviderUnavailableError: A token cannot be checked.
        """
        if self._local is not None:
            return self._local
        caller = FrontDoorCaller.of(event)
        found = [*await self._of_keys(headers, caller), *await self._front_doors.of(caller)]
        if len(found) == 1:
            return found[0]
        if not found:
            known = caller != FrontDoorCaller()
            raise AuthenticationError(_NOBODY_S if known else _NO_CREDENTIAL, presented=known)
        return _together(found)

    def forget(self, key_id: str) -> None:
        """Look a key of the database up when it comes next: it was found to be over."""
        if self._issued is not None:
            self._issued.forget(key_id)

    async def _of_keys(self, headers: Mapping[str, str], caller: FrontDoorCaller) -> list[Principal]:
        """Return the principals of our keys and of the access token."""
        checked = caller.api_key_id is not None
        bearer, key = _bearer_key(headers), headers.get("x-api-key", "").strip()
        found: list[Principal | None] = []
        if bearer is not None:
            found.append(await self._of_bearer(bearer, required=not checked))
        if key:
            found.append(await self._of_key(key, required=not checked and bearer is None))
        return [principal for principal in found if principal is not None]

    async def _of_bearer(self, bearer: str, *, required: bool) -> Principal | None:
        if self._tokens is not None:
            from vectorforge.api.identity.access_tokens import is_access_token

            if is_access_token(bearer):  # no key of API Gateway has dots
                return await self._tokens.verify(bearer)
        return await self._of_key(bearer, required=required)

    async def _of_key(self, key: str, *, required: bool) -> Principal | None:
        found = self._find_configured(key)
        if found is None and self._issued is not None:
            found = await self._issued.find(key)
        if found is None and required:
            raise AuthenticationError(WRONG_KEY if key else _NO_CREDENTIAL, presented=bool(key))
        return found

    def _find_configured(self, key: str) -> Principal | None:
        if len(key) > MAX_KEY_CHARS:
            return None
        digest = hashlib.sha256(key.encode("utf-8", "replace")).hexdigest().encode()
        found: Principal | None = None
        for known, principal in self._configured:  # all of them, so that the time tells nothing
            if hmac.compare_digest(known, digest):
                found = principal
        return found


def check_credential_headers(headers: Headers) -> None:
    """Refuse requests whose credential is ambiguous: each reader on the way may take another.

    Raises:
        AuthenticationError: There is more than one ``Authorization`` or ``X-Api-Key`` header.
    """
    for name in ("Authorization", "X-Api-Key"):
        values = headers.getlist(name)
        joined = name == "Authorization" and any(map(_SECOND_CREDENTIAL.search, values))
        if len(values) > 1 or joined:
            raise AuthenticationError(
                f"The request has more than one `{name}` header; send one.", presented=True
            )


def _together(found: Collection[Principal]) -> Principal:
    """Return one principal with the scopes that all of them have.

    Raises:
        AuthenticationError: They belong to different tenants.
    """
    if len({principal.tenant for principal in found}) > 1:
        raise AuthenticationError(_SEVERAL, presented=True)
    first, *others = found
    scopes = first.scopes.intersection(*(other.scopes for other in others))
    remembered = frozenset().union(*(principal.remembered_keys for principal in found))
    return Principal(first.tenant, scopes, "+".join(principal.credential for principal in found), remembered)


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


def _check_scopes(settings: ServerSettings, *, keys_are_stored: bool) -> None:
    """Check the names, since a misspelled one would leave a credential with every scope.

    Names of stored keys are checked when these are read (``StoredGatewayKeys``).
    """
    known = {digest.lower() for digest in settings.api_keys}
    known |= settings.api_gateway_keys.keys() | settings.iam_tenants.keys()
    for position, name in enumerate(settings.credential_scopes, start=1):
        if keys_are_stored and API_KEY_ID.fullmatch(name):
            continue
        if name not in known and name.lower() not in known:
            raise ConfigurationError(
                "VECTORFORGE_CREDENTIAL_SCOPES names credentials of VECTORFORGE_API_KEYS, VECTORFORGE_"
                f"API_GATEWAY_KEYS and VECTORFORGE_IAM_TENANTS; entry {position} is in none of them."
            )


def _bearer_key(headers: Mapping[str, str]) -> str | None:
    """None when there is no Bearer credential; a signature of AWS (SigV4) is none."""
    scheme, _, key = headers.get("authorization", "").partition(" ")
    return key.strip() if scheme.lower() == "bearer" else None
