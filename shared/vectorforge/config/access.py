"""Settings of access: server, CORS origins, identity provider, default limits."""

import json
import re
from collections.abc import Sequence
from decimal import Decimal
from typing import Annotated, Any, Final, Literal, Self, TypeAlias

from pydantic import AfterValidator, BeforeValidator, Field, model_validator
from pydantic_settings import NoDecode

from vectorforge.config.base import Section
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
_EXAMPLES = "https://app.example.com or https://*.example.com: scheme, host and optional port, without a path"


def read_origins(value: Any) -> Any:
    """Split a setting into its entries: separated by commas, or a JSON list.

    Raises:
        ValueError: It begins like a JSON list and is not one; the text does not contain the value.
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
    """Return the origins as browsers send them: lower case, without default ports, without duplicates.

    Args:
        origins: At most ``MAX_ORIGINS``; or ``ANY_ORIGIN`` alone.

    Raises:
        ValueError: An entry is not an origin; the text names its position.
    """
    if len(origins) > MAX_ORIGINS:
        raise ValueError(f"must have at most {MAX_ORIGINS} origins")
    if ANY_ORIGIN in origins and len(set(origins)) > 1:
        raise ValueError(f"must be {ANY_ORIGIN} alone, or a list of origins without it")
    return tuple(dict.fromkeys(_checked(origin, number) for number, origin in enumerate(origins, start=1)))


def origins_pattern(origins: Sequence[str]) -> str:
    """Return a regular expression that matches the whole of each allowed origin; linear in its input.

    Args:
        origins: From ``checked_origins``; ``ANY_ORIGIN`` matches all, no origins match nothing.
    """
    if ANY_ORIGIN in origins:
        return r".+"
    return "|".join(map(_pattern, origins)) or r"(?!)"


def _checked(origin: str, number: int) -> str:
    if origin == ANY_ORIGIN:
        return origin
    lowered = origin.lower()
    match = _ORIGIN.fullmatch(lowered) if len(origin) <= _MAX_CHARS and origin.isascii() else None
    if match is None or int(match["port"] or 0) > 65_535:
        raise ValueError(f"entry {number} must be an origin such as {_EXAMPLES}")
    scheme, host, port = match["scheme"], match["host"], match["port"]
    return f"{scheme}://{host}" + (f":{port}" if port not in (None, _DEFAULT_PORTS[scheme]) else "")


def _pattern(origin: str) -> str:
    scheme, wildcard, rest = origin.partition("://*.")
    return f"{scheme}://(?:{_LABEL}\\.)+{re.escape(rest)}" if wildcard else re.escape(origin)


Origins: TypeAlias = Annotated[
    tuple[str, ...], NoDecode, BeforeValidator(read_origins), AfterValidator(checked_origins)
]


class ServerSettings(Section):
    """HTTP server and its credentials."""

    auth: Literal["api_key", "local"] = "api_key"
    """"local": all requests belong to the tenant ``local``; set only by commands for a laptop."""
    local_tenant: str = "local"
    api_keys: dict[str, str] = Field(default_factory=dict)
    """JSON object: sha256 of an API key (hex) -> tenant."""
    api_gateway_keys: dict[str, str] = Field(default_factory=dict)
    """JSON object: id of an API Gateway key -> tenant. API Gateway has verified the key.

    For a few keys; store more in the secret of ``gateway_key_secret_id``."""
    iam_tenants: dict[str, str] = Field(default_factory=dict)
    """JSON object: ARN of an IAM role or user -> tenant; for front doors with AWS_IAM."""
    credential_scopes: dict[str, Scope] = Field(default_factory=dict)
    """JSON object: name in one of the three above -> read, write or admin; default: admin."""
    allowed_hosts: list[str] = Field(default_factory=list)
    """Accepted host names; empty: any. ``vectorforge up`` accepts only its own."""
    cors_origins: Origins = ()
    """Origins of web pages that may read responses; ``*`` for all, without credentials."""
    api_explorer: bool = True
    """Serve the API explorer at ``/docs``; the CDK's stage "prod" disables it."""
    max_body_bytes: int = Field(default=64 * 1024 * 1024, ge=1)
    header_timeout_s: float = Field(default=10.0, gt=0, le=600)
    """Time limit of a request's headers in ``vectorforge up``."""
    max_connections: int = Field(default=512, ge=1, le=65_535)
    """Open connections of ``vectorforge up``; further ones are rejected."""
    body_timeout_s: float = Field(default=60.0, gt=0, le=3600)
    """Time limit of a request's body; each 16 KiB received adds a second."""


class IdentitySettings(Section):
    """Identity provider whose access tokens (JWT) are accepted; disabled if all are unset."""

    jwt_issuer: str | None = Field(default=None, min_length=1)
    """Value of the claim ``iss``."""
    jwt_audience: str | None = Field(default=None, min_length=1)
    """Value of the claim ``aud`` for this service."""
    jwt_jwks_url: str | None = Field(
        default=None, pattern=r"^(https://[^/]|http://(localhost|127\.0\.0\.1|\[::1\])[:/])"
    )
    """Address of the issuer's keys; https, except on this machine."""
    jwt_tenant_claim: str = Field(default="tenant", min_length=1)
    jwt_scope_claim: str = Field(default="scope", min_length=1)
    """Claim with the scopes: a space-separated text or a list."""
    jwt_scope_prefix: str = ""
    """Prefix of read, write and admin in the claim, e.g. "vectorforge:"."""

    @model_validator(mode="after")
    def _all_or_none(self) -> Self:
        given = (self.jwt_issuer, self.jwt_audience, self.jwt_jwks_url)
        if any(given) and not all(given):
            raise ValueError("VECTORFORGE_JWT_ISSUER, _JWT_AUDIENCE and _JWT_JWKS_URL are needed together")
        return self


class LimitSettings(Section):
    """Default limits of tenants; unset: unlimited."""

    limit_requests_per_minute: int | None = Field(default=None, ge=1, le=1_000_000)
    limit_tokens_per_day: int | None = Field(default=None, ge=1, le=10**15)
    limit_cost_per_month_usd: Decimal | None = Field(default=None, gt=0, lt=10**10, decimal_places=2)
    limit_concurrent_streams: int | None = Field(default=None, ge=1, le=1_000_000)
