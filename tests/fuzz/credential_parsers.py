"""Parsers of credentials: headers, tokens, an identity provider's keys, front doors' identities, secrets."""

import hashlib
import json
import time
from collections.abc import Sequence
from functools import cache
from typing import Any, Final

import jwt
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from jwt.algorithms import OKPAlgorithm

from tests.fuzz.event_loop import result_of
from vectorforge.api.identity.access_tokens import AccessTokens, VerificationKey, read_keys
from vectorforge.api.identity.authenticator import Authenticator
from vectorforge.api.identity.front_doors import FrontDoorCaller
from vectorforge.api.identity.issued_keys import IssuedKeys
from vectorforge.aws.secret_readers import secret_fields
from vectorforge.config import IdentitySettings, ServerSettings
from vectorforge.db.repositories.api_key_repo import ActiveApiKey
from vectorforge.errors import AuthenticationError, ConfigurationError
from vectorforge.types import Principal, Scope

KEY: Final = "key-of-alice"
TENANT: Final = "alice"
_ISSUER: Final = "https://idp.example"
_AUDIENCE: Final = "vectorforge"


class _Keys:
    """Keys of an identity provider, without fetching them."""

    async def find(self, key_id: str) -> VerificationKey | None:
        return read_keys(_key_set()).get(key_id)


async def _no_issued_key(digest: bytes) -> ActiveApiKey | None:
    return None


@cache
def _private_key() -> Ed25519PrivateKey:
    return Ed25519PrivateKey.from_private_bytes(bytes(range(32)))


@cache
def _key_set() -> dict[str, Any]:
    public = OKPAlgorithm.to_jwk(_private_key().public_key(), as_dict=True)
    return {"keys": [{**public, "kid": "ed", "use": "sig"}]}


@cache
def _tokens() -> AccessTokens:
    settings = IdentitySettings(
        jwt_issuer=_ISSUER, jwt_audience=_AUDIENCE, jwt_jwks_url="https://idp.example/jwks.json"
    )
    return AccessTokens(settings, _Keys())  # type: ignore[arg-type] # reads nothing else


@cache
def _authenticator() -> Authenticator:
    digest = hashlib.sha256(KEY.encode()).hexdigest()
    arn = "arn:aws:iam::123456789012:role/reader"
    settings = ServerSettings(
        api_keys={digest: TENANT}, api_gateway_keys={"abc123": TENANT}, iam_tenants={arn: TENANT}
    )
    return Authenticator(settings, issued=IssuedKeys(_no_issued_key), tokens=_tokens())


def _is_alices(principal: Principal) -> None:
    assert principal.tenant == TENANT
    assert principal.scopes <= Scope.ADMIN.included


def read_credential(content: bytes) -> None:
    """Parse ``Authorization`` and ``X-Api-Key``, one line each: rejected, or a caller's."""
    authorization, _, key = content.decode("latin-1").partition("\n")
    headers = {"authorization": authorization, **({"x-api-key": key} if key else {})}
    try:
        _is_alices(result_of(_authenticator().authenticate(headers)))
    except AuthenticationError:
        return


def read_claims(content: bytes) -> None:
    """Parse claims of a correctly signed token: rejected, or of a tenant that tables can store."""
    token = jwt.api_jws.encode(content, _private_key(), algorithm="EdDSA", headers={"kid": "ed"})
    try:
        principal = result_of(_tokens().verify(token))
    except AuthenticationError:
        return
    assert 1 <= len(principal.tenant.encode()) <= 128
    assert "\0" not in principal.tenant
    assert principal.scopes <= Scope.ADMIN.included


def read_token_header(content: bytes) -> None:
    """Parse a header of an unsigned token: always rejected."""
    header, body = (jwt.utils.base64url_encode(part).decode() for part in (content, b"{}"))
    try:
        result_of(_tokens().verify(f"{header}.{body}.AAAA"))
    except AuthenticationError:
        return
    raise AssertionError("a token without a signature was taken")


def read_key_set(content: bytes) -> None:
    """Parse an identity provider's keys: usable ones, without symmetric or weak keys."""
    try:
        document = json.loads(content)
    except (ValueError, RecursionError):
        return
    for key in read_keys(document).values():
        assert key.algorithm in ("RS256", "ES256", "EdDSA")
        assert key.algorithm != "RS256" or key.key.key.key_size >= 2048


def read_front_door(content: bytes) -> None:
    """Parse a front door's identity: none, or a caller assigned to a tenant."""
    try:
        event = json.loads(content)
    except (ValueError, RecursionError):
        return
    caller = FrontDoorCaller.of(event)
    assert caller.api_key_id is None or isinstance(caller.api_key_id, str)
    try:
        _is_alices(result_of(_authenticator().authenticate({}, event)))
    except AuthenticationError:
        return


def read_secret(content: bytes) -> None:
    """Parse a secret of Secrets Manager: an object, or an error without its text."""
    try:
        assert isinstance(secret_fields("name", content, "settings"), dict)
        return
    except ConfigurationError as exc:
        error = exc
    assert error.message == "Secret name must be a JSON object of settings."
    assert error.__cause__ is None


def credential_inputs(parser: str) -> Sequence[bytes]:
    """Return valid inputs of the parsers here."""
    claims = {"iss": _ISSUER, "aud": _AUDIENCE, "exp": int(time.time()) + 10**7, "tenant": TENANT}
    claims |= {"scope": "read write", "sub": "ada"}
    token = jwt.encode(claims, _private_key(), algorithm="EdDSA", headers={"kid": "ed"})
    context = {"identity": {"apiKeyId": "abc123", "userArn": "arn:aws:iam::123456789012:role/a/reader"}}
    session = "arn:aws:sts::123456789012:assumed-role/reader/session"
    iam = {"authorizer": {"iam": {"userArn": session}}}
    found: dict[str, list[bytes]] = {
        "credential": [b"Bearer " + KEY.encode(), f"Bearer {token}".encode(), b"Basic x\n" + KEY.encode()],
        "token-claims": [json.dumps(claims).encode(), json.dumps({**claims, "scope": ["admin"]}).encode()],
        "token-header": [b'{"alg": "EdDSA", "kid": "ed", "typ": "at+jwt"}', b'{"alg": "none"}'],
        "key-set": [json.dumps(_key_set()).encode(), _OTHER_KEYS],
        "front-door": [
            json.dumps({"version": "2.0", "requestContext": iam}).encode(),
            json.dumps({"requestContext": context}).encode(),
        ],
        "secret": [b'{"openai_api_key": "k", "n": 1}'],
    }
    return found[parser]


_OTHER_KEYS: Final = (
    b'{"keys": [{"kty": "EC", "crv": "P-256", "kid": "e", "alg": "ES256", '
    b'"x": "f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU", '
    b'"y": "x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0"},'
    b' {"kty": "RSA", "kid": "r", "n": "AQAB", "e": "AQAB"}, {"kty": "oct", "kid": "s", "k": "AQAB"}]}'
)
"""Keys of RFC 7517, A.1, and two unusable ones."""

CREDENTIAL_PARSERS: Final = {
    "credential": read_credential,
    "token-claims": read_claims,
    "token-header": read_token_header,
    "key-set": read_key_set,
    "front-door": read_front_door,
    "secret": read_secret,
}
"""Parsers by their names on the command line."""
CREDENTIAL_FOUND: Final = {"secret": [b"[" * 2000]}
"""Inputs of earlier findings."""
