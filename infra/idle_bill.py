"""What a stage costs in a month in which nobody asks."""

from typing import Final

from infra.bedrock_models import named_models
from infra.bill import MEASURED, BillLine, gb, money, monthly
from infra.prices import HOURS_PER_MONTH, PRICES, SECONDS_PER_MONTH, instance_hour
from infra.settings import StageSettings

ZONES: Final = 2
"""As ``infra.network`` has it."""
ENDPOINTS: Final = 2
"""Services with interface endpoints where there is no other way out (``infra.network``)."""
BEDROCK_ENDPOINTS: Final = 2
"""Those of a stage that names models of Amazon Bedrock, besides."""
SECRETS: Final = 2
"""The vendors' keys, and the database's owner; with a REST API also whose its keys are."""
WEB_ACL_RULES: Final = 2
_LOOKS: Final = HOURS_PER_MONTH * 12
_POLLS: Final = 5 * SECONDS_PER_MONTH // 20
"""Of one queue: Lambda keeps five long polls of 20 s open, and no fewer where concurrency is limited.
https://docs.aws.amazon.com/lambda/latest/dg/services-sqs-scaling.html"""

CUSTOM_METRICS: Final = {"essential": 26, "all": 71}
"""CloudWatch metrics of one deployment by ``VECTORFORGE_CLOUDWATCH_METRICS``, with one model, one route, and
one kind of each error: "all" grows with every other. A test counts what the functions print."""


def idle_bill(stage: StageSettings) -> list[BillLine]:
    """A month in which nobody asks.

    Raises:
        PriceError: There is no price for the database's instance.
    """
    return [
        *_database_lines(stage),
        *egress_bill(stage),
        *start_bill(stage),
        *_watching_lines(stage),
        *_waking_lines(stage),
    ]


def alarm_metrics(stage: StageSettings) -> int:
    """Metrics in the alarms of a stage; a test counts them in the template."""
    doors = 2 if stage.front_door == "both" else 1
    fixed = 30 + 2 * int(stage.has_authorizer)  # its errors, and its dropped invocations
    return fixed + 4 * doors + 2 * int(stage.canary) + int(stage.database.instance_type.startswith("t"))


def _database_lines(stage: StageSettings) -> list[BillLine]:
    database = stage.database
    instance = instance_hour(database.instance_type, multi_az=database.multi_az)
    storage = PRICES.storage_multi if database.multi_az else PRICES.storage_single
    return [
        monthly("RDS PostgreSQL", instance),
        monthly("its storage", storage, database.storage_gib, " GB"),
        monthly("RDS Proxy", PRICES.proxy_vcpu, database.vcpus, " vCPU"),
    ]


def egress_bill(stage: StageSettings) -> list[BillLine]:
    """The part of a stage's way out."""
    match stage.network.egress:
        case "nat":
            gateways = stage.network.nat_gateways
            return [
                monthly("NAT gateways", PRICES.nat_hour, gateways),
                monthly("their IPv4 addresses", PRICES.ipv4_hour, gateways),
            ]
        case "none":
            services = ENDPOINTS + (BEDROCK_ENDPOINTS if named_models(stage) else 0)
            return [monthly("interface endpoints", PRICES.endpoint_hour, services * ZONES)]
        case _:
            return [BillLine("egress-only internet gateway", "free", 0.0)]


def start_bill(stage: StageSettings) -> list[BillLine]:
    """The part of processes, or snapshots of them, that are kept ready."""
    size = gb(stage.query)
    match stage.start:
        case "snap_start":
            price = PRICES.snapshot_kept
            what, count = "SnapStart, one version's snapshot", 1
        case "provisioned":
            price = PRICES.provisioned_gb_second(stage.code.architecture)
            what, count = "provisioned concurrency", stage.provisioned_concurrency
        case _:
            return []
    arithmetic = f"{SECONDS_PER_MONTH:,} s × {count} × {size:.2f} GB × {money(price.dollars)}"
    return [BillLine(what, arithmetic, SECONDS_PER_MONTH * count * size * price.each)]


def _watching_lines(stage: StageSettings) -> list[BillLine]:
    lines = [
        monthly("alarms", PRICES.alarm, alarm_metrics(stage)),
        monthly("dashboard", PRICES.dashboard),
        monthly("key of the alarms' topic", PRICES.key),
        monthly("secrets", PRICES.secret, SECRETS + int(stage.front_door != "function_url")),
    ]
    if stage.web_acl:
        lines.append(monthly("WAF, web ACL", PRICES.web_acl))
        lines.append(monthly("WAF, rules", PRICES.web_acl_rule, WEB_ACL_RULES))
    return lines


def _waking_lines(stage: StageSettings) -> list[BillLine]:
    price = PRICES.lambda_gb_second(stage.code.architecture)
    looking = _LOOKS * (MEASURED.look_ms / 1000 * gb(stage.ingest) * price.each + PRICES.lambda_request.each)
    return [
        BillLine(
            "SQS, polls of two empty queues",
            f"2 × {_POLLS:,} × {money(PRICES.sqs_request.dollars)} / 1,000,000",
            2 * _POLLS * PRICES.sqs_request.each,
        ),
        BillLine(
            "ingest function, a look every five minutes", f"{_LOOKS:,} × {MEASURED.look_ms:g} ms", looking
        ),
    ]
