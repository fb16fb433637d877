"""List prices of AWS and of model vendors: us-east-1, on demand, without free tiers, discounts and taxes.

From the public price pages as of ``AS_OF``; no bill has confirmed them, so check ``source`` before relying on
a figure. After a change: ``python -m infra.costs --write``.
"""

from dataclasses import dataclass
from typing import Final

AS_OF: Final = "2026-11-22"
REGION: Final = "us-east-1"


class PriceError(Exception):
    """A price is missing; the text says where to add it."""


@dataclass(frozen=True, slots=True)
class Price:
    """One line of the price list: ``dollars`` for ``per`` units."""

    what: str
    dollars: float
    per: int
    unit: str
    source: str

    @property
    def each(self) -> float:
        """Dollars for one unit."""
        return self.dollars / self.per


@dataclass(frozen=True, slots=True)
class ModelPrice:
    """Dollars for a million tokens of a model."""

    model: str
    provider: str
    """Value of the metrics' dimension ``provider``."""
    tokens_in: float
    tokens_out: float
    source: str


_AWS = "https://aws.amazon.com/{}/pricing/"
_M = 1_000_000
_ROWS = (
    ("lambda_request", "Lambda, requests", 0.20, _M, "request", "lambda"),
    ("lambda_arm64", "Lambda, arm64", 0.0000133334, 1, "GB-second", "lambda"),
    ("lambda_x86_64", "Lambda, x86_64", 0.0000166667, 1, "GB-second", "lambda"),
    ("snapshot_kept", "Lambda SnapStart, snapshot kept", 0.0000015046, 1, "GB-second", "lambda"),
    ("snapshot_restored", "Lambda SnapStart, restored", 0.0001397998, 1, "GB", "lambda"),
    ("provisioned_arm64", "Provisioned concurrency, arm64", 0.0000033334, 1, "GB-second", "lambda"),
    ("provisioned_x86_64", "Provisioned concurrency, x86_64", 0.0000041667, 1, "GB-second", "lambda"),
    ("api_request", "API Gateway, REST", 3.50, _M, "request", "api-gateway"),
    ("cloudfront_request", "CloudFront, HTTPS", 1.00, _M, "request", "cloudfront"),
    ("cloudfront_gb", "CloudFront, to viewers", 0.085, 1, "GB", "cloudfront"),
    ("web_acl", "WAF, web ACL", 5.00, 1, "month", "waf"),
    ("web_acl_rule", "WAF, rule", 1.00, 1, "month", "waf"),
    ("web_acl_request", "WAF, requests", 0.60, _M, "request", "waf"),
    ("sqs_request", "SQS, each 64 KB", 0.40, _M, "request", "sqs"),
    ("storage_single", "RDS gp3, one zone", 0.115, 1, "GB-month", "rds/postgresql"),
    ("storage_multi", "RDS gp3, two zones", 0.23, 1, "GB-month", "rds/postgresql"),
    ("proxy_vcpu", "RDS Proxy, each vCPU, at least two", 0.015, 1, "hour", "rds/proxy"),
    ("proxy_acu", "RDS Proxy, each ACU of Aurora, at least eight", 0.015, 1, "hour", "rds/proxy"),
    ("aurora_acu", "Aurora Serverless v2, each ACU", 0.12, 1, "hour", "rds/aurora"),
    ("aurora_storage", "Aurora, storage", 0.10, 1, "GB-month", "rds/aurora"),
    ("backup_gb", "Backups of RDS", 0.095, 1, "GB-month", "backup"),
    ("aurora_backup_gb", "Backups of Aurora", 0.021, 1, "GB-month", "backup"),
    ("restore_test", "AWS Backup, restore test", 1.50, 1, "test", "backup"),
    ("nat_hour", "NAT gateway", 0.045, 1, "hour", "vpc"),
    ("nat_gb", "NAT gateway, both directions", 0.045, 1, "GB", "vpc"),
    ("ipv4_hour", "Public IPv4 address", 0.005, 1, "hour", "vpc"),
    ("endpoint_hour", "Interface endpoint, each zone", 0.01, 1, "hour", "privatelink"),
    ("endpoint_gb", "Interface endpoint, both directions", 0.01, 1, "GB", "privatelink"),
    ("internet_gb", "Data out to the internet", 0.09, 1, "GB", "ec2"),
    ("secret", "Secrets Manager, secret", 0.40, 1, "month", "secrets-manager"),
    ("key", "KMS key", 1.00, 1, "month", "kms"),
    ("metric", "CloudWatch, custom metric", 0.30, 1, "month", "cloudwatch"),
    ("alarm", "CloudWatch, alarm, each metric in it", 0.10, 1, "month", "cloudwatch"),
    ("composite_alarm", "CloudWatch, composite alarm", 0.50, 1, "month", "cloudwatch"),
    ("dashboard", "CloudWatch, dashboard", 3.00, 1, "month", "cloudwatch"),
    ("log_gb", "CloudWatch Logs, taken in", 0.50, 1, "GB", "cloudwatch"),
    ("log_kept_gb", "CloudWatch Logs, kept", 0.03, 1, "GB-month", "cloudwatch"),
    ("trace", "X-Ray, recorded", 5.00, _M, "trace", "xray"),
)


def _source(page: str) -> str:
    return f"{_AWS.format(page)}on-demand/" if page == "ec2" else _AWS.format(page)


PRICES: Final = {
    key: Price(what, dollars, per, unit, _source(page)) for key, what, dollars, per, unit, page in _ROWS
}

_INSTANCE_HOURS: Final = {
    "t4g.micro": 0.016, "t4g.small": 0.032, "t4g.medium": 0.065, "t4g.large": 0.129, "t4g.xlarge": 0.258,
    "m7g.large": 0.168, "m7g.xlarge": 0.337,
}  # fmt: skip
"""Dollars an hour of PostgreSQL in one zone; two zones are twice that."""

_OPENAI = "https://openai.com/api/pricing/"
MODELS: Final = (
    ModelPrice("gpt-4o", "openai", 2.50, 10.00, _OPENAI),
    ModelPrice("gpt-4o-mini", "openai", 0.15, 0.60, _OPENAI),
    ModelPrice("claude-sonnet-4-20250514", "anthropic", 3.00, 15.00, "https://www.anthropic.com/pricing"),
    ModelPrice("gemini-2.5-flash", "google", 0.30, 2.50, "https://ai.google.dev/gemini-api/docs/pricing"),
)
EMBEDDING: Final = ModelPrice("text-embedding-3-small", "openai", 0.02, 0.0, _OPENAI)


def instance_hour(instance_type: str, *, multi_az: bool) -> Price:
    """Return the price of an hour of an RDS instance.

    Raises:
        PriceError: The table lacks this type.
    """
    source = _source("rds/postgresql")
    if instance_type not in _INSTANCE_HOURS:
        raise PriceError(f"infra/costs/prices.py has no price for db.{instance_type}: add it from {source}.")
    zones, factor = ("two zones", 2) if multi_az else ("one zone", 1)
    what = f"RDS PostgreSQL, db.{instance_type}, {zones}"
    return Price(what, _INSTANCE_HOURS[instance_type] * factor, 1, "hour", source)
