"""Keys and tenants."""

import asyncio
import hashlib
from collections.abc import Mapping
from typing import Any

import pytest

from vectorforge.api.identity.authenticator import Authenticator
from vectorforge.config import ServerSettings
from vectorforge.errors import AuthenticationError, ConfigurationError

KEY = "a-key-of-acme"
DIGEST = hashlib.sha256(KEY.encode()).hexdigest()


def settings(**values: Any) -> ServerSettings:
    return ServerSettings(**{"api_keys": {DIGEST.upper(): "acme", "0" * 64: "other"}, **values})


def tenant_of(server: ServerSettings, headers: Mapping[str, str]) -> str:
    return asyncio.run(Authenticator(server).authenticate(headers)).tenant


@pytest.mark.parametrize(
    "headers",
    [
        {"authorization": f"Bearer {KEY}"},
        {"authorization": f"bearer  {KEY} "},
        {"x-api-key": KEY},
        {"x-api-key": KEY, "authorization": "Basic eA=="},
    ],
)
def test_configured_key_returns_its_tenant(headers: dict[str, str]) -> None:  # C42
    assert tenant_of(settings(), headers) == "acme"


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"x-api-key": ""},
        {"x-api-key": DIGEST},  # the hash that is stored is not the key
        {"x-api-key": KEY.upper()},
        {"x-api-key": "x" * 10_000},
        {"x-api-key": "\ud83d"},
        {"authorization": f"Bearer wrong {KEY}", "x-api-key": KEY},
        {"authorization": KEY},
    ],
)
def test_invalid_credentials_are_rejected_without_echoing_the_key(
    headers: dict[str, str],
) -> None:  # security 10
    with pytest.raises(AuthenticationError) as caught:
        tenant_of(settings(), headers)
    assert KEY not in caught.value.message


def test_auth_without_configured_keys_rejects_every_request() -> None:
    with pytest.raises(AuthenticationError):
        tenant_of(ServerSettings(), {"x-api-key": ""})


def test_local_auth_returns_one_tenant_for_any_headers() -> None:  # C42
    assert tenant_of(settings(auth="local", local_tenant="me"), {"x-api-key": KEY}) == "me"


@pytest.mark.parametrize(
    "keys",
    [
        {KEY: "acme"},
        {"g" * 63: "acme"},
        {"g" * 64: "acme"},
        {DIGEST[:-1] + "\uff11": "acme"},
        {DIGEST + "\n": "acme"},
        {DIGEST: ""},
        {DIGEST: "ä" * 65},
        {DIGEST: "a\0b"},
    ],
)
def test_plaintext_keys_are_rejected_at_startup(keys: dict[str, str]) -> None:
    with pytest.raises(ConfigurationError) as caught:
        Authenticator(ServerSettings(api_keys=keys))
    assert KEY not in caught.value.message


def test_unstorable_local_tenant_is_rejected_at_startup() -> None:
    with pytest.raises(ConfigurationError, match="VECTORFORGE_LOCAL_TENANT"):
        Authenticator(settings(auth="local", local_tenant=""))
