"""Parts of a stage's settings: runtime, functions, network, database, domain."""

import re
from dataclasses import dataclass
from typing import Annotated, Literal, TypeAlias

from pydantic import Field

from infra.setting_checks import written_as

Egress: TypeAlias = Literal["nat", "dual_stack", "none"]
"""Egress of the functions, to vendors and AWS services.

"nat": a NAT gateway in ``NetworkSettings.nat_gateways`` zones, to everything. "dual_stack": IPv6 through an
egress-only gateway, free of charge, to hosts that have IPv6 addresses. "none": interface endpoints of the AWS
services that functions use, and no vendor on the internet.
"""

Start: TypeAlias = Literal["on_demand", "snap_start", "provisioned"]
"""Start of a process of the query function: cold, from a snapshot, or provisioned."""

FrontDoor: TypeAlias = Literal["rest_api", "function_url", "both"]
"""Front door of the query function. "function_url" and "both" put CloudFront before a URL with IAM."""

Architecture: TypeAlias = Literal["arm64", "x86_64"]

AtLeastOne: TypeAlias = Annotated[int, Field(ge=1)]

LogDays: TypeAlias = Literal[1, 7, 14, 30, 90, 365]
"""Retention of logs; CloudWatch offers certain numbers of days only."""

_ZONES = 2
_HOST = r"([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z][a-z0-9-]{0,61}[a-z0-9]"
_Host: TypeAlias = Annotated[str, written_as(_HOST, "a lower-case domain name")]
_CERTIFICATE_ARN = r"arn:aws[a-z-]*:acm:{region}:\d{{12}}:certificate/[0-9a-f-]+"
_HttpsUrl: TypeAlias = Annotated[str, written_as(r"https://[^/\s].*", "a URL that begins with https://")]
_NotEmpty: TypeAlias = Annotated[str, Field(min_length=1)]
_VAULT_ARN = r"arn:aws[a-z-]*:backup:[a-z0-9-]+:\d{12}:backup-vault:[A-Za-z0-9_-]{2,50}"
_POOL_ARN = r"arn:aws[a-z-]*:cognito-idp:([a-z0-9-]+):\d{12}:userpool/([a-z0-9-]+_[A-Za-z0-9]+)"

MESSAGE_DAYS = 14
"""Longest retention of SQS."""

RESTORED_HOURS = 2
"""Lifetime of a database that a restore test creates, after its restore."""


class SettingsError(SystemExit):
    """A setting is wrong or contradicts another; the text says which.

    Uncaught it ends the command with its text: each imports ``infra.settings`` before it could catch one.
    """


@dataclass(frozen=True, slots=True)
class CodeSettings:
    """Runtime of the functions."""

    python_version: str = "3.14"
    architecture: Architecture = "arm64"

    @property
    def platform(self) -> str:
        """Platform of wheels in uv's notation: Amazon Linux 2023 has glibc 2.34."""
        return f"{'aarch64' if self.architecture == 'arm64' else 'x86_64'}-manylinux_2_34"


@dataclass(frozen=True, slots=True)
class FunctionSettings:
    """Memory, timeout and concurrency of one function."""

    memory_mb: Annotated[int, Field(ge=128, le=10_240)]
    """1,769 MB are one whole vCPU: https://docs.aws.amazon.com/lambda/latest/dg/configuration-memory.html"""
    timeout_s: Annotated[int, Field(ge=1, le=900)]
    max_concurrency: AtLeastOne | None = None
    """Concurrent invocations; 2 to 1,000 for functions behind a queue. None: the account's limit."""


@dataclass(frozen=True, slots=True)
class ExistingVpc:
    """A VPC that the stacks use and do not change, with two availability zones.

    Raises:
        SettingsError: An id is malformed, or a zone lacks a subnet.
    """

    id: str
    zones: tuple[str, str]
    function_subnets: tuple[str, str]
    """Private subnets with egress to AWS services and vendors, one in each zone in their order."""
    database_subnets: tuple[str, str]
    """Private subnets of the instance and its proxy; they need no egress."""

    def __post_init__(self) -> None:
        if not re.fullmatch(r"vpc-[0-9a-f]{8,17}", self.id):
            raise SettingsError(f"existing.id must be the id of a VPC such as vpc-0a1b2c3d, not {self.id!r}.")
        for name in ("zones", "function_subnets", "database_subnets"):
            if len(set(getattr(self, name))) != _ZONES:
                raise SettingsError(f"existing.{name} must have {_ZONES} different entries.")
        for subnet in (*self.function_subnets, *self.database_subnets):
            if not re.fullmatch(r"subnet-[0-9a-f]{8,17}", subnet):
                raise SettingsError(f"existing has {subnet!r}, which is not the id of a subnet.")


@dataclass(frozen=True, slots=True)
class NetworkSettings:
    """The VPC."""

    egress: Egress
    nat_gateways: Literal[0, 1, 2] = 0
    """One for all zones, or one in each, which survives the loss of a zone."""
    flow_logs: bool = False
    """Log rejected packets."""
    existing: ExistingVpc | None = None
    """Use this VPC instead of creating one. ``egress`` must be "nat", without ``nat_gateways``."""
    zones: tuple[str, ...] = ()
    """Names of two availability zones; empty: the region's first two.

    RDS Proxy is not offered in every zone (use1-az3, for one), and a name means another zone in each account.
    """


@dataclass(frozen=True, slots=True)
class DatabaseSettings:
    """RDS for PostgreSQL."""

    instance_type: Annotated[str, Field(pattern=r"^[a-z0-9]+\.(micro|small|medium|large|\d*xlarge)$")]
    """Without "db.": "t4g.micro"."""
    storage_gib: Annotated[int, Field(ge=20)]
    max_storage_gib: int
    """Limit of storage autoscaling."""
    multi_az: bool
    backup_days: Annotated[int, Field(ge=0, le=35)]
    deletion_protection: bool
    """Refuse to delete the instance. A snapshot is taken in any case."""
    performance_insights: bool
    log_retention_days: LogDays
    backup_window: Annotated[str, Field(pattern=r"^\d\d:\d\d-\d\d:\d\d$")] = "02:00-02:45"
    """UTC, at least half an hour at low traffic; RDS would choose a random one."""
    maintenance_window: Annotated[str, Field(pattern=r"^[a-z]{3}:\d\d:\d\d-[a-z]{3}:\d\d:\d\d$")] = (
        "sun:03:00-sun:04:00"
    )
    """UTC; minor versions of PostgreSQL are installed in it. Must not overlap ``backup_window``."""
    proxy: bool = True
    """Put RDS Proxy before the instance. Without it functions log in to the instance itself, and their
    concurrency must be bounded: ``infra.connection_budget``."""
    engine: Literal["rds", "aurora"] = "rds"
    """"aurora": Aurora Serverless v2, which ignores ``instance_type``, the storage sizes and ``multi_az``."""
    readers: Annotated[int, Field(ge=0, le=15)] = 0
    """Readers of Aurora, 0 to 15: they answer searches, and the first one takes over if the writer fails."""
    min_acu: Annotated[float, Field(multiple_of=0.5)] = 0.5
    """Least capacity of each instance of Aurora. 0, a pause, never comes with RDS Proxy."""
    max_acu: Annotated[float, Field(multiple_of=0.5)] = 4
    proxy_max_connections_percent: Annotated[int, Field(ge=1, le=100)] = 90
    """Share of the instance's ``max_connections``; the rest is for the migrate function and operators."""

    @property
    def max_connections(self) -> int:
        """Value of RDS's formula for the instance's nominal memory; the template sets it without a proxy.

        RDS's own default is lower by the memory that its processes use.
        https://docs.aws.amazon.com/AmazonRDS/latest/UserGuide/CHAP_Limits.html#RDS_Limits.MaxConnections
        """
        return min(int(self.memory_gib * 1024**3 / 9_531_392), 5000)

    @property
    def memory_gib(self) -> float:
        """Memory of the instance by its size: https://aws.amazon.com/rds/instance-types/."""
        small = {"micro": 1.0, "small": 2.0, "medium": 4.0}
        large = 16.0 if self.instance_type.startswith(("r", "x")) else 8.0
        return small.get(self.instance_type.partition(".")[2]) or large * self.vcpus / 2

    @property
    def vcpus(self) -> int:
        """Virtual CPUs of the instance, by which RDS Proxy is billed: two, and four in each "xlarge"."""
        _, _, size = self.instance_type.partition(".")
        return 4 * int(size.removesuffix("xlarge") or 1) if size.endswith("xlarge") else 2


@dataclass(frozen=True, slots=True)
class MonitoringSettings:
    """Parts of the monitoring that are billed by the month."""

    alarms: Literal["all", "essential"] = "all"
    """"essential": only outages and losses, ``infra.monitoring.alarms.ESSENTIAL``."""
    dashboard: bool = True
    topic_key: bool = True
    """Encrypt the alarms' topic with a KMS key of its own; CloudWatch cannot use the AWS managed key."""


@dataclass(frozen=True, slots=True)
class OtelSettings:
    """Export of queries' spans by the log writer, instead of X-Ray's subsegments."""

    endpoint: str | None = None
    """Address for traces of an OTLP/HTTP backend; None: CloudWatch's in the region, which needs Transaction
    Search. Must be reachable by the network's egress."""
    headers_secret: str | None = None
    """Name of a secret of Secrets Manager, {"otlp_headers": "Authorization=Basic ..."}; only the log writer
    reads it. None: no headers."""
    texts: bool = False
    """Export query and answer as the query log has them."""


@dataclass(frozen=True, slots=True)
class ServiceObjective:
    """Targets of a month; what is missing to 100 % is the error budget."""

    answered_percent: Annotated[float, Field(ge=50, lt=100)] = 99.9
    """Queries without a server-side error."""
    fast_percent: Annotated[float, Field(ge=50, lt=100)] = 95.0
    """Answers whose first token of the model comes within five seconds."""


@dataclass(frozen=True, slots=True)
class BackupSettings:
    """Daily backups of the database by AWS Backup, besides RDS's own of ``DatabaseSettings.backup_days``."""

    copy_vault_arn: Annotated[str, written_as(_VAULT_ARN, "the ARN of a backup vault")] | None = None
    """Existing vault of the same account in another region; each backup is copied to it. None: no copies."""
    keep_days: Annotated[int, Field(ge=1, le=36_500)] = 35
    copy_keep_days: Annotated[int, Field(ge=1, le=36_500)] = 35
    hour_utc: Annotated[int, Field(ge=0, le=23)] = 5
    """Full hour, 0 to 23. Must not be in the database's windows, or less than two hours before them."""
    restore_test: bool = False
    """Restore the newest backup into a temporary database on the first of each month, and check it."""


@dataclass(frozen=True, slots=True)
class DomainSettings:
    """Custom domain of the REST API, with DNS entries in a public hosted zone of Route 53 in the account."""

    name: _Host
    """"rag.example.com", lower case; the stack creates its A and AAAA records."""
    hosted_zone_id: Annotated[str, written_as("Z[A-Z0-9]{1,31}", "an id such as Z0123456789ABC")]
    zone_name: _Host
    """"example.com"."""
    certificate_arn: (
        Annotated[str, written_as(_CERTIFICATE_ARN.format(region="[a-z0-9-]+"), "the ARN of a certificate")]
        | None
    ) = None
    """Certificate of AWS Certificate Manager in the stack's region; None: one is created and validated by
    DNS."""


@dataclass(frozen=True, slots=True)
class CustomDomain:
    """A custom domain name of CloudFront; its DNS entry is not part of the stack."""

    name: _Host
    certificate_arn: Annotated[
        str, written_as(_CERTIFICATE_ARN.format(region="us-east-1"), "the ARN of a certificate in us-east-1")
    ]
    """Certificate of AWS Certificate Manager in us-east-1, the only region for CloudFront."""


@dataclass(frozen=True, slots=True)
class UserPool:
    """An existing user pool of Amazon Cognito, whose ID tokens replace API Gateway's keys.

    API Gateway rejects requests without a valid token, and the query function verifies the token again: the
    tenant and the scopes are those of its claims.
    """

    arn: Annotated[str, written_as(_POOL_ARN, "the ARN of a user pool")]
    client_id: Annotated[str, written_as("[A-Za-z0-9_+]{1,128}", "an id of a client")]
    """App client; the tokens' ``aud``."""
    tenant_claim: str = "custom:tenant"
    """Users and app clients must not be able to write this attribute: docs/operate/front-doors.md."""
    scope_claim: str = "cognito:groups"
    """Groups named read, write or admin are scopes."""

    @property
    def environment(self) -> dict[str, str]:
        """Settings with which the query function verifies the pool's tokens."""
        region, pool = re.findall(_POOL_ARN, self.arn)[0]
        domain = "amazonaws.com.cn" if region.startswith("cn-") else "amazonaws.com"
        issuer = f"https://cognito-idp.{region}.{domain}/{pool}"
        return {
            "VECTORFORGE_JWT_ISSUER": issuer,
            "VECTORFORGE_JWT_AUDIENCE": self.client_id,
            "VECTORFORGE_JWT_JWKS_URL": f"{issuer}/.well-known/jwks.json",
            "VECTORFORGE_JWT_TENANT_CLAIM": self.tenant_claim,
            "VECTORFORGE_JWT_SCOPE_CLAIM": self.scope_claim,
        }


@dataclass(frozen=True, slots=True)
class TokenIssuer:
    """An OpenID Connect issuer of any vendor, whose access tokens (JWT) replace API Gateway's keys.

    A REST API has no authorizer for them: requests pass to the query function, which verifies each token and
    takes the tenant and the scopes from its claims. Its own keys (``vf_...``) are accepted as well.
    """

    issuer: _HttpsUrl
    """The tokens' ``iss``, spelled as in them: with or without a slash at the end."""
    audience: _NotEmpty
    """The tokens' ``aud`` for this service."""
    jwks_url: _HttpsUrl
    """``jwks_uri`` of ``<issuer>/.well-known/openid-configuration``."""
    tenant_claim: _NotEmpty = "tenant"
    """Users must not be able to choose its value."""
    scope_claim: _NotEmpty = "scope"
    scope_prefix: str = ""
    """Prefix of read, write and admin in the claim, such as "vectorforge:"."""

    @property
    def environment(self) -> dict[str, str]:
        """Settings with which the query function verifies the issuer's tokens."""
        return {
            "VECTORFORGE_JWT_ISSUER": self.issuer,
            "VECTORFORGE_JWT_AUDIENCE": self.audience,
            "VECTORFORGE_JWT_JWKS_URL": self.jwks_url,
            "VECTORFORGE_JWT_TENANT_CLAIM": self.tenant_claim,
            "VECTORFORGE_JWT_SCOPE_CLAIM": self.scope_claim,
            "VECTORFORGE_JWT_SCOPE_PREFIX": self.scope_prefix,
        }
