"""Settings of the identity provider: a JWKS URL over HTTPS, and completeness."""

import pytest

from tests.support.http.identity_provider import AUDIENCE, ISSUER
from vectorforge.config import IdentitySettings, VectorForgeConfig
from vectorforge.errors import ConfigurationError


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
