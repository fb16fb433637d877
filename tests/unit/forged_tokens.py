"""Access tokens that must be rejected, and a valid one for comparison."""

import base64
import hashlib
import hmac
import json
import time
from collections.abc import Callable
from typing import Any

from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from tests.support.http.identity_provider import AUDIENCE, ISSUER, IdentityProvider


def part(value: Any) -> str:
    raw = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def signed_with_the_public_key(provider: IdentityProvider) -> str:
    """Sign with HS256 and the public key as the secret (CVE-2022-29217 and similar)."""
    public = provider.private["rsa"].public_key()
    secret = public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    _, claims, _ = provider.token(tenant="acme").split(".")
    text = f"{part({'alg': 'HS256', 'kid': 'rsa', 'typ': 'JWT'})}.{claims}"
    return f"{text}.{part(hmac.new(secret, text.encode(), hashlib.sha256).digest())}"


def unsigned(provider: IdentityProvider, algorithm: str) -> str:
    _, claims, _ = provider.token(tenant="acme").split(".")
    return f"{part({'alg': algorithm, 'kid': 'rsa'})}.{claims}."


def of_another_key(provider: IdentityProvider, **headers: Any) -> str:
    stranger = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    return provider.token(tenant="acme", key=stranger, headers=headers)


def changed(provider: IdentityProvider) -> str:
    header, claims, signature = provider.token(tenant="acme").split(".")
    body = json.loads(base64.urlsafe_b64decode(claims + "=="))
    return f"{header}.{part({**body, 'tenant': 'beta'})}.{signature}"


def good(provider: IdentityProvider, headers: dict[str, Any] | None = None, **claims: Any) -> str:
    return provider.token(tenant=claims.pop("tenant", "acme"), scope="admin", headers=headers, **claims)


FORGERIES: dict[str, Callable[[IdentityProvider], str]] = {
    "alg none": lambda p: unsigned(p, "none"),
    "alg None": lambda p: unsigned(p, "None"),
    "no signature": lambda p: unsigned(p, "RS256"),
    "HS256 with the public key": signed_with_the_public_key,
    "another key's signature": of_another_key,
    "claims changed": changed,
    "jku": lambda p: of_another_key(p, jku="https://evil.example/jwks.json"),
    "jku, well signed": lambda p: good(p, {"jku": f"{p.url}/jwks.json"}),
    "x5u": lambda p: good(p, {"x5u": "https://evil.example/cert"}),
    "jwk": lambda p: good(p, {"jwk": p.public_keys()["keys"][0]}),
    "crit": lambda p: good(p, {"crit": ["exp"], "exp": 1}),
    "kid traversal": lambda p: good(p, {"kid": "../../../dev/null"}),
    "kid injection": lambda p: good(p, {"kid": "rsa' OR '1'='1"}),
    "kid that is no text": lambda p: f"{part({'alg': 'RS256', 'kid': ['rsa']})}.{part({})}.{part(b'x')}",
    "kid of another type's key": lambda p: good(p, {"kid": "ec"}),
    "no kid": lambda p: f"{part({'alg': 'RS256'})}.{part({})}.{part(b'x')}",
    "expired": lambda p: good(p, exp=int(time.time()) - 31),
    "without end": lambda p: good(p, exp=None),
    "endless": lambda p: good(p, exp=float("inf")),
    "an end that is a text": lambda p: good(p, exp=str(int(time.time()) + 300)),
    "an end that is true": lambda p: good(p, exp=True, iat=None),
    "an end that is a list": lambda p: good(p, exp=[int(time.time()) + 300]),
    "an end that is no number": lambda p: good(p, exp=float("nan")),
    "an end in the year 9999": lambda p: good(p, exp=253_402_300_799),
    "an end beyond a year": lambda p: good(p, exp=int(time.time()) + 367 * 86_400),
    "an end of 400 digits": lambda p: good(p, exp=10**400),
    "not before, as a text": lambda p: good(p, nbf=str(int(time.time()))),
    "issued, as a text": lambda p: good(p, iat=str(int(time.time()))),
    "not yet": lambda p: good(p, nbf=int(time.time()) + 60),
    "issued in the future": lambda p: good(p, iat=int(time.time()) + 60),
    "wrong issuer": lambda p: good(p, iss=f"{ISSUER}.evil.example"),
    "no issuer": lambda p: good(p, iss=None),
    "wrong audience": lambda p: good(p, aud="another"),
    "part of the audience": lambda p: good(p, aud=AUDIENCE[:-1]),
    "no audience": lambda p: good(p, aud=None),
    "nested": lambda p: good(p, {"cty": "JWT"}),
    "a token in a token": lambda p: f"{good(p).partition('.')[0]}.{part(good(p).encode())}.{part(b'x')}",
    "an ID token's logout": lambda p: good(p, {"typ": "logout+jwt"}),
    "huge": lambda p: good(p, padding="x" * 10_000),
    "deep": lambda p: f"{part(b'[' * 3000)}.{part({})}.{part(b'x')}",
    "no tenant": lambda p: good(p, tenant=None),
    "empty tenant": lambda p: good(p, tenant=""),
    "tenants": lambda p: good(p, tenant=["acme"]),
    "a tenant that cannot be": lambda p: good(p, tenant="a\0b"),
    "a tenant of blanks": lambda p: good(p, tenant=" "),
    "a tenant with a blank before it": lambda p: good(p, tenant=" acme"),
    "a tenant with a line break": lambda p: good(p, tenant="acme\n"),
    "a tenant with a tab": lambda p: good(p, tenant="acme\tb"),
    "a tenant with an invisible letter": lambda p: good(p, tenant="ac\u200bme"),
    "a tenant written backwards": lambda p: good(p, tenant="\u202eemca"),
    "a tenant in another form of Unicode": lambda p: good(p, tenant="acme\u0301"),
    "a tenant of half a letter": lambda p: good(p, tenant="acme\ud83d"),
    "a long tenant": lambda p: good(p, tenant="a" * 129),
}
