"""Bills of a stage: a month idle, and 1,000 queries, from its settings, measured usage and list prices."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from infra.constructs.bedrock import named_models
from infra.costs.prices import EMBEDDING, MODELS, PRICES, ModelPrice, Price, instance_hour
from infra.setting_types import RESTORED_HOURS, DatabaseSettings, FunctionSettings
from infra.stage_settings import StageSettings

QUERIES: Final = 1000
_MONTH_H: Final = 730
_MONTH_S: Final = _MONTH_H * 3600
ZONES: Final = 2
"""Availability zones of ``infra.data.network``."""
ENDPOINTS: Final = 2
"""Interface endpoints with egress "none"; Amazon Bedrock adds as many."""
SECRETS: Final = 2
"""Provider keys and the database's owner; a REST API adds the tenants of its keys."""
WEB_ACL_RULES: Final = 2
_PROXY_ACU: Final = 8
"""Least capacity that RDS Proxy is billed for before Aurora: https://aws.amazon.com/rds/proxy/pricing/."""
_RESTORE_H: Final = 1
"""Assumed duration of a restore, in which the new instance is billed."""
_LOOKS: Final = _MONTH_H * 12
_POLLS: Final = 5 * _MONTH_S // 20
"""Polls of one queue: Lambda keeps five long polls of 20 s open, also where concurrency is limited.
https://docs.aws.amazon.com/lambda/latest/dg/services-sqs-scaling.html"""

CUSTOM_METRICS: Final = {"essential": 26, "all": 71}
"""CloudWatch metrics of one deployment by ``VECTORFORGE_CLOUDWATCH_METRICS``, with one model, one route and
one kind of each error; "all" grows with every other. A test counts what the functions print."""


@dataclass(frozen=True, slots=True)
class BillLine:
    """One line of a bill."""

    what: str
    arithmetic: str
    dollars: float


@dataclass(frozen=True, slots=True)
class Measured:
    """Usage of one query as measured; docs/results/performance.md."""

    own_ms: float = 19.2  # CPU of the query function, which otherwise waits for the model
    log_bytes: int = 4_200
    answer_bytes: int = 12_535
    prompt_tokens: int = 979
    request_bytes: int = 4_196
    reply_bytes: int = 65_030
    message_bytes: int = 4_023
    writer_ms: float = 4.8
    writer_log_bytes: int = 694
    look_ms: float = 4.4
    init_s: float = 1.1  # from the start of the process to its first poll


@dataclass(frozen=True, slots=True)
class Assumed:
    """Usage that could not be measured without AWS or a model."""

    answer_tokens: int = 300
    authorizer_ms: float = 2  # it reads two headers; Lambda bills by the millisecond
    query_tokens: int = 20
    model_s: float = 4.0  # 300 tokens, the first after 0.7 s, then 90 a second
    cold_percent: int = 1
    platform_log_bytes: int = 1_000  # Lambda's own lines for an invocation: start, end, report
    access_log_bytes: int = 500
    metric_log_bytes: int = 430  # metrics added after ``Measured.log_bytes`` was measured
    writer_batches: int = 2  # for a query: at low traffic its start and its end are stored separately
    probe_ms: float = 500  # of the probe and of the query function, which it waits for
    traces: int = 3  # for a query: the answer and each batch; above one a second X-Ray samples


MEASURED: Final = Measured()
ASSUMED: Final = Assumed()


def total(lines: Sequence[BillLine]) -> float:
    """Sum a bill, in dollars."""
    return sum(line.dollars for line in lines)


def money(dollars: float) -> str:
    """Write a price in full: "$0.20", "$0.0000133334"."""
    cents = f"${dollars:.2f}"
    return cents if float(cents[1:]) == dollars else f"${dollars:.10f}".rstrip("0")


def gb(settings: FunctionSettings) -> float:
    """Return a function's memory in the unit of Lambda's bill."""
    return settings.memory_mb / 1024


def idle_bill(stage: StageSettings) -> list[BillLine]:
    """Bill a month without queries.

    Raises:
        PriceError: The price of the database's instance is missing.
    """
    database = stage.database
    each, invoked = PRICES[f"lambda_{stage.code.architecture}"].each, PRICES["lambda_request"].each
    own_topic_key = stage.monitoring.topic_key and stage.kms_key_arn is None
    lines = [
        *_database_bill(database),
        *backup_bill(stage),
        *egress_bill(stage),
        *start_bill(stage),
        _monthly("alarms", "alarm", alarm_metrics(stage)),
        *([_monthly("dashboard", "dashboard")] if stage.monitoring.dashboard else []),
        *([_monthly("key of the alarms' topic", "key")] if own_topic_key else []),
        _monthly("secrets", "secret", SECRETS + int(stage.has_gateway_keys)),
    ]  # fmt: skip
    if stage.probe is not None:
        lines += [_monthly("alarm that combines others", "composite_alarm"), _probes(stage, stage.probe)]
    if stage.web_acl:
        lines += [_monthly("WAF, web ACL", "web_acl"), _monthly("WAF, rules", "web_acl_rule", WEB_ACL_RULES)]
    polls = f"2 × {_POLLS:,} × {money(PRICES['sqs_request'].dollars)} / 1,000,000"
    looking = _LOOKS * (MEASURED.look_ms / 1000 * gb(stage.ingest) * each + invoked)
    looks = f"{_LOOKS:,} × {MEASURED.look_ms:g} ms"
    return [
        *lines,
        BillLine("SQS, polls of two empty queues", polls, 2 * _POLLS * PRICES["sqs_request"].each),
        BillLine("ingest function, a look every five minutes", looks, looking),
    ]


def _database_bill(database: DatabaseSettings) -> list[BillLine]:
    if database.engine == "aurora":
        capacity = database.min_acu * (1 + database.readers)
        return [
            _monthly("Aurora at its least capacity", "aurora_acu", capacity, " ACU"),
            _monthly("its storage", "aurora_storage", database.storage_gib, " GB"),
            _monthly("RDS Proxy", "proxy_acu", max(_PROXY_ACU, capacity), " ACU"),
        ]
    return [
        _monthly("RDS PostgreSQL", instance_hour(database.instance_type, multi_az=database.multi_az)),
        _monthly("its storage", "storage_multi" if database.multi_az else "storage_single",
                 database.storage_gib, " GB"),
        *([_monthly("RDS Proxy", "proxy_vcpu", database.vcpus, " vCPU")] if database.proxy else []),
    ]  # fmt: skip


def backup_bill(stage: StageSettings) -> list[BillLine]:
    """Bill one full backup and one full copy; changes of later days and the transfer of copies are added."""
    if stage.backup is None:
        return []
    price = "aurora_backup_gb" if stage.database.engine == "aurora" else "backup_gb"
    places = ["backups, first", *(["their copies, first"] if stage.backup.copy_vault_arn else [])]
    lines = [_monthly(what, price, stage.database.storage_gib, " GB") for what in places]
    return [*lines, *(_restore_test_bill(stage.database) if stage.backup.restore_test else [])]


def _restore_test_bill(database: DatabaseSettings) -> list[BillLine]:
    """Bill a restore a month; its storage is billed by the hour."""
    lines = [_monthly("restore test", "restore_test")]
    hours = RESTORED_HOURS + _RESTORE_H
    if database.engine == "rds":
        price = instance_hour(database.instance_type, multi_az=False)
        arithmetic = f"{hours} h × {money(price.dollars)}"
        lines.append(BillLine("restored instance", arithmetic, hours * price.each))
    else:  # an instance of at most 1 ACU is added until the data is read
        price = PRICES["aurora_acu"]
        lines.append(BillLine("restored instance", f"1 h × 1 ACU × {money(price.dollars)}", price.each))
    price = PRICES["aurora_storage" if database.engine == "aurora" else "storage_single"]
    arithmetic = f"{hours} h / {_MONTH_H} h × {database.storage_gib} GB × {money(price.dollars)}"
    lines.append(BillLine("its storage for a restore", arithmetic,
                          hours / _MONTH_H * database.storage_gib * price.each))  # fmt: skip
    return lines


def alarm_metrics(stage: StageSettings) -> int:
    """Count the metrics in the alarms of a stage; a test compares it with the template."""
    doors, burstable = 2 if stage.front_door == "both" else 1, stage.database.instance_type.startswith("t")
    proxied = stage.database.proxy  # its connections in use and allowed, pinned ones, and the wait for one
    if stage.monitoring.alarms == "essential":
        bounded = stage.query.max_concurrency is not None
        fixed = 11 + int(stage.has_authorizer) + int(bounded)
        return fixed + 2 * doors + int(burstable) + (2 if proxied else 1)
    fixed = 26 + 2 * int(stage.has_authorizer)  # its errors, and its dropped invocations
    fixed += 4 if proxied else 1
    fixed += 2 * int(stage.probe is not None) + 8 * int(stage.objective is not None)
    return fixed + 4 * doors + 2 * int(stage.canary) + int(burstable)


def _probes(stage: StageSettings, probe: FunctionSettings) -> BillLine:
    """Bill the probes of a month: the probe waits for the two invocations of the query function."""
    price, request = PRICES[f"lambda_{stage.code.architecture}"], PRICES["lambda_request"]
    size, seconds = gb(probe) + gb(stage.query), ASSUMED.probe_ms / 1000
    dollars = _LOOKS * (seconds * size * price.each + 3 * request.each)
    return BillLine("probe every five minutes", f"{_LOOKS:,} × {seconds:g} s × {size:.2f} GB", dollars)


def egress_bill(stage: StageSettings) -> list[BillLine]:
    """Bill a month of a stage's egress without traffic."""
    match stage.network.egress:
        case "nat":
            count = stage.network.nat_gateways
            return [
                _monthly("NAT gateways", "nat_hour", count),
                _monthly("their IPv4 addresses", "ipv4_hour", count),
            ]
        case "none":
            services = ENDPOINTS * (2 if named_models(stage) else 1)
            services += stage.otel is not None and stage.otel.endpoint is None  # X-Ray's
            return [_monthly("interface endpoints", "endpoint_hour", services * ZONES)]
        case _:
            return [BillLine("egress-only internet gateway", "free", 0.0)]


def start_bill(stage: StageSettings) -> list[BillLine]:
    """Bill a month of provisioned concurrency or of a SnapStart snapshot."""
    match stage.start:
        case "snap_start":
            what, count, price = "SnapStart, one version's snapshot", 1, PRICES["snapshot_kept"]
        case "provisioned":
            price = PRICES[f"provisioned_{stage.code.architecture}"]
            what, count = "provisioned concurrency", stage.provisioned_concurrency
        case _:
            return []
    arithmetic = f"{_MONTH_S:,} s × {count} × {gb(stage.query):.2f} GB × {money(price.dollars)}"
    return [BillLine(what, arithmetic, _MONTH_S * count * gb(stage.query) * price.each)]


def query_bill(stage: StageSettings) -> list[BillLine]:
    """Bill 1,000 streamed queries without the tokens of the model."""
    price, batches = PRICES[f"lambda_{stage.code.architecture}"], ASSUMED.writer_batches
    seconds, writing_s = ASSUMED.model_s + MEASURED.own_ms / 1000, batches * MEASURED.writer_ms / 1000
    size, writer = gb(stage.query), gb(stage.log_writer)
    query = f"{QUERIES:,} × {seconds:.2f} s × {size:.2f} GB × {money(price.dollars)}"
    log_writer = f"{QUERIES:,} × {writing_s * 1000:g} ms × {writer:.2f} GB"
    return [
        _times("Lambda, requests", 1 + batches, "lambda_request"),
        BillLine("query function", query, QUERIES * seconds * size * price.each),
        BillLine("log writer", log_writer, QUERIES * writing_s * writer * price.each),
        *_cold_starts(stage, price),
        *_front_door(stage, price),
        _times("SQS", 2 + 2 * batches, "sqs_request"),
        _gigabytes("CloudWatch Logs", _logged_bytes(stage), "log_gb"),
        _times("X-Ray", ASSUMED.traces if stage.otel is None else 0, "trace"),
        *_traffic(stage),
    ]


def token_bill(model: ModelPrice) -> list[BillLine]:
    """Bill the tokens of 1,000 queries: embeddings, prompts, answers."""
    query, prompt, answer = ASSUMED.query_tokens, MEASURED.prompt_tokens, ASSUMED.answer_tokens
    rows = (
        (f"{EMBEDDING.model}, queries", query, EMBEDDING.tokens_in),
        (f"{model.model}, prompt", prompt, model.tokens_in),
        (f"{model.model}, answer", answer, model.tokens_out),
    )
    return [BillLine(what, f"{count} tokens", QUERIES * count * each / 1e6) for what, count, each in rows]


def stage_models(stage: StageSettings) -> dict[str, ModelPrice]:
    """Return the default model of each vendor; those without a price are left out."""
    chosen = {
        "openai": stage.environment.get("VECTORFORGE_DEFAULT_LLM_MODEL", "gpt-4o"),
        "anthropic": stage.environment.get("VECTORFORGE_ANTHROPIC_MODEL", "claude-sonnet-4-20250514"),
        "google": stage.environment.get("VECTORFORGE_GOOGLE_MODEL", "gemini-2.5-flash"),
    }
    prices = {price.model: price for price in MODELS}
    return {provider: prices[model] for provider, model in chosen.items() if model in prices}


def egress_traffic(stage: StageSettings) -> list[BillLine]:
    """Bill the egress of 1,000 queries by size: the vendor's responses and the query log's messages."""
    match stage.network.egress:
        case "nat":
            size = MEASURED.request_bytes + MEASURED.reply_bytes + MEASURED.message_bytes
            return [_gigabytes("NAT gateway", size, "nat_gb")]
        case "none":
            return [_gigabytes("interface endpoint of SQS", MEASURED.message_bytes, "endpoint_gb")]
        case _:
            return []


def _cold_starts(stage: StageSettings, price: Price) -> list[BillLine]:
    starts, size = QUERIES * ASSUMED.cold_percent / 100, gb(stage.query)
    match stage.start:
        case "snap_start":
            restored = PRICES["snapshot_restored"]
            arithmetic = f"{starts:g} × {size:.2f} GB × {money(restored.dollars)}"
            return [BillLine("restored snapshots", arithmetic, starts * size * restored.each)]
        case "on_demand":
            arithmetic = f"{starts:g} × {MEASURED.init_s:g} s × {size:.2f} GB × {money(price.dollars)}"
            return [BillLine("cold starts", arithmetic, starts * MEASURED.init_s * size * price.each)]
        case _:
            return []


def _front_door(stage: StageSettings, price: Price) -> list[BillLine]:
    if stage.front_door == "function_url":
        return [_times("CloudFront", 1, "cloudfront_request")]
    lines = [_times("API Gateway", 1, "api_request")]
    if stage.authorizer is not None:
        size, spent_ms = gb(stage.authorizer), ASSUMED.authorizer_ms
        each = PRICES["lambda_request"].each + spent_ms / 1000 * size * price.each
        arithmetic = f"{QUERIES:,} × (1 request + {spent_ms:g} ms × {size:.2f} GB)"
        lines.append(BillLine("authorizer", arithmetic, QUERIES * each))
    return [*lines, _times("WAF", 1, "web_acl_request")] if stage.web_acl else lines


def _logged_bytes(stage: StageSettings) -> int:
    batches = ASSUMED.writer_batches
    size = MEASURED.log_bytes + ASSUMED.metric_log_bytes + batches * MEASURED.writer_log_bytes
    size += (1 + batches) * ASSUMED.platform_log_bytes
    return size + (ASSUMED.access_log_bytes if stage.front_door != "function_url" else 0)


def _traffic(stage: StageSettings) -> list[BillLine]:
    to_client = "cloudfront_gb" if stage.front_door == "function_url" else "internet_gb"
    answers = _gigabytes("answers, out to clients", MEASURED.answer_bytes, to_client)
    prompts = _gigabytes("prompts, out to the vendor", MEASURED.request_bytes, "internet_gb")
    # With egress "none" no vendor is reachable: the model runs inside the VPC.
    out = [answers] if stage.network.egress == "none" else [answers, prompts]
    return [*out, *egress_traffic(stage)]


def _monthly(what: str, price: Price | str, count: float = 1, unit: str = "") -> BillLine:
    """Bill a month of something priced by hour or month."""
    price = PRICES[price] if isinstance(price, str) else price
    hours = _MONTH_H if price.unit == "hour" else 1
    arithmetic = f"{hours} h × " if price.unit == "hour" else ""
    arithmetic += f"{count:g}{unit} × " if count != 1 or unit else ""
    return BillLine(what, f"{arithmetic}{money(price.dollars)}", hours * count * price.each)


def _times(what: str, count: float, key: str) -> BillLine:
    """Bill 1,000 queries that use ``count`` units each."""
    price = PRICES[key]
    per = f" / {price.per:,}" if price.per != 1 else ""
    arithmetic = f"{QUERIES:,} × {count:g} × {money(price.dollars)}{per}"
    return BillLine(what, arithmetic, QUERIES * count * price.each)


def _gigabytes(what: str, size: float, key: str) -> BillLine:
    """Bill 1,000 queries that move ``size`` bytes each."""
    price = PRICES[key]
    arithmetic = f"{QUERIES * size / 1e6:.1f} MB × {money(price.dollars)}/GB"
    return BillLine(what, arithmetic, QUERIES * size / 1e9 * price.each)
