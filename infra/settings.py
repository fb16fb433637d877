"""What differs between stages: size, availability, egress, starts, retention. The only file to edit for that.

    python -m infra.app            reads the stage from CDK's context: cdk synth -c stage=prod

Prices behind the defaults: docs/costs.md.
"""

import dataclasses
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal, TypeAlias, cast, get_args

Egress: TypeAlias = Literal["nat", "dual_stack", "none"]
"""How functions reach vendors and AWS services.

"nat": a NAT gateway in ``NetworkSettings.nat_gateways`` zones, to everything. "dual_stack": IPv6 through an
egress-only gateway, free of charge, to hosts that have IPv6 addresses. "none": interface endpoints of the AWS
services that functions use, and no vendor on the internet.
"""

Start: TypeAlias = Literal["on_demand", "snap_start", "provisioned"]
"""How a new process of the query function begins: from nothing, from a snapshot, or before it is needed."""

FrontDoor: TypeAlias = Literal["rest_api", "function_url", "both"]
"""Where questions come in. "function_url" and "both" put CloudFront before a URL with IAM authentication."""

Architecture: TypeAlias = Literal["arm64", "x86_64"]

MESSAGE_DAYS = 14
"""How long SQS keeps a message at most."""

MAX_GATEWAY_TENANTS = 90
"""With keys of API Gateway: each takes an output and three resources, and a stack has 200 and 500."""

_TENANT = re.compile(r"[A-Za-z0-9._-]{1,64}")
_ORIGIN = re.compile(r"https?://(\*(\.[a-z0-9-]+){2,}|[a-z0-9-]+(\.[a-z0-9-]+)*)(:[1-9]\d{0,4})?")
_IAM_ARN = re.compile(r"arn:aws[a-z-]*:iam::\d{12}:(role|user)/[\w+=,.@/-]+")


class SettingsError(Exception):
    """A stage's settings contradict each other; the text says which."""


@dataclass(frozen=True, slots=True)
class CodeSettings:
    """What the functions run on."""

    python_version: str = "3.14"
    architecture: Architecture = "arm64"

    @property
    def platform(self) -> str:
        """As uv names the wheels' platform: Amazon Linux 2023 has glibc 2.34."""
        return f"{'aarch64' if self.architecture == 'arm64' else 'x86_64'}-manylinux_2_34"


@dataclass(frozen=True, slots=True)
class FunctionSettings:
    """Size and time of one function."""

    memory_mb: int
    """1,769 MB are one whole vCPU: https://docs.aws.amazon.com/lambda/latest/dg/configuration-memory.html"""
    timeout_s: int
    max_concurrency: int | None = None
    """Most invocations at a time; of functions behind a queue, 2 to 1,000. None: the account's limit."""


@dataclass(frozen=True, slots=True)
class NetworkSettings:
    """The VPC."""

    egress: Egress
    nat_gateways: int = 0
    """One for all zones, or one in each zone, which survives the loss of a zone."""
    flow_logs: bool = False
    """Whether rejected packets are logged."""
    zones: tuple[str, ...] = ()
    """Names of two availability zones; empty: the region's first two.

    RDS Proxy is not offered in every zone (use1-az3, for one), and a name means another zone in each account.
    """


@dataclass(frozen=True, slots=True)
class DatabaseSettings:
    """RDS for PostgreSQL."""

    instance_type: str
    """Without "db.": "t4g.micro"."""
    storage_gib: int
    max_storage_gib: int
    """Storage grows by itself up to here."""
    multi_az: bool
    backup_days: int
    deletion_protection: bool
    """Also decides what becomes of the data when the stack is deleted: a snapshot is taken in any case."""
    performance_insights: bool
    log_retention_days: int
    backup_window: str = "02:00-02:45"
    """UTC, at least half an hour; a quiet one, since RDS would else choose one by chance."""
    maintenance_window: str = "sun:03:00-sun:04:00"
    """UTC; minor versions of PostgreSQL are installed in it. It must not overlap ``backup_window``."""
    proxy_max_connections_percent: int = 90
    """Of the instance's ``max_connections``; the rest is left to the migrate function and to operators."""

    @property
    def memory_gib(self) -> float:
        """Of the instance, by its size: https://aws.amazon.com/rds/instance-types/."""
        small = {"micro": 1.0, "small": 2.0, "medium": 4.0}
        large = 16.0 if self.instance_type.startswith(("r", "x")) else 8.0
        return small.get(self.instance_type.partition(".")[2]) or large * self.vcpus / 2

    @property
    def vcpus(self) -> int:
        """Of the instance, which RDS Proxy is billed by: two, and four in each "xlarge"."""
        _, _, size = self.instance_type.partition(".")
        return 4 * int(size.removesuffix("xlarge") or 1) if size.endswith("xlarge") else 2


@dataclass(frozen=True, slots=True)
class CustomDomain:
    """A name of your own. Its DNS entry is yours to make."""

    name: str
    certificate_arn: str
    """Of AWS Certificate Manager in us-east-1."""


@dataclass(frozen=True, slots=True)
class StageSettings:
    """Everything that one deployment is told."""

    stage: str
    """Part of every name, so that stages can share an account: lower-case letters, digits, at most 12."""
    network: NetworkSettings
    database: DatabaseSettings
    query: FunctionSettings
    log_writer: FunctionSettings
    ingest: FunctionSettings
    migrate: FunctionSettings
    start: Start
    authorizer: FunctionSettings | None = FunctionSettings(memory_mb=256, timeout_s=5)
    """Lets the REST API take keys from ``Authorization: Bearer``, too; None: from ``X-Api-Key`` alone."""
    provisioned_concurrency: int = 0
    front_door: FrontDoor = "rest_api"
    canary: bool = False
    """Whether a new version first gets a tenth of the questions, and goes back when an alarm rings."""
    tenants: tuple[str, ...] = ("demo",)
    """Each gets an API key and a usage plan of its own; API Gateway makes the keys."""
    iam_tenants: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """ARN of an IAM role or user -> tenant: who may call the function URL, and as whom."""
    requests_per_second: int = 20
    """Of one tenant, sustained; API Gateway answers 429 above it."""
    burst: int = 40
    cloudfront_domain: CustomDomain | None = None
    """Without one CloudFront takes TLS 1.0 and 1.1, too: that cannot be changed for its own domain."""
    web_acl: bool = False
    """Whether AWS WAF stands before the REST API; it is billed by month and by request."""
    api_gateway_log_role: bool = True
    """Whether this deployment gives API Gateway its role for logs, one for all APIs of account and region.

    Without any such role, API Gateway refuses a stage with logs. False: the account has one, and keeps it.
    """
    keep_data: bool = True
    """Whether buckets, secret and logs outlive the stack."""
    log_retention_days: int = 30
    """Of the functions' logs, and of the rows of the query log."""
    uploads_kept_days: int | None = 30
    """Days after which an uploaded object is deleted, its document not; None: never. More than
    ``MESSAGE_DAYS``, so that no message waits for an object that is gone."""
    cors_origins: tuple[str, ...] = ()
    """Web pages that may call the API: "https://app.example.com", "https://*.example.com", or "*" alone."""
    upload_origins: tuple[str, ...] = ()
    """Web pages, such as "https://docs.example.com", whose browsers may post uploads."""
    alarm_email: str | None = None
    """Who is told by the alarms; None: nobody subscribes to the topic yet."""
    code: CodeSettings = field(default_factory=CodeSettings)
    environment: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """More ``VECTORFORGE_*`` settings of the query and the ingest function, such as the models' names.

    Never a key or a token: they belong into the secret. Settings that need a vendor's SDK put it into the
    functions' bundles (``infra.vendor_sdks``).
    """

    @property
    def has_authorizer(self) -> bool:
        """Whether there is a REST API, and a function that reads its keys."""
        return self.front_door != "function_url" and self.authorizer is not None

    def __post_init__(self) -> None:
        if not (self.stage.isalnum() and self.stage.islower() and len(self.stage) <= 12):
            raise SettingsError(f"The stage {self.stage!r} must be 1 to 12 lower-case letters and digits.")
        if (self.network.egress == "nat") != (self.network.nat_gateways > 0):
            raise SettingsError('nat_gateways is for egress "nat", which needs at least one.')
        if (self.start == "provisioned") != (self.provisioned_concurrency > 0):
            raise SettingsError('provisioned_concurrency is for start "provisioned", which needs at least 1.')
        if self.uploads_kept_days is not None and self.uploads_kept_days <= MESSAGE_DAYS:
            raise SettingsError(f"uploads_kept_days must be more than the {MESSAGE_DAYS} days of a message.")
        if any(not origin.startswith("https://") for origin in self.upload_origins):
            raise SettingsError("upload_origins must each begin with https://.")
        _check_callers(self)
        _check_pages(self)
        if len(self.network.zones) not in (0, 2):
            raise SettingsError("network.zones names two availability zones, or none.")
        if self.front_door != "rest_api" and self.query.max_concurrency is None:
            raise SettingsError(
                "CloudFront lets everybody start the query function: query.max_concurrency must bound that."
            )
        for name in self.environment:
            if not name.startswith("VECTORFORGE_") or name.endswith(("_KEY", "_TOKEN", "_DATABASE_URL")):
                raise SettingsError(f"environment may not set {name}: keys belong into the secret.")

    @property
    def prefix(self) -> str:
        """What the names of this stage's resources begin with."""
        return f"vectorforge-{self.stage}"

    @property
    def metrics_namespace(self) -> str:
        """Of the functions' own metrics: the stages of an account are told apart."""
        return f"VectorForge/{self.stage}"


def _check_pages(stage: StageSettings) -> None:
    """The application checks the origins more strictly, but only when it is deployed."""
    for position, origin in enumerate(stage.cors_origins, start=1):
        if not _ORIGIN.fullmatch(origin) and stage.cors_origins != ("*",):
            raise SettingsError(
                f"entry {position} of cors_origins must be an origin such as https://app.example.com or "
                'https://*.example.com, in lower case and without a path; or "*" alone.'
            )
    if "VECTORFORGE_CORS_ORIGINS" in stage.environment:
        raise SettingsError("environment may not set VECTORFORGE_CORS_ORIGINS: use cors_origins.")


def _check_callers(stage: StageSettings) -> None:
    for tenant in (*stage.tenants, *stage.iam_tenants.values()):
        if not _TENANT.fullmatch(tenant):
            raise SettingsError(f"The tenant {tenant!r} must be 1 to 64 letters, digits, dots, - and _.")
    if stage.front_door != "function_url" and len(stage.tenants) > MAX_GATEWAY_TENANTS:
        raise SettingsError(
            f"tenants has {len(stage.tenants)} entries; with the REST API it takes at most "
            f"{MAX_GATEWAY_TENANTS}. Give further tenants keys of the database instead: "
            "`vectorforge keys create NAME --tenant TENANT` (docs/identity.md)."
        )
    if len({re.sub(r"\W|_", "", tenant) for tenant in stage.tenants}) < len(stage.tenants):
        raise SettingsError("tenants names one twice, or two that differ in punctuation only.")
    if stage.iam_tenants and stage.front_door == "rest_api":
        raise SettingsError('iam_tenants call the function URL: front_door must be "function_url" or "both".')
    if stage.cloudfront_domain is not None and stage.front_door == "rest_api":
        raise SettingsError('cloudfront_domain is for CloudFront, which front_door "rest_api" leaves out.')
    for arn in stage.iam_tenants:
        if not _IAM_ARN.fullmatch(arn):
            raise SettingsError(f"iam_tenants names {arn!r}, which is no ARN of an IAM role or user.")
    if stage.web_acl and stage.front_door == "function_url":
        raise SettingsError("web_acl stands before the REST API, which this front_door leaves out.")


DEV = StageSettings(
    stage="dev",
    network=NetworkSettings(egress="dual_stack"),
    database=DatabaseSettings(
        instance_type="t4g.micro",
        storage_gib=20,
        max_storage_gib=50,
        multi_az=False,
        backup_days=1,
        deletion_protection=False,
        performance_insights=False,
        log_retention_days=7,
    ),
    query=FunctionSettings(memory_mb=1769, timeout_s=150),
    log_writer=FunctionSettings(memory_mb=512, timeout_s=30, max_concurrency=2),
    ingest=FunctionSettings(memory_mb=3008, timeout_s=900, max_concurrency=2),
    migrate=FunctionSettings(memory_mb=512, timeout_s=900),
    start="on_demand",
    keep_data=False,
    log_retention_days=7,
)

PROD = StageSettings(
    stage="prod",
    network=NetworkSettings(egress="nat", nat_gateways=2, flow_logs=True),
    database=DatabaseSettings(
        instance_type="t4g.medium",
        storage_gib=50,
        max_storage_gib=500,
        multi_az=True,
        backup_days=14,
        deletion_protection=True,
        performance_insights=True,
        log_retention_days=90,
    ),
    query=FunctionSettings(memory_mb=1769, timeout_s=150),
    log_writer=FunctionSettings(memory_mb=512, timeout_s=30, max_concurrency=5),
    ingest=FunctionSettings(memory_mb=3008, timeout_s=900, max_concurrency=5),
    migrate=FunctionSettings(memory_mb=512, timeout_s=900),
    start="snap_start",
    canary=True,
    web_acl=True,
    log_retention_days=90,
    requests_per_second=100,
    burst=200,
)

STAGES: Mapping[str, StageSettings] = MappingProxyType({stage.stage: stage for stage in (DEV, PROD)})


def choose(
    stage: str,
    *,
    architecture: str | None = None,
    python_version: str | None = None,
    canary: bool | None = None,
) -> StageSettings:
    """A stage's settings, for another machine than Lambda's if asked (the emulator's), or without its canary.

    Raises:
        SettingsError: There is no such stage or architecture.
    """
    found = STAGES.get(stage)
    if found is None:
        raise SettingsError(f"There is no stage {stage!r}; infra/settings.py has: {', '.join(STAGES)}.")
    machine = _architecture(architecture or found.code.architecture)
    code = CodeSettings(python_version or found.code.python_version, machine)
    return dataclasses.replace(found, code=code, canary=found.canary if canary is None else canary)


def _architecture(name: str) -> Architecture:
    if name not in get_args(Architecture):
        raise SettingsError(f"There is no architecture {name!r}: arm64 or x86_64.")
    return cast("Architecture", name)
