"""Access tokens: valid ones, and forgeries."""

import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from starlette.responses import RedirectResponse, Response

from tests.support.http.identity_provider import AUDIENCE, IdentityProvider, identity_provider
from tests.unit.forged_tokens import FORGERIES, good
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
from vectorforge.config import ServerSettings
from vectorforge.errors import AuthenticationError, IdentityProviderUnavailableError
from vectorforge.types import Principal, Scope


class Clock:
    """A clock set by the test."""

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
        for number in range(50):  # anyone can send tokens
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
        with pytest.raises(IdentityProviderUnavailableError):  # immediately: it was just requested
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
