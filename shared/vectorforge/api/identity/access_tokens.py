"""Access tokens of an identity provider (JWT, RFC 7519), checked as RFC 8725 and RFC 9068 say."""

import hashlib
import re
import time
from collections.abc import Mapping
from typing import Any
from unicodedata import is_normalized

from vectorforge.api.identity.key_set import KeySet
from vectorforge.config import IdentitySettings
from vectorforge.db.types import MAX_TENANT_BYTES, checked_tenant
from vectorforge.errors import AuthenticationError, InvalidInputError
from vectorforge.types import Principal, Scope

MAX_TOKEN_CHARS = 8192
LEEWAY_S = 30
"""By which clocks may differ."""
MAX_KEY_ID_CHARS = 200
MAX_DAYS = 366
"""Latest expiry, from now."""

_TOKEN = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]*")
_TYPES = frozenset({"jwt", "at+jwt", "application/at+jwt"})
_REFUSED_HEADERS = frozenset({"jku", "jwk", "x5u", "x5c", "crit", "b64", "zip", "cty", "enc"})
"""Those that bring a key, name a place that has one, or change how the token is to be read."""
_NOT_VALID = "The access token is not valid, or not for this service."
_EXPIRED = "The access token has expired."
_NO_TENANT = "The access token names no tenant."
_UNUSABLE_TENANT = (
    f"The tenant of the access token must be 1 to {MAX_TENANT_BYTES} bytes of printable text, in Unicode's "
    "form NFC and without spaces at its ends."
)
_TOO_LONG = f"`exp` of the access token must be at most {MAX_DAYS} days ahead."


def is_access_token(text: str) -> bool:
    """Whether the text has the form of a JWT, which no key has: three parts in base64url."""
    return text.count(".") == 2 and len(text) <= MAX_TOKEN_CHARS and _TOKEN.fullmatch(text) is not None


class AccessTokens:
    """Finds out whom an access token stands for.

    Args:
        settings: Issuer, audience, claims.
        keys: Of the issuer.
    """

    def __init__(self, settings: IdentitySettings, keys: KeySet) -> None:
        self._settings = settings
        self._keys = keys

    async def verify(self, token: str) -> Principal:
        """Whom the token stands for.

        Raises:
            AuthenticationError: It is not signed by the issuer, not for this service, not valid now, or names
                no tenant.
            IdentityProviderUnavailableError: The issuer's keys cannot be had.
        """
        import jwt

        try:
            key_id, algorithm = _checked_header(jwt.get_unverified_header(token))
            key = await self._keys.find(key_id)
            if key is None or key.algorithm != algorithm:
                raise AuthenticationError(_NOT_VALID, presented=True)
            claims: Mapping[str, Any] = jwt.decode(
                token,
                key.key,
                algorithms=[key.algorithm],
                issuer=self._settings.jwt_issuer,
                audience=self._settings.jwt_audience,
                leeway=LEEWAY_S,
                options={"require": ["exp", "iss", "aud"]},
            )
        except jwt.ExpiredSignatureError:
            raise AuthenticationError(_EXPIRED, presented=True) from None
        except (jwt.PyJWTError, ValueError, TypeError, OverflowError) as exc:
            raise AuthenticationError(_NOT_VALID, presented=True) from exc
        _check_times(claims)
        return self._principal(claims)

    def _principal(self, claims: Mapping[str, Any]) -> Principal:
        tenant = _checked_tenant(claims.get(self._settings.jwt_tenant_claim))
        # A subject may be an e-mail address, which has no business in a log.
        subject = f"{claims['iss']} {claims.get('sub', '')}".encode("utf-8", "replace")
        return Principal(tenant, self._scopes(claims), f"jwt:{hashlib.sha256(subject).hexdigest()[:16]}")

    def _scopes(self, claims: Mapping[str, Any]) -> frozenset[Scope]:
        """Those that the token grants: the words of the claim, or the entries of its list."""
        granted = claims.get(self._settings.jwt_scope_claim)
        words = granted.split() if isinstance(granted, str) else granted if isinstance(granted, list) else []
        prefix = self._settings.jwt_scope_prefix
        known = {f"{prefix}{scope}": scope for scope in Scope}
        scopes = [known[word] for word in words if isinstance(word, str) and word in known]
        return frozenset().union(*(scope.included for scope in scopes))


def _check_times(claims: Mapping[str, Any]) -> None:
    """PyJWT also takes texts, booleans and numbers of any size.

    Raises:
        AuthenticationError: A time is no number, or the expiry too far ahead.
    """
    for name in ("exp", "nbf", "iat"):
        if type(claims.get(name, 0)) not in (int, float):
            raise AuthenticationError(f"`{name}` of the access token must be a number.", presented=True)
    if claims["exp"] > time.time() + MAX_DAYS * 86_400:
        raise AuthenticationError(_TOO_LONG, presented=True)


def _checked_tenant(tenant: object) -> str:
    """The same tenant; names that differ only in what nobody sees would be two tenants.

    Raises:
        AuthenticationError: It is not one, or not one that the tables can hold.
    """
    if not isinstance(tenant, str) or not tenant:
        raise AuthenticationError(_NO_TENANT, presented=True)
    is_plain = tenant.isprintable() and tenant == tenant.strip() and is_normalized("NFC", tenant)
    try:
        if is_plain:
            return checked_tenant(tenant)
    except InvalidInputError:
        pass
    raise AuthenticationError(_UNUSABLE_TENANT, presented=True)


def _checked_header(header: Mapping[str, Any]) -> tuple[str, str]:
    """The key's id and the algorithm.

    Raises:
        ValueError: There is something in the header that none of ours needs.
    """
    key_id, algorithm, kind = header.get("kid"), header.get("alg"), header.get("typ", "JWT")
    if header.keys() & _REFUSED_HEADERS:
        raise ValueError("the header brings its own key or rules")
    if not isinstance(key_id, str) or not 1 <= len(key_id) <= MAX_KEY_ID_CHARS:
        raise ValueError("the header names no key")
    if not isinstance(algorithm, str) or not isinstance(kind, str) or kind.lower() not in _TYPES:
        raise ValueError("it is no access token")
    return key_id, algorithm
