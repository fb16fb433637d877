"""Settings of one stage, and the checks that they do not contradict each other."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Annotated

from pydantic import Field

from infra.connection_budget import connection_problem
from infra.setting_checks import field_problems, written_as
from infra.setting_types import (
    MESSAGE_DAYS,
    AtLeastOne,
    BackupSettings,
    CodeSettings,
    CustomDomain,
    DatabaseSettings,
    DomainSettings,
    FrontDoor,
    FunctionSettings,
    LogDays,
    MonitoringSettings,
    NetworkSettings,
    OtelSettings,
    ServiceObjective,
    SettingsError,
    Start,
    TokenIssuer,
    UserPool,
)

PROBE_KEY_ID, PROBE_TENANT = "probe", "vectorforge-probe"
"""Key id in the probe's events, and its tenant. API Gateway's own ids have ten characters."""

HOST_TASK_TAG = "vectorforge-task"
"""Tag of a host with its task, as ``aws.handlers.database_work`` sets it; "session" is an operator's."""

MAX_GATEWAY_TENANTS = 90
"""Limit with keys of API Gateway: each takes an output and three resources of a stack's 200 and 500."""

FREE_ENVIRONMENT_BYTES = 2_000
"""For the settings that grow; a test measures what the others take of Lambda's 4 KB."""

_BEFORE_WINDOW_MIN, _DAY_MIN = 120, 24 * 60
"""AWS Backup starts within an hour; RDS takes no snapshot while it backs up or maintains the database."""
_TENANT = re.compile(r"[A-Za-z0-9._-]{1,64}")
_ORIGIN = re.compile(r"https?://(\*(\.[a-z0-9-]+){2,}|[a-z0-9-]+(\.[a-z0-9-]+)*)(:[1-9]\d{0,4})?")
_AUTHORIZER = FunctionSettings(memory_mb=256, timeout_s=5)
_POLICY_ARN = r"arn:aws[a-z-]*:iam::(\d{12}|aws):policy/[\w+=,.@/-]+"
_KEY_ARN = r"arn:aws[a-z-]*:kms:[a-z0-9-]+:\d{12}:key/(mrk-)?[0-9a-f-]{32,36}"
_IAM_ARN = re.compile(r"arn:aws[a-z-]*:iam::\d{12}:(role|user)/[\w+=,.@/-]+")


@dataclass(frozen=True, slots=True)
class StageSettings:
    """All settings of one deployment."""

    stage: str
    """Part of every name, so that stages can share an account: lower-case letters, digits, at most 12."""
    network: NetworkSettings
    database: DatabaseSettings
    query: FunctionSettings
    log_writer: FunctionSettings
    ingest: FunctionSettings
    migrate: FunctionSettings
    start: Start
    authorizer: FunctionSettings | None = _AUTHORIZER
    """Accept keys in ``Authorization: Bearer`` at the REST API; None: in ``X-Api-Key`` only."""
    user_pool: UserPool | None = None
    """Admit callers of the REST API by tokens of this pool, without API Gateway's keys; None: by keys."""
    token_issuer: TokenIssuer | None = None
    """Admit callers of the REST API by tokens of any OpenID Connect issuer, without API Gateway's keys."""
    provisioned_concurrency: int = 0
    front_door: FrontDoor = "rest_api"
    canary: bool = False
    """Route a tenth of the traffic to a new version first, and roll back if an alarm fires."""
    probe: FunctionSettings | None = None
    """Query the service every five minutes as the tenant ``PROBE_TENANT``, and with ``canary`` every new
    version before it gets traffic. None: no probe."""
    monitoring: MonitoringSettings = field(default_factory=MonitoringSettings)
    objective: ServiceObjective | None = None
    """Alarms when the error budget is spent too fast; None: no such alarms."""
    otel: OtelSettings | None = None
    """Export spans with OpenTelemetry; None: X-Ray. See docs/operate/tracing.md."""
    monthly_budget_dollars: AtLeastOne | None = None
    """AWS Budgets notifies when the month's costs are forecast to exceed it; None: no budget."""
    tenants: tuple[str, ...] = ("demo",)
    """Each gets its own API key and usage plan; API Gateway generates the keys."""
    iam_tenants: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """Tenant by ARN of an IAM role or user that may call the function URL."""
    requests_per_second: AtLeastOne = 20
    """Sustained rate of one tenant; API Gateway answers 429 above it."""
    burst: AtLeastOne = 40
    domain: DomainSettings | None = None
    """Custom domain of the REST API; None: API Gateway's own host."""
    cloudfront_domain: CustomDomain | None = None
    """Without one CloudFront accepts TLS 1.0 and 1.1, which cannot be changed for its own domain."""
    web_acl: bool = False
    """Put AWS WAF before the REST API; it is billed by month and by request."""
    api_gateway_log_role: bool = True
    """Create API Gateway's role for logs, one for all APIs of account and region; API Gateway refuses a stage
    with logs without it. False: the account has one.
    """
    permissions_boundary_arn: (
        Annotated[str, written_as(_POLICY_ARN, "the ARN of a managed policy")] | None
    ) = None
    """Managed policy that limits every role of the stacks, and must allow what they need; None: no limit."""
    kms_key_arn: Annotated[str, written_as(_KEY_ARN, "the ARN of a key, not of an alias")] | None = None
    """Existing customer managed key of database, queues, buckets, secrets, logs and the alarms' topic; None:
    the keys of AWS. Its policy must admit their services: docs/operate/deploy.md#customer-managed-key."""
    backup: BackupSettings | None = None
    """Back up the database with AWS Backup, too, also to another region; None: RDS's own backups only."""
    keep_data: bool = True
    """Retain buckets, secret and logs when the stack is deleted."""
    log_retention_days: LogDays = 30
    """Retention of the functions' logs and of the rows of the query log."""
    uploads_kept_days: int | None = 30
    """Days until an uploaded object, not its document, is deleted; None: never. More than ``MESSAGE_DAYS``:
    no message must refer to a deleted object."""
    cors_origins: tuple[str, ...] = ()
    """Web pages that may call the API: "https://app.example.com", "https://*.example.com", or "*" alone."""
    api_explorer: bool = True
    """Serve the API explorer at ``/docs``, without a key: the page has no data."""
    upload_origins: tuple[str, ...] = ()
    """Web pages, such as "https://docs.example.com", whose browsers may post uploads."""
    alarm_email: Annotated[str, Field(pattern=r"^[^@\s]+@[^@\s]+$")] | None = None
    """Subscriber of the alarms' topic; None: no subscription."""
    code: CodeSettings = field(default_factory=CodeSettings)
    environment: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """More ``VECTORFORGE_*`` settings of the query and the ingest function, such as model names. Keys and
    tokens belong in the secret; ``VECTORFORGE_API_KEYS`` has only hashes. `make synth` and `make deploy`
    check names and values, `cdk synth` does not. A setting that needs a vendor's SDK adds it to the bundles.
    """

    @property
    def has_gateway_keys(self) -> bool:
        """True if API Gateway has a key and a usage plan for each tenant."""
        return self.front_door != "function_url" and self.tokens is None

    @property
    def tokens(self) -> UserPool | TokenIssuer | None:
        """Source of the tokens that replace API Gateway's keys, if any."""
        return self.user_pool or self.token_issuer

    @property
    def has_authorizer(self) -> bool:
        """True if the stage has a function that reads keys for a REST API."""
        return self.front_door != "function_url" and self.authorizer is not None

    def __post_init__(self) -> None:
        checks = (
            field_problems,
            _resource_problems,
            _environment_problems,
            _thrift_problems,
            _network_problems,
            _backup_problems,
            _caller_problems,
            _front_door_problems,
            _token_problems,
            _origin_problems,
        )
        for problem in (problem for check in checks for problem in check(self)):
            raise SettingsError(f"infra/settings.py, stage {self.stage!r}: {problem}")

    @property
    def prefix(self) -> str:
        """Prefix of the names of this stage's resources."""
        return f"vectorforge-{self.stage}"

    @property
    def tags(self) -> dict[str, str]:
        """Tags of this stage's resources."""
        return {"application": "vectorforge", "stage": self.stage}

    @property
    def provider_secret(self) -> str:
        """Name of the secret with the vendors' keys."""
        return f"{self.prefix}/providers"

    @property
    def metrics_namespace(self) -> str:
        """Namespace of the functions' own metrics, which separates the stages of an account."""
        return f"VectorForge/{self.stage}"


def _resource_problems(stage: StageSettings) -> Iterator[str]:
    if not re.fullmatch("[a-z0-9]{1,12}", stage.stage):
        yield "stage must be 1 to 12 lower-case letters and digits."
    if (stage.start == "provisioned") != (stage.provisioned_concurrency > 0):
        yield 'provisioned_concurrency must be at least 1 with start "provisioned", else 0.'
    if stage.uploads_kept_days is not None and stage.uploads_kept_days <= MESSAGE_DAYS:
        yield f"uploads_kept_days must be more than {MESSAGE_DAYS}, the retention of SQS."
    if stage.otel is not None and stage.otel.endpoint is None and stage.network.egress == "dual_stack":
        yield 'otel.endpoint is required with egress "dual_stack": CloudWatch\'s has no IPv6 address.'
    for name in ("log_writer", "ingest"):
        if not 2 <= (getattr(stage, name).max_concurrency or 2) <= 1000:
            yield f"{name}.max_concurrency must be between 2 and 1000, or None: SQS invokes the function."
    if stage.database.max_storage_gib < stage.database.storage_gib:
        yield "database.max_storage_gib must be at least storage_gib."
    yield from _aurora_problems(stage.database)


def _environment_problems(stage: StageSettings) -> Iterator[str]:
    for name in stage.environment:
        if not re.fullmatch("VECTORFORGE_[A-Z0-9_]+", name):
            yield f"environment must only have settings VECTORFORGE_..., in upper case, not {name!r}."
        elif name == "VECTORFORGE_OTLP_HEADERS":
            yield f"environment must not set {name}: use otel.headers_secret."
        elif name.endswith("_DATABASE_URL"):
            yield f"environment must not set {name}: functions use the stage's database, without a password."
        elif name.endswith(("_KEY", "_TOKEN")):
            yield f"environment must not set {name}: use the secret {stage.provider_secret}."


def _network_problems(stage: StageSettings) -> Iterator[str]:
    if stage.network.existing is not None:
        own = (stage.network.nat_gateways, stage.network.flow_logs, stage.network.zones)
        if stage.network.egress != "nat" or any(own):
            yield (
                'With network.existing, egress must be "nat" without nat_gateways, flow_logs and zones: they '
                "are the VPC's."
            )
    elif (stage.network.egress == "nat") != (stage.network.nat_gateways > 0):
        yield 'nat_gateways must be at least 1 with egress "nat", else 0.'
    if len(stage.network.zones) not in (0, 2):
        yield "network.zones must have two availability zones, or none."


def _backup_problems(stage: StageSettings) -> Iterator[str]:
    if stage.backup is None:
        return
    for name in ("backup_window", "maintenance_window"):
        times = re.findall(r"(\d\d):(\d\d)", getattr(stage.database, name))
        begin, end = (60 * int(hour) + int(minute) for hour, minute in times)
        first = begin - _BEFORE_WINDOW_MIN
        if (60 * stage.backup.hour_utc - first) % _DAY_MIN < (end - first) % _DAY_MIN:
            yield f"backup.hour_utc must not be in database.{name}, or less than two hours before it."


def _thrift_problems(stage: StageSettings) -> Iterator[str]:
    if problem := connection_problem(
        stage.database, query=stage.query, log_writer=stage.log_writer, ingest=stage.ingest
    ):
        yield problem
    if stage.monitoring.alarms == "essential" and (stage.canary or stage.probe or stage.objective):
        yield 'monitoring.alarms must be "all" with a canary, a probe or an objective, which need others.'


def _aurora_problems(database: DatabaseSettings) -> Iterator[str]:
    if database.readers and database.engine != "aurora":
        yield 'database.readers need engine "aurora": RDS Proxy has no read-only endpoint for RDS.'
    if database.engine == "aurora" and not database.proxy:
        yield 'database.proxy must be True with engine "aurora".'
    if not 0.5 <= database.min_acu <= database.max_acu <= 256:
        yield "database.min_acu and max_acu must be between 0.5 and 256, and min_acu at most max_acu."


def _caller_problems(stage: StageSettings) -> Iterator[str]:
    if stage.front_door != "function_url" and not stage.tenants:
        yield "tenants must have at least one entry with the REST API."
    for tenant in (*stage.tenants, *stage.iam_tenants.values()):
        if tenant == PROBE_TENANT:
            yield f"The tenant {PROBE_TENANT!r} is the probe's: choose another name."
        if not _TENANT.fullmatch(tenant):
            yield f"The tenant {tenant!r} must be 1 to 64 letters, digits, dots, - and _."
    if len({re.sub(r"\W|_", "", tenant) for tenant in stage.tenants}) < len(stage.tenants):
        yield "tenants must differ in more than punctuation."
    if stage.front_door != "function_url" and len(stage.tenants) > MAX_GATEWAY_TENANTS:
        yield (
            f"tenants has {len(stage.tenants)} entries; with the REST API it must have at most "
            f"{MAX_GATEWAY_TENANTS}. Give further tenants keys of the database instead: "
            "`vectorforge keys create NAME --tenant TENANT` (docs/operate/identity.md)."
        )
    for arn in stage.iam_tenants:
        if not _IAM_ARN.fullmatch(arn):
            yield f"iam_tenants must be ARNs of IAM roles or users, not {arn!r}."
    taken = json.dumps([dict(stage.iam_tenants), dict(stage.environment), stage.cors_origins])
    if len(taken.encode()) > FREE_ENVIRONMENT_BYTES:
        yield (
            f"iam_tenants, environment and cors_origins have {len(taken.encode())} bytes; they must have at "
            f"most {FREE_ENVIRONMENT_BYTES}, since Lambda allows 4 KB in a function's environment."
        )


def _front_door_problems(stage: StageSettings) -> Iterator[str]:
    if stage.web_acl and stage.front_door == "function_url":
        yield "web_acl needs the REST API, which this front_door leaves out."
    if stage.domain is not None:
        if stage.front_door == "function_url":
            yield "domain needs the REST API, which this front_door leaves out: use cloudfront_domain."
        if not f".{stage.domain.name}".endswith(f".{stage.domain.zone_name}"):
            yield f"domain.name must be in the zone {stage.domain.zone_name!r}, not {stage.domain.name!r}."
        if stage.cloudfront_domain is not None and stage.cloudfront_domain.name == stage.domain.name:
            yield "domain and cloudfront_domain must have different names."
    if stage.front_door == "rest_api":
        if stage.iam_tenants:
            yield 'iam_tenants need the function URL: front_door must be "function_url" or "both".'
        if stage.cloudfront_domain is not None:
            yield 'cloudfront_domain needs CloudFront, which front_door "rest_api" leaves out.'
    elif stage.query.max_concurrency is None:
        yield "query.max_concurrency is required with CloudFront: every request starts the query function."


def _token_problems(stage: StageSettings) -> Iterator[str]:
    if stage.tokens is None:
        return
    name = "token_issuer" if stage.user_pool is None else "user_pool"
    if stage.user_pool is not None and stage.token_issuer is not None:
        yield "user_pool and token_issuer exclude each other: the function has one issuer."
    if stage.front_door == "function_url":
        yield f"{name} needs the REST API, which this front_door leaves out."
    if stage.authorizer is not None:
        yield f"authorizer must be None with {name}: it is for API Gateway's keys."
    if stage.network.egress == "none":
        yield f'{name} needs egress: with "none" the query function cannot read its public keys.'
    if stage.token_issuer is not None and not stage.web_acl:
        yield "web_acl must be True with token_issuer: API Gateway itself admits callers without a token."
    for variable in stage.environment.keys() & stage.tokens.environment.keys():
        yield f"environment must not set {variable}: use {name}."


def _origin_problems(stage: StageSettings) -> Iterator[str]:
    if any(not origin.startswith("https://") for origin in stage.upload_origins):
        yield "upload_origins must each begin with https://."
    for position, origin in enumerate(stage.cors_origins, start=1):  # the application is stricter
        if not _ORIGIN.fullmatch(origin) and stage.cors_origins != ("*",):
            yield (
                f"entry {position} of cors_origins must be an origin such as https://app.example.com or "
                'https://*.example.com, in lower case and without a path; or "*" alone.'
            )
    if "VECTORFORGE_CORS_ORIGINS" in stage.environment:
        yield "environment must not set VECTORFORGE_CORS_ORIGINS: use cors_origins."
