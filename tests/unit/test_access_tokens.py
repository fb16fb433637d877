"""Access tokens: who is let in, and the ways to forge one."""

import base64
import hashlib
import hmac
import json
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from starlette.responses import RedirectResponse, Response

from tests.support.http.identity_provider import AUDIENCE, ISSUER, IdentityProvider, identity_provider
from vectorforge.api.identity.access_tokens import (
    MAX_AGE_S,
    MIN_INTERVAL_S,
    STALE_S,
    AccessTokens,
    KeySet,
    is_access_token,
    read_keys,
)
from vectorforge.api.identity.authenticator import Authenticator
from vectorforge.config import IdentitySettings, ServerSettings, VectorForgeConfig
from vectorforge.errors import AuthenticationError, ConfigurationError, IdentityProviderUnavailableError
from vectorforge.types import Principal, Scope


class Clock:
    """Seconds that pass when they are told to."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
async def provider() -> AsyncIterator[IdentityProvider]:
    async with identity_provider() as served:
        yield served


async def verified(provider: IdentityProvider, token: str, **settings: Any) -> Principal:
    wanted = provider.settings.model_copy(update=settings)
    tokens = AccessTokens(wanted, KeySet(str(wanted.jwt_jwks_url)))
    return await Authenticator(ServerSettings(), tokens=tokens).authenticate(
        {"authorization": f"Bearer {token}"}
    )


@pytest.mark.parametrize(("key_id", "algorithm"), [("rsa", "RS256"), ("ec", "ES256"), ("ed", "EdDSA")])
async def test_valid_token_returns_tenant_scopes_and_hashed_credential(
    provider: IdentityProvider, key_id: str, algorithm: str
) -> None:
    token = provider.token(key_id, algorithm, tenant="acme", scope="openid write", aud=["other", AUDIENCE])
    principal = await verified(provider, token)
    assert (principal.tenant, principal.scopes) == ("acme", frozenset({Scope.READ, Scope.WRITE}))
    assert principal.credential.startswith("jwt:")
    assert "ada" not in principal.credential  # which may be an e-mail address


@pytest.mark.parametrize(
    ("granted", "scopes"),
    [
        ("read", {Scope.READ}),
        (["openid", "admin"], set(Scope)),
        ("readwrite Read", set()),
        (None, set()),
        (["read", 7, None, {}], {Scope.READ}),
        ({"read": True}, set()),
        (7, set()),
    ],
)
async def test_scope_claim_sets_principal_scopes(
    provider: IdentityProvider, granted: object, scopes: set[Scope]
) -> None:
    assert (await verified(provider, provider.token(tenant="acme", scope=granted))).scopes == scopes


async def test_renamed_claims_and_scope_prefix_are_read_per_settings(provider: IdentityProvider) -> None:
    claims: dict[str, Any] = {"https://acme.example/t": "acme", "permissions": ["vf:read", "write"]}
    token = provider.token(**claims)
    settings = {"jwt_tenant_claim": "https://acme.example/t", "jwt_scope_claim": "permissions"}
    principal = await verified(provider, token, **settings, jwt_scope_prefix="vf:")
    assert (principal.tenant, principal.scopes) == ("acme", frozenset({Scope.READ}))


def part(value: Any) -> str:
    raw = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def signed_with_the_public_key(provider: IdentityProvider) -> str:
    """HS256, the secret being what everybody can read (CVE-2022-29217 and its like)."""
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


@pytest.mark.parametrize("name", FORGERIES)
async def test_forged_token_is_rejected_without_echoing_it(
    provider: IdentityProvider, name: str
) -> None:  # security 11
    token = FORGERIES[name](provider)
    with pytest.raises(AuthenticationError) as caught:
        await verified(provider, token)
    assert caught.value.presented
    assert provider.fetched <= 1
    assert token not in caught.value.message


@pytest.mark.parametrize("tenant", ["acme", "Acme Corp.", "münchen", "org:7/team-a", "a" * 128])
async def test_printable_tenant_claim_is_accepted(provider: IdentityProvider, tenant: str) -> None:
    assert (await verified(provider, good(provider, tenant=tenant))).tenant == tenant


async def test_exp_claim_accepts_fractions_and_up_to_one_year(provider: IdentityProvider) -> None:
    for end in (time.time() + 0.5, time.time() + 365 * 86_400):
        assert (await verified(provider, good(provider, exp=end))).tenant == "acme"


async def test_invalid_claim_error_names_claim_and_limit(provider: IdentityProvider) -> None:
    with pytest.raises(AuthenticationError, match=r"`exp`.*366 days"):
        await verified(provider, good(provider, exp=253_402_300_799))
    with pytest.raises(AuthenticationError, match=r"tenant.*128 bytes"):
        await verified(provider, good(provider, tenant="acme\n"))


def test_is_access_token_matches_three_part_tokens_only() -> None:
    assert is_access_token("eyJ0.eyJ1.c2ln")
    for other in (
        "",
        "a.b",
        "a.b.c.d.e",
        "vf_0123456789abcdef_" + "x" * 43,
        "ä.b.c",
        "a.b.c" * 3000,
        "a b.c.d",
    ):
        assert not is_access_token(other)


async def test_token_without_identity_provider_is_rejected(provider: IdentityProvider) -> None:
    with pytest.raises(AuthenticationError):
        await Authenticator(ServerSettings()).authenticate({"authorization": f"Bearer {good(provider)}"})


class TestKeySet:
    async def test_unknown_key_id_triggers_refetch_at_most_once_a_minute(
        self, provider: IdentityProvider
    ) -> None:
        clock = Clock()
        keys = KeySet(f"{provider.url}/jwks.json", clock=clock)
        assert await keys.find("rsa") is not None
        for number in range(50):  # anybody can send tokens
            assert await keys.find(f"unknown-{number}") is None
        assert provider.fetched == 1
        provider.private["rsa-2"] = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        assert await keys.find("rsa-2") is None
        clock.now += MIN_INTERVAL_S
        assert await keys.find("rsa-2") is not None
        assert provider.fetched == 2

    async def test_withdrawn_key_is_dropped_after_ten_minutes(self, provider: IdentityProvider) -> None:
        clock = Clock()
        keys = KeySet(f"{provider.url}/jwks.json", clock=clock)
        assert await keys.find("rsa") is not None
        del provider.private["rsa"]
        assert await keys.find("rsa") is not None
        clock.now += MAX_AGE_S + 1
        assert await keys.find("rsa") is None

    async def test_unavailable_provider_serves_cached_keys_for_one_hour(
        self, provider: IdentityProvider
    ) -> None:
        clock = Clock()
        keys = KeySet(f"{provider.url}/jwks.json", clock=clock)
        assert await keys.find("rsa") is not None
        provider.answer = Response(status_code=500)
        clock.now += MAX_AGE_S + STALE_S
        assert await keys.find("rsa") is not None
        clock.now += 1
        with pytest.raises(IdentityProviderUnavailableError):
            await keys.find("rsa")
        fetched = provider.fetched
        with pytest.raises(IdentityProviderUnavailableError):  # at once: it was just asked
            await keys.find("rsa")
        assert provider.fetched == fetched

    @pytest.mark.parametrize(
        "answer",
        [
            RedirectResponse("http://169.254.169.254/latest/meta-data"),
            RedirectResponse("/jwks.json"),
            Response(b"[" * 100_000),
            Response(b'{"keys": [' + b" " * 300_000 + b"]}"),
            Response(b"not JSON"),
            Response(b"\xff"),
            Response(status_code=404),
        ],
    )
    async def test_unusable_provider_response_raises_unavailable(
        self, provider: IdentityProvider, answer: Response
    ) -> None:
        provider.answer = answer
        with pytest.raises(IdentityProviderUnavailableError):
            await KeySet(f"{provider.url}/jwks.json").find("rsa")
        assert provider.fetched == 1

    def test_documents_yield_public_signature_keys_only(
        self, provider_keys: dict[str, dict[str, Any]]
    ) -> None:
        rsa_key, ec_key = provider_keys["rsa"], provider_keys["ec"]
        small = {**rsa_key, "n": rsa_key["n"][:171]}
        others: list[Any] = [
            {**rsa_key, "use": "enc"},
            {**rsa_key, "alg": "RS512"},
            {**rsa_key, "alg": "HS256"},
            {**rsa_key, "d": "AQAB"},
            {"kty": "oct", "k": "c2VjcmV0", "kid": "x"},
            {**ec_key, "crv": "P-521"},
            {**ec_key, "x": "AA"},
            {name: value for name, value in rsa_key.items() if name != "kid"},
            {**rsa_key, "kid": 7},
            {**rsa_key, "kty": ["RSA"]},
            small,
            None,
            "key",
        ]
        assert read_keys({"keys": others}) == {}
        documents: list[Any] = [None, [], {}, {"keys": None}, {"keys": {}}, "keys"]
        for document in documents:
            assert read_keys(document) == {}
        many = [{**rsa_key, "kid": str(number)} for number in range(200)]
        assert len(read_keys({"keys": many})) == 100


@pytest.fixture
def provider_keys() -> dict[str, dict[str, Any]]:
    return {key["kid"]: key for key in IdentityProvider().public_keys()["keys"]}


@pytest.mark.parametrize(
    ("url", "good_url"),
    [
        ("https://idp.example/keys", True),
        ("http://localhost:8080/keys", True),
        ("http://127.0.0.1/keys", True),
        ("http://idp.example/keys", False),
        ("http://localhost.evil.example/keys", False),
        ("http://127.0.0.1@evil.example/keys", False),
        ("file:///etc/passwd", False),
    ],
)
def test_jwks_url_without_https_is_rejected(url: str, good_url: bool) -> None:
    values = {"jwt_issuer": ISSUER, "jwt_audience": AUDIENCE, "jwt_jwks_url": url}
    if good_url:
        assert IdentitySettings(**values).jwt_jwks_url == url
    else:
        with pytest.raises(ValueError, match="jwt_jwks_url"):
            IdentitySettings(**values)


@pytest.mark.parametrize("variable", ["ISSUER", "AUDIENCE", "JWKS_URL"])
def test_incomplete_provider_settings_raise_configuration_error(
    monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    monkeypatch.setenv(f"VECTORFORGE_JWT_{variable}", "https://idp.example/")
    with pytest.raises(ConfigurationError, match="needed together"):
        VectorForgeConfig.from_environment()
