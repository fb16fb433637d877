"""Settings of who may come in, and how much of it they may use."""

from decimal import Decimal
from typing import Literal, Self

from pydantic import Field, model_validator

from vectorforge.config.origins import Origins
from vectorforge.config.section import Section
from vectorforge.principal import Scope


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
