"""Authentication of requests; the tenant comes from the credential only.

A credential is a key of ours, an access token, or an identity that an AWS front door has checked.
docs/operate/identity.md has the rules as a table: an unknown key is rejected, unless it may be the one that
API Gateway has checked; all credentials of a request must belong to one tenant, and the request has the
scopes that all of them have.
"""

import hashlib
import hmac
import re
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Send
from starlette.types import Scope as AsgiScope

from vectorforge.api.identity.front_doors import (
    API_KEY_ID,
    FrontDoorCaller,
    FrontDoorIdentities,
    StoredGatewayKeys,
)
from vectorforge.api.identity.issued_keys import IssuedKeys
from vectorforge.api.problems import error_response
from vectorforge.api.request_state import PUBLIC_PATHS, RequestState, required_scope, route_path
from vectorforge.config import ServerSettings
from vectorforge.db.errors import WRONG_KEY
from vectorforge.db.tenant_database import KEY_CHECK, KeyCheck, checked_tenant
from vectorforge.embedding.cache import CACHE_TENANT
from vectorforge.errors import (
    AuthenticationError,
    ConfigurationError,
    InsufficientScopeError,
    InvalidInputError,
    VectorForgeError,
)
from vectorforge.telemetry import CREDENTIAL
from vectorforge.types import Principal, Scope

if TYPE_CHECKING:  # needed with an identity provider only
    from vectorforge.api.identity.access_tokens import AccessTokens

MAX_KEY_CHARS = 512
"""Longer credentials, except access tokens, are rejected unread."""

_SECOND_CREDENTIAL = re.compile(r",\s*[A-Za-z][A-Za-z0-9-]*\s+\S")
"""Second credential in ``Authorization`` headers joined by a front door; AWS signatures have commas, too."""
_BEDROCK_SIGNATURE = re.compile(
    r"AWS4-HMAC-SHA256 Credential=([^/,\s]+)/\d{8}/[^/,\s]*/bedrock/aws4_request,"
)
_SHA256_HEX = re.compile(r"[0-9a-fA-F]{64}")
_NO_CREDENTIAL = "An API key is required: Authorization: Bearer <key>."
_NO_TENANT = "The caller is authenticated by the front door but not assigned to a tenant."


class Authenticator:
    """Authenticates requests.

    Args:
        settings: In mode ``api_key`` the tenants and scopes of keys, by their SHA-256, and of identities
            checked by AWS front doors; in mode ``local`` every request has ``local_tenant`` and all scopes.
        issued: Keys in the database, if any.
        tokens: Verifier of access tokens; without one they are treated as keys.
        gateway_keys: Keys of API Gateway outside of the settings, if any.

    Raises:
        ConfigurationError: A key is not a SHA-256 in hex, an AWS identity is malformed, a tenant is invalid,
            or a scope belongs to an unknown credential.
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
            headers: Request headers, names in lower case. ``authorization: Bearer`` must be one of our keys
                or an access token, and ``x-api-key`` one of our keys if there is no Bearer key. Both may
                have a key of API Gateway: if it has checked one, an unknown key is assumed to be its own.
            event: Event of the AWS front door (``scope["aws.event"]``); None elsewhere.

        Raises:
            AuthenticationError: No credential, an unknown one, or two of different tenants.
            DatabaseUnavailableError: A key cannot be looked up.
            GatewayKeysUnavailableError: A key of API Gateway cannot be looked up.
            IdentityProviderUnavailableError: A token cannot be checked.
        """
        if self._local is not None:
            return self._local
        caller = FrontDoorCaller.of(event)
        principals = [*await self._of_keys(headers, caller), *await self._front_doors.of(caller)]
        if len(principals) == 1:
            return principals[0]
        if not principals:
            known = caller != FrontDoorCaller()
            raise AuthenticationError(_NO_TENANT if known else _NO_CREDENTIAL, presented=known)
        return _together(principals)

    def forget(self, key_id: str) -> None:
        """Drop a key from the cache, since it was found to be revoked."""
        if self._issued is not None:
            self._issued.forget(key_id)

    async def _of_keys(self, headers: Mapping[str, str], caller: FrontDoorCaller) -> list[Principal]:
        """Return the principals of our keys and of the access token."""
        checked = caller.api_key_id is not None
        bearer, key = _bearer_key(headers), headers.get("x-api-key", "").strip()
        principals: list[Principal | None] = []
        if bearer is not None:
            principals.append(await self._of_bearer(bearer, required=not checked))
        if key:
            principals.append(await self._of_key(key, required=not checked and bearer is None))
        return [principal for principal in principals if principal is not None]

    async def _of_bearer(self, bearer: str, *, required: bool) -> Principal | None:
        if self._tokens is not None:
            from vectorforge.api.identity.access_tokens import is_access_token

            if is_access_token(bearer):  # no key of API Gateway has dots
                return await self._tokens.verify(bearer)
        return await self._of_key(bearer, required=required)

    async def _of_key(self, key: str, *, required: bool) -> Principal | None:
        principal = self._find_configured(key)
        if principal is None and self._issued is not None:
            principal = await self._issued.find(key)
        if principal is None and required:
            raise AuthenticationError(WRONG_KEY if key else _NO_CREDENTIAL, presented=bool(key))
        return principal

    def _find_configured(self, key: str) -> Principal | None:
        if len(key) > MAX_KEY_CHARS:
            return None
        digest = hashlib.sha256(key.encode("utf-8", "replace")).hexdigest().encode()
        match: Principal | None = None
        for known, principal in self._configured:  # all of them, so that the time reveals nothing
            if hmac.compare_digest(known, digest):
                match = principal
        return match


def check_credential_headers(headers: Headers) -> None:
    """Reject ambiguous credentials, of which two components could read different ones.

    Raises:
        AuthenticationError: More than one ``Authorization`` or ``X-Api-Key`` header.
    """
    for name in ("Authorization", "X-Api-Key"):
        values = headers.getlist(name)
        joined = name == "Authorization" and any(map(_SECOND_CREDENTIAL.search, values))
        if len(values) > 1 or joined:
            raise AuthenticationError(
                f"The request has more than one `{name}` header; send one.", presented=True
            )


def _together(principals: Collection[Principal]) -> Principal:
    """Return one principal with the scopes that all of them have; they must belong to one tenant."""
    if len({principal.tenant for principal in principals}) > 1:
        raise AuthenticationError("The request's credentials belong to different tenants.", presented=True)
    first, *others = principals
    scopes = first.scopes.intersection(*(other.scopes for other in others))
    remembered = frozenset().union(*(principal.remembered_keys for principal in principals))
    return Principal(
        first.tenant, scopes, "+".join(principal.credential for principal in principals), remembered
    )


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
                raise ConfigurationError(f"{variable} has an invalid tenant: {exc.message}") from exc


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
    """Return the Bearer credential, or None.

    An AWS signature (SigV4) does not count, except of clients of Bedrock's API: they have a key of ours as
    their access key id, which is the secret here and checked like any key; their signature is ignored.
    """
    authorization = headers.get("authorization", "")
    if signed := _BEDROCK_SIGNATURE.match(authorization):
        return signed[1]
    scheme, _, key = authorization.partition(" ")
    return key.strip() if scheme.lower() == "bearer" else None


class Authentication:
    """Authenticates the request and checks its scope before the body is read."""

    def __init__(self, app: ASGIApp, *, authenticator: Authenticator) -> None:
        self.app = app
        self._authenticator = authenticator

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        principal = None
        try:
            principal = await self._authenticate(scope)
        except VectorForgeError as exc:
            # Public paths need no credential, and work while the database is unavailable.
            if route_path(scope) not in PUBLIC_PATHS:
                await error_response(RequestState.of(scope), exc)(scope, receive, send)
                return
        remembered = principal.remembered_keys if principal is not None else None
        check = KEY_CHECK.set(KeyCheck(remembered, self._authenticator.forget) if remembered else None)
        credential = CREDENTIAL.set(principal.credential if principal is not None else None)
        tenant = CACHE_TENANT.set(principal.tenant if principal is not None else "")
        try:
            await self.app(scope, receive, send)
        finally:
            CACHE_TENANT.reset(tenant)
            CREDENTIAL.reset(credential)
            KEY_CHECK.reset(check)

    async def _authenticate(self, scope: AsgiScope) -> Principal:
        headers = Headers(scope=scope)
        check_credential_headers(headers)
        principal = await self._authenticator.authenticate(headers, scope.get("aws.event"))
        RequestState.of(scope).principal = principal
        required = required_scope(scope["method"], route_path(scope))
        if required is not None and not principal.allows(required):
            raise InsufficientScopeError(required=required)
        return principal
