"""Origins of web pages, as an operator writes them: exact, any subdomain, or all.

Settings of who may come in, and how much of it they may use.
"""

import json
import re
from collections.abc import Sequence
from decimal import Decimal
from typing import Annotated, Any, Final, Literal, Self, TypeAlias

from pydantic import AfterValidator, BeforeValidator, Field, model_validator
from pydantic_settings import NoDecode

from vectorforge.config.sources import Section
from vectorforge.types import Scope

ANY_ORIGIN: Final = "*"
MAX_ORIGINS: Final = 100

_LABEL = r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
_ORIGIN = re.compile(
    rf"(?P<scheme>https?)://"
    rf"(?P<host>\*(?:\.{_LABEL}){{2,}}|{_LABEL}(?:\.{_LABEL})*|\[[0-9a-f:.]{{2,45}}\])"
    r"(?::(?P<port>[1-9][0-9]{0,4}))?"
)
_DEFAULT_PORTS: Final = {"http": "80", "https": "443"}
_MAX_CHARS = 267
"""``https://``, a host name of 253 characters, ``:65535``."""
_WANTED = "https://app.example.com or https://*.example.com: scheme, host and optional port, without a path"


def read_origins(value: Any) -> Any:
    """Split a setting into its entries: separated by commas, or a JSON list.

    Raises:
        ValueError: It begins like a JSON list and is none; the text does not hold the value.
    """
    if not isinstance(value, str):
        return value
    if not value.lstrip().startswith("["):
        return [entry.strip() for entry in value.split(",")]
    try:
        return json.loads(value)
    except ValueError:
        raise ValueError("must be origins separated by commas, or a JSON list of them") from None


def checked_origins(origins: Sequence[str]) -> tuple[str, ...]:
    """The origins as browsers send them: lower case, without a scheme's default port, each once.

    Args:
        origins: At most ``MAX_ORIGINS``; or ``ANY_ORIGIN`` alone.

    Raises:
        ValueError: An entry is no origin; the text names its position.
    """
    if len(origins) > MAX_ORIGINS:
        raise ValueError(f"must have at most {MAX_ORIGINS} origins")
    if ANY_ORIGIN in origins and len(set(origins)) > 1:
        raise ValueError(f"must be {ANY_ORIGIN} alone, or a list of origins without it")
    return tuple(dict.fromkeys(_checked(origin, number) for number, origin in enumerate(origins, start=1)))


def origins_pattern(origins: Sequence[str]) -> str:
    """A regular expression that matches the whole of each origin that is meant; linear in its input.

    Args:
        origins: From ``checked_origins``; of ``ANY_ORIGIN`` everything is matched, of none nothing.
    """
    if ANY_ORIGIN in origins:
        return r".+"
    return "|".join(map(_pattern, origins)) or r"(?!)"


def _checked(origin: str, number: int) -> str:
    if origin == ANY_ORIGIN:
        return origin
    lowered = origin.lower()
    found = _ORIGIN.fullmatch(lowered) if len(origin) <= _MAX_CHARS and origin.isascii() else None
    if found is None or int(found["port"] or 0) > 65_535:
        raise ValueError(f"entry {number} must be an origin such as {_WANTED}")
    scheme, host, port = found["scheme"], found["host"], found["port"]
    return f"{scheme}://{host}" + (f":{port}" if port not in (None, _DEFAULT_PORTS[scheme]) else "")


def _pattern(origin: str) -> str:
    scheme, wildcard, rest = origin.partition("://*.")
    return f"{scheme}://(?:{_LABEL}\\.)+{re.escape(rest)}" if wildcard else re.escape(origin)


Origins: TypeAlias = Annotated[
    tuple[str, ...], NoDecode, BeforeValidator(read_origins), AfterValidator(checked_origins)
]


class ServerSettings(Section):
    """The HTTP door."""

    auth: Literal["api_key", "local"] = "api_key"
    """"local": everyone who can reach the port is the tenant ``local``; only commands for a laptop set it."""
    local_tenant: str = "local"
    api_keys: dict[str, str] = Field(default_factory=dict)
    """JSON object: sha256 of an API key (hex) -> tenant."""
    api_gateway_keys: dict[str, str] = Field(default_factory=dict)
    """JSON object: id of an API Gateway key -> tenant. API Gateway has checked the key.

    For a few keys; more belong into the secret that ``gateway_key_secret_id`` names."""
    iam_tenants: dict[str, str] = Field(default_factory=dict)
    """JSON object: ARN of an IAM role or user -> tenant; for front doors with AWS_IAM."""
    credential_scopes: dict[str, Scope] = Field(default_factory=dict)
    """JSON object: a name of one of the three above -> read, write or admin; admin without an entry."""
    allowed_hosts: list[str] = Field(default_factory=list)
    """Host names the server answers to; empty means any. ``vectorforge up`` allows its own only."""
    cors_origins: Origins = ()
    """Origins of web pages that may read responses; ``*`` for all, without credentials."""
    max_body_bytes: int = Field(default=64 * 1024 * 1024, ge=1)
    header_timeout_s: float = Field(default=10.0, gt=0, le=600)
    """Longest time for the headers of a request on a connection of ``vectorforge up``."""
    max_connections: int = Field(default=512, ge=1, le=65_535)
    """Open connections of ``vectorforge up``; further ones are refused."""
    body_timeout_s: float = Field(default=60.0, gt=0, le=3600)
    """Longest time for a request's body; each 16 KiB that came in earn another second."""


class IdentitySettings(Section):
    """An identity provider whose access tokens (JWT) are taken. All unset: none are."""

    jwt_issuer: str | None = Field(default=None, min_length=1)
    """As in the claim ``iss``."""
    jwt_audience: str | None = Field(default=None, min_length=1)
    """This service, as in the claim ``aud``."""
    jwt_jwks_url: str | None = Field(
        default=None, pattern=r"^(https://[^/]|http://(localhost|127\.0\.0\.1|\[::1\])[:/])"
    )
    """Where the issuer's keys are; over https, but for a provider on this machine."""
    jwt_tenant_claim: str = Field(default="tenant", min_length=1)
    jwt_scope_claim: str = Field(default="scope", min_length=1)
    """Words in one text, or a list of texts."""
    jwt_scope_prefix: str = ""
    """What stands before read, write and admin there, e.g. "vectorforge:"."""

    @model_validator(mode="after")
    def _all_or_none(self) -> Self:
        given = (self.jwt_issuer, self.jwt_audience, self.jwt_jwks_url)
        if any(given) and not all(given):
            raise ValueError("VECTORFORGE_JWT_ISSUER, _JWT_AUDIENCE and _JWT_JWKS_URL are needed together")
        return self


class LimitSettings(Section):
    """Limits of tenants that have none of their own; unset: none."""

    limit_requests_per_minute: int | None = Field(default=None, ge=1, le=1_000_000)
    limit_tokens_per_day: int | None = Field(default=None, ge=1, le=10**15)
    limit_cost_per_month_usd: Decimal | None = Field(default=None, gt=0, lt=10**10, decimal_places=2)
    limit_concurrent_streams: int | None = Field(default=None, ge=1, le=1_000_000)
