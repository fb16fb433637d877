"""``VECTORFORGE_CORS_ORIGINS``: syntax, and errors of invalid values."""

import pytest

from vectorforge.config import VectorForgeConfig
from vectorforge.config.access import MAX_ORIGINS
from vectorforge.errors import ConfigurationError

NAME = "VECTORFORGE_CORS_ORIGINS"


def read(value: str, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setenv(NAME, value)
    return list(VectorForgeConfig.from_environment().server.cors_origins)


@pytest.mark.parametrize(
    ("value", "origins"),
    [
        ("", []),
        ("*", ["*"]),
        ("https://app.example.com", ["https://app.example.com"]),
        ("https://a.example, http://localhost:3000", ["https://a.example", "http://localhost:3000"]),
        (
            '["https://a.example", "https://*.b.example:8443"]',
            ["https://a.example", "https://*.b.example:8443"],
        ),
        ("https://App.Example.com", ["https://app.example.com"]),
        ("https://a.example:443,http://b.example:80", ["https://a.example", "http://b.example"]),
        ("http://[::1]:3000", ["http://[::1]:3000"]),
        ("https://a.example,https://a.example", ["https://a.example"]),
    ],
)
def test_cors_origins_match_browser_origin_header(
    value: str, origins: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert read(value, monkeypatch) == origins


@pytest.mark.parametrize(
    "canary",
    [
        "canary.example",
        "https://canary.example/",
        "https://canary.example/path",
        "https://canary.example?x=1",
        "https://user@canary.example",
        "https://canary.example:port",
        "https://canary.example:70000",
        "https://canary_.example",
        "https://canary..example",
        "https://canäry.example",
        "ftp://canary.example",
        "null",
        "https://*",
        "https://*.canary",
        "https://*canary.example",
        "https://a.*.canary.example",
        "https://*.*.canary.example",
        "*.canary.example",
        "*, https://canary.example",
        "https://canary.example,,https://b.example",
        '["https://canary.example", 7]',
        '["https://canary.example"',
        "https://" + "canary." * 40 + "example",
        ",".join(f"https://canary{number}.example" for number in range(MAX_ORIGINS + 1)),
    ],
)
def test_invalid_cors_origin_raises_configuration_error(canary: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigurationError, match=NAME) as caught:
        read(canary, monkeypatch)
    assert "canary" not in caught.value.message


def test_cors_error_names_entry_and_expected_format(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigurationError, match=r"ORIGINS: entry 2 .*https://app\.example\.com"):
        read("https://a.example,https://b.example/", monkeypatch)
