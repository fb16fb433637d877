"""What AWS and the vendors of models charge: us-east-1, on demand, without free tiers, discounts and taxes.

From AWS's public price pages as known on ``AS_OF``; nobody has compared them with a bill yet, so check them
(``source``) before you rely on a figure. After changing one: ``python -m infra.costs --write``.
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

AS_OF: Final = "2026-11-22"
REGION: Final = "us-east-1"
HOURS_PER_MONTH: Final = 730
SECONDS_PER_MONTH: Final = HOURS_PER_MONTH * 3600

_LAMBDA = "https://aws.amazon.com/lambda/pricing/"
_API_GATEWAY = "https://aws.amazon.com/api-gateway/pricing/"
_CLOUDFRONT = "https://aws.amazon.com/cloudfront/pricing/"
_WAF = "https://aws.amazon.com/waf/pricing/"
_SQS = "https://aws.amazon.com/sqs/pricing/"
_RDS = "https://aws.amazon.com/rds/postgresql/pricing/"
_PROXY = "https://aws.amazon.com/rds/proxy/pricing/"
_VPC = "https://aws.amazon.com/vpc/pricing/"
_PRIVATELINK = "https://aws.amazon.com/privatelink/pricing/"
_EC2 = "https://aws.amazon.com/ec2/pricing/on-demand/"
_SECRETS = "https://aws.amazon.com/secrets-manager/pricing/"
_KMS = "https://aws.amazon.com/kms/pricing/"
_CLOUDWATCH = "https://aws.amazon.com/cloudwatch/pricing/"
_XRAY = "https://aws.amazon.com/xray/pricing/"


class PriceError(Exception):
    """There is no price for what a stage uses; the text says where to add it."""


@dataclass(frozen=True, slots=True)
class Price:
    """One line of a price list."""

    what: str
    dollars: float
    per: int
    """How many units that buys."""
    unit: str
    source: str

    @property
    def each(self) -> float:
        """Dollars for one unit."""
        return self.dollars / self.per


@dataclass(frozen=True, slots=True)
class Prices:
    """The price list."""

    lambda_request: Price = Price("Lambda, requests", 0.20, 1_000_000, "request", _LAMBDA)
    lambda_arm64: Price = Price("Lambda, arm64", 0.0000133334, 1, "GB-second", _LAMBDA)
    lambda_x86_64: Price = Price("Lambda, x86_64", 0.0000166667, 1, "GB-second", _LAMBDA)
    snapshot_kept: Price = Price("Lambda SnapStart, snapshot kept", 0.0000015046, 1, "GB-second", _LAMBDA)
    snapshot_restored: Price = Price("Lambda SnapStart, restored", 0.0001397998, 1, "GB", _LAMBDA)
    provisioned_arm64: Price = Price("Provisioned concurrency, arm64", 0.0000033334, 1, "GB-second", _LAMBDA)
    provisioned_x86_64: Price = Price(
        "Provisioned concurrency, x86_64", 0.0000041667, 1, "GB-second", _LAMBDA
    )
    api_request: Price = Price("API Gateway, REST", 3.50, 1_000_000, "request", _API_GATEWAY)
    cloudfront_request: Price = Price("CloudFront, HTTPS", 1.00, 1_000_000, "request", _CLOUDFRONT)
    cloudfront_gb: Price = Price("CloudFront, to viewers", 0.085, 1, "GB", _CLOUDFRONT)
    web_acl: Price = Price("WAF, web ACL", 5.00, 1, "month", _WAF)
    web_acl_rule: Price = Price("WAF, rule", 1.00, 1, "month", _WAF)
    web_acl_request: Price = Price("WAF, requests", 0.60, 1_000_000, "request", _WAF)
    sqs_request: Price = Price("SQS, each 64 KB", 0.40, 1_000_000, "request", _SQS)
    storage_single: Price = Price("RDS gp3, one zone", 0.115, 1, "GB-month", _RDS)
    storage_multi: Price = Price("RDS gp3, two zones", 0.23, 1, "GB-month", _RDS)
    proxy_vcpu: Price = Price("RDS Proxy, each vCPU, at least two", 0.015, 1, "hour", _PROXY)
    nat_hour: Price = Price("NAT gateway", 0.045, 1, "hour", _VPC)
    nat_gb: Price = Price("NAT gateway, both directions", 0.045, 1, "GB", _VPC)
    ipv4_hour: Price = Price("Public IPv4 address", 0.005, 1, "hour", _VPC)
    endpoint_hour: Price = Price("Interface endpoint, each zone", 0.01, 1, "hour", _PRIVATELINK)
    endpoint_gb: Price = Price("Interface endpoint, both directions", 0.01, 1, "GB", _PRIVATELINK)
    internet_gb: Price = Price("Data out to the internet", 0.09, 1, "GB", _EC2)
    secret: Price = Price("Secrets Manager, secret", 0.40, 1, "month", _SECRETS)
    key: Price = Price("KMS key", 1.00, 1, "month", _KMS)
    metric: Price = Price("CloudWatch, custom metric", 0.30, 1, "month", _CLOUDWATCH)
    alarm: Price = Price("CloudWatch, alarm, each metric in it", 0.10, 1, "month", _CLOUDWATCH)
    dashboard: Price = Price("CloudWatch, dashboard", 3.00, 1, "month", _CLOUDWATCH)
    log_gb: Price = Price("CloudWatch Logs, taken in", 0.50, 1, "GB", _CLOUDWATCH)
    log_kept_gb: Price = Price("CloudWatch Logs, kept", 0.03, 1, "GB-month", _CLOUDWATCH)
    trace: Price = Price("X-Ray, recorded", 5.00, 1_000_000, "trace", _XRAY)

    def all(self) -> list[Price]:
        """Every line of the list."""
        return [getattr(self, field.name) for field in dataclasses.fields(self)]

    def lambda_gb_second(self, architecture: str) -> Price:
        """Of running."""
        return self.lambda_arm64 if architecture == "arm64" else self.lambda_x86_64

    def provisioned_gb_second(self, architecture: str) -> Price:
        """Of being ready to run."""
        return self.provisioned_arm64 if architecture == "arm64" else self.provisioned_x86_64


PRICES: Final = Prices()

_INSTANCE_HOURS: Final[Mapping[str, float]] = MappingProxyType(
    {"t4g.micro": 0.016, "t4g.small": 0.032, "t4g.medium": 0.065, "t4g.large": 0.129, "t4g.xlarge": 0.258}
)
"""Dollars an hour of PostgreSQL in one zone; two zones are twice that."""


def instance_hour(instance_type: str, *, multi_az: bool) -> Price:
    """An RDS instance.

    Raises:
        PriceError: The table has none of this type.
    """
    dollars = _INSTANCE_HOURS.get(instance_type)
    if dollars is None:
        raise PriceError(f"infra/prices.py has no price for db.{instance_type}: add it from {_RDS}.")
    zones = "two zones" if multi_az else "one zone"
    return Price(
        f"RDS PostgreSQL, db.{instance_type}, {zones}", dollars * (2 if multi_az else 1), 1, "hour", _RDS
    )


@dataclass(frozen=True, slots=True)
class ModelPrice:
    """Dollars for a million tokens."""

    model: str
    provider: str
    """As in the dimension ``provider``."""
    tokens_in: float
    tokens_out: float
    source: str


_OPENAI = "https://openai.com/api/pricing/"

MODELS: Final = (
    ModelPrice("gpt-4o", "openai", 2.50, 10.00, _OPENAI),
    ModelPrice("gpt-4o-mini", "openai", 0.15, 0.60, _OPENAI),
    ModelPrice("claude-sonnet-4-20250514", "anthropic", 3.00, 15.00, "https://www.anthropic.com/pricing"),
    ModelPrice("gemini-2.5-flash", "google", 0.30, 2.50, "https://ai.google.dev/gemini-api/docs/pricing"),
)
EMBEDDING: Final = ModelPrice("text-embedding-3-small", "openai", 0.02, 0.0, _OPENAI)


def model_price(model: str) -> ModelPrice:
    """Of one model.

    Raises:
        PriceError: The table has none.
    """
    found = next((price for price in MODELS if price.model == model), None)
    if found is None:
        raise PriceError(f"infra/prices.py has no price for the model {model}: add it.")
    return found
