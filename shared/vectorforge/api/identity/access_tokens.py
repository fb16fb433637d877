"""Access tokens (JWT, RFC 7519, RFC 8725, RFC 9068) and the keys of their issuer (JWKS, RFC 7517).

Keys are fetched on demand, only from the configured address: no redirect is followed, and nothing in a token
can name another address.
"""

import asyncio
import hashlib
import json
import logging
import re
import time
from collections.abc import Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any
from unicodedata import is_normalized

from vectorforge.config import IdentitySettings
from vectorforge.db.tenant_database import MAX_TENANT_BYTES, checked_tenant
from vectorforge.errors import AuthenticationError, IdentityProviderUnavailableError, InvalidInputError
from vectorforge.types import Principal, Scope
from vectorforge.vendors.response import VendorConnectionError, VendorStatusError, VendorTimeoutError

if TYPE_CHECKING:
    from jwt import PyJWK

    from vectorforge.vendors.response import VendorResponse


logger = logging.getLogger(__name__)

MAX_AGE_S = 600.0
"""Age at which the keys are fetched again."""
STALE_S = 3600.0
"""Additional time for which they are valid while fetching fails."""
MIN_INTERVAL_S = 60.0
"""Minimum time between two fetches for unknown key ids, which any client can send."""
RETRY_S = 5.0
"""Time between two fetches after a failure without valid keys."""
MAX_BYTES = 256 * 1024
MAX_KEYS = 100
TIMEOUT_S = 5.0
"""Longest time for a fetch."""
MIN_RSA_BITS = 2048
"""RFC 7518, section 3.3."""

_ALGORITHMS = {("RSA", None): "RS256", ("EC", "P-256"): "ES256", ("OKP", "Ed25519"): "EdDSA"}
"""By type and curve. The key determines the algorithm, never the token; none is symmetric."""


@dataclass(frozen=True, slots=True)
class VerificationKey:
    """A public key, and the only algorithm that it is used with."""

    key: "PyJWK"
    algorithm: str
    """RS256 | ES256 | EdDSA"""


class KeySet:
    """The keys at the address of one JWKS. Belongs to one event loop."""

    def __init__(self, url: str, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._url = url
        self._clock = clock
        self._fetching = asyncio.Lock()
        self._keys: dict[str, VerificationKey] = {}
        self._fetched_at: float | None = None
        self._tried_at: float | None = None

    async def find(self, key_id: str) -> VerificationKey | None:
        """Return the key with this id, or None if the provider has none.

        Raises:
            IdentityProviderUnavailableError: The keys are too old and cannot be fetched.
        """
        if self._due(key_id) and not (self._fetching.locked() and self._is_good(key_id)):
            async with self._fetching:
                if self._due(key_id):  # another task may have fetched them
                    await self._fetch()
        if self._older_than(MAX_AGE_S + STALE_S):
            raise IdentityProviderUnavailableError
        return self._keys.get(key_id)

    def _due(self, key_id: str) -> bool:
        since_try = float("inf") if self._tried_at is None else self._clock() - self._tried_at
        if self._older_than(MAX_AGE_S):
            return since_try >= RETRY_S
        return key_id not in self._keys and since_try >= MIN_INTERVAL_S

    def _is_good(self, key_id: str) -> bool:
        """Return True if the key is usable, so that its request need not wait for another task's fetch."""
        return key_id in self._keys and not self._older_than(MAX_AGE_S + STALE_S)

    def _older_than(self, age_s: float) -> bool:
        return self._fetched_at is None or self._clock() - self._fetched_at > age_s

    async def _fetch(self) -> None:
        try:
            async with asyncio.timeout(TIMEOUT_S):
                document = await self._document()
        # errors of an HTTP client, a JSON parser and an untrusted document
        except (ConnectionError, OSError, TimeoutError, ValueError) as exc:
            logger.warning("Failed to fetch the identity provider's keys: %s", type(exc).__name__)
            return
        finally:
            self._tried_at = self._clock()  # at the end, so that waiting tasks do not try again one by one
        self._keys = await asyncio.to_thread(read_keys, document)
        self._fetched_at = self._clock()

    async def _document(self) -> Any:
        sessions = await asyncio.to_thread(import_module, "vectorforge.vendors.session")  # takes 0.5 s
        try:
            response: VendorResponse = await sessions.session_for(self).send(
                "GET", self._url, None, {}, TIMEOUT_S
            )
            async with aclosing(response):
                return json.loads(await response.read(MAX_BYTES))
        except RecursionError:
            raise ValueError("nested too deeply") from None
        # a status that is not 2xx is one of them, and so is a redirect
        except (VendorConnectionError, VendorStatusError, VendorTimeoutError) as exc:
            raise ConnectionError(str(exc)) from None
        finally:
            await sessions.give_back(self)  # the next fetch is minutes away


def read_keys(document: Any) -> dict[str, VerificationKey]:
    """Return the usable keys of a JWKS by id.

    Skipped are keys without an id or with a repeated one, of other types than RSA (at least 2,048 bits),
    P-256 and Ed25519, for other uses than signatures, and all after the hundredth.
    """
    from jwt import PyJWK
    from jwt.exceptions import PyJWTError

    listed = document.get("keys") if isinstance(document, dict) else None
    usable: dict[str, VerificationKey] = {}
    for entry in listed[:MAX_KEYS] if isinstance(listed, list) else []:
        algorithm = _algorithm(entry)
        if algorithm is None or entry["kid"] in usable:
            continue
        try:
            key = PyJWK.from_dict(entry, algorithm)
        except (PyJWTError, ValueError, TypeError, KeyError):
            continue
        if algorithm != "RS256" or key.key.key_size >= MIN_RSA_BITS:
            usable[entry["kid"]] = VerificationKey(key, algorithm)
    return usable


def _algorithm(entry: Any) -> str | None:
    if not isinstance(entry, dict) or not isinstance(entry.get("kid"), str):
        return None
    kind, curve = entry.get("kty"), entry.get("crv")
    if not isinstance(kind, str) or not isinstance(curve, str | None):
        return None
    algorithm = _ALGORITHMS.get((kind, curve))
    usable = (
        entry.get("use", "sig") == "sig" and entry.get("alg", algorithm) == algorithm and "d" not in entry
    )
    return algorithm if usable else None


MAX_TOKEN_CHARS = 8192
LEEWAY_S = 30
"""Maximum difference of clocks."""
MAX_KEY_ID_CHARS = 200
MAX_DAYS = 366
"""Latest expiry, from now."""

_TOKEN = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]*")
_TYPES = frozenset({"jwt", "at+jwt", "application/at+jwt"})
_REFUSED_HEADERS = frozenset({"jku", "jwk", "x5u", "x5c", "crit", "b64", "zip", "cty", "enc"})
"""Headers that contain or locate a key, or change the encoding of the token."""
_NOT_VALID = "The access token is not valid, or not for this service."
_UNUSABLE_TENANT = (
    f"The tenant of the access token must be 1 to {MAX_TENANT_BYTES} bytes of printable text, in Unicode's "
    "form NFC and without spaces at its ends."
)
_TOO_LONG = f"`exp` of the access token must be at most {MAX_DAYS} days ahead."


def is_access_token(text: str) -> bool:
    """Return True if the text has the form of a JWT (three base64url parts), which no key has."""
    return text.count(".") == 2 and len(text) <= MAX_TOKEN_CHARS and _TOKEN.fullmatch(text) is not None


class AccessTokens:
    """Verifies access tokens."""

    def __init__(self, settings: IdentitySettings, keys: KeySet) -> None:
        self._settings = settings
        self._keys = keys

    async def verify(self, token: str) -> Principal:
        """Return the principal of a token.

        Raises:
            AuthenticationError: It is not signed by the issuer, not for this service, not valid now, or names
                no tenant.
            IdentityProviderUnavailableError: The issuer's keys are not available.
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
            raise AuthenticationError("The access token has expired.", presented=True) from None
        except (jwt.PyJWTError, ValueError, TypeError, OverflowError) as exc:
            raise AuthenticationError(_NOT_VALID, presented=True) from exc
        _check_times(claims)
        return self._principal(claims)

    def _principal(self, claims: Mapping[str, Any]) -> Principal:
        tenant = _checked_tenant(claims.get(self._settings.jwt_tenant_claim))
        # A subject may be an e-mail address, which must not be logged.
        subject = f"{claims['iss']} {claims.get('sub', '')}".encode("utf-8", "replace")
        return Principal(tenant, self._scopes(claims), f"jwt:{hashlib.sha256(subject).hexdigest()[:16]}")

    def _scopes(self, claims: Mapping[str, Any]) -> frozenset[Scope]:
        """Return the granted scopes: the words of the claim, or the entries of its list."""
        granted = claims.get(self._settings.jwt_scope_claim)
        words = granted.split() if isinstance(granted, str) else granted if isinstance(granted, list) else []
        prefix = self._settings.jwt_scope_prefix
        known = {f"{prefix}{scope}": scope for scope in Scope}
        scopes = [known[word] for word in words if isinstance(word, str) and word in known]
        return frozenset().union(*(scope.included for scope in scopes))


def _check_times(claims: Mapping[str, Any]) -> None:
    """Check the times, since PyJWT accepts texts, booleans and numbers of any size."""
    for name in ("exp", "nbf", "iat"):
        if type(claims.get(name, 0)) not in (int, float):
            raise AuthenticationError(f"`{name}` of the access token must be a number.", presented=True)
    if claims["exp"] > time.time() + MAX_DAYS * 86_400:
        raise AuthenticationError(_TOO_LONG, presented=True)


def _checked_tenant(tenant: object) -> str:
    """Validate a tenant, so that names with invisible differences cannot be two tenants."""
    if not isinstance(tenant, str) or not tenant:
        raise AuthenticationError("The access token names no tenant.", presented=True)
    is_plain = tenant.isprintable() and tenant == tenant.strip() and is_normalized("NFC", tenant)
    try:
        if is_plain:
            return checked_tenant(tenant)
    except InvalidInputError:
        pass
    raise AuthenticationError(_UNUSABLE_TENANT, presented=True)


def _checked_header(header: Mapping[str, Any]) -> tuple[str, str]:
    """Return the id of the key and the algorithm."""
    key_id, algorithm, kind = header.get("kid"), header.get("alg"), header.get("typ", "JWT")
    if header.keys() & _REFUSED_HEADERS:
        raise ValueError("the header brings its own key or rules")
    if not isinstance(key_id, str) or not 1 <= len(key_id) <= MAX_KEY_ID_CHARS:
        raise ValueError("the header names no key")
    if not isinstance(algorithm, str) or not isinstance(kind, str) or kind.lower() not in _TYPES:
        raise ValueError("it is no access token")
    return key_id, algorithm
