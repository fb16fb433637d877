"""Settings of the stages: contradictions are rejected before a deployment."""

import dataclasses
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from infra.connection_budget import RESERVED, most_connections
from infra.setting_types import (
    CodeSettings,
    CustomDomain,
    DomainSettings,
    MonitoringSettings,
    NetworkSettings,
    SettingsError,
)
from infra.settings import DEV, LEAN, PROD, STAGES, choose, network_for
from infra.vendor_addresses import IPV6_SOURCES, vendor_hosts, without_known_ipv6

CERTIFICATE = "arn:aws:acm:us-east-1:123456789012:certificate/11111111-2222"
WRONG: Any = 5
ROLE = "arn:aws:iam::123456789012:role/acme-reader"


def test_stage_is_chosen_by_name_with_other_architecture() -> None:
    chosen = choose("dev", architecture="x86_64", python_version="3.11")
    assert chosen.code.platform == "x86_64-manylinux_2_34"
    assert chosen.code.python_version == "3.11"
    assert dataclasses.replace(chosen, code=DEV.code) == DEV
    assert set(STAGES) == {"lean", "dev", "prod", "large"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"stage": "Prod_1"}, "lower-case"),
        ({"stage": "a" * 13}, "1 to 12"),
        ({"network": NetworkSettings(egress="nat")}, "nat_gateways"),
        ({"network": NetworkSettings(egress="none", nat_gateways=1)}, "nat_gateways"),
        ({"network": NetworkSettings(egress="none", zones=("us-east-1a",))}, "two availability zones"),
        ({"front_door": "both"}, "max_concurrency"),
        ({"start": "provisioned"}, "provisioned_concurrency"),
        ({"provisioned_concurrency": 2}, "provisioned_concurrency"),
        (
            {"environment": {"VECTORFORGE_OPENAI_API_KEY": "sk-1"}},
            "OPENAI_API_KEY: .* vectorforge-prod/providers",
        ),
        ({"environment": {"VECTORFORGE_OTLP_HEADERS": "a=sk-1"}}, "_OTLP_HEADERS: use otel.headers_secret"),
        ({"environment": {"VECTORFORGE_ERASER_DATABASE_URL": "sk-1"}}, "without a password"),
        ({"environment": {"PATH": "/bin"}}, r"environment must only have settings VECTORFORGE_.*'PATH'\."),
        ({"environment": {"VECTORFORGE_TOP-K": "5"}}, "in upper case, not 'VECTORFORGE_TOP-K'"),
        ({"tenants": ("acme corp",)}, "acme corp"),
        ({"tenants": ("acme", "beta", "acme")}, "differ in more"),
        ({"tenants": ("acme-1", "acme1")}, "differ in more"),
        ({"tenants": tuple(f"t{n}" for n in range(91))}, "at most 90.*`vectorforge keys create"),
        ({"iam_tenants": {ROLE: "acme"}}, "function URL"),
        ({"front_door": "both", "iam_tenants": {ROLE: ""}}, "tenant ''"),
        ({"front_door": "both", "iam_tenants": {f"{ROLE}/*": "acme"}}, "must be ARNs"),
        ({"front_door": "both", "iam_tenants": {"arn:aws:iam::123456789012:root": "acme"}}, "must be ARNs"),
        ({"front_door": "both", "iam_tenants": {f"{ROLE}-{n}": "a" for n in range(60)}}, "most 2000.*4 KB"),
        ({"front_door": "function_url"}, "web_acl"),
        ({"cloudfront_domain": CustomDomain("ask.example.org", CERTIFICATE)}, "cloudfront_domain"),
        ({"uploads_kept_days": 14}, "uploads_kept_days"),
        ({"upload_origins": ("https://docs.example.com", "http://docs.example.com")}, "upload_origins"),
        ({"upload_origins": ("*",)}, "upload_origins"),
        ({"cors_origins": ("https://app.example.com/",)}, "entry 1 of cors_origins"),
        ({"cors_origins": ("https://app.example.com", "app.example.com")}, "entry 2 of cors_origins"),
        ({"cors_origins": ("https://*.com",)}, "cors_origins"),
        ({"cors_origins": ("*", "https://app.example.com")}, "cors_origins"),
        ({"environment": {"VECTORFORGE_CORS_ORIGINS": "*"}}, "cors_origins"),
        ({"monitoring": MonitoringSettings(alarms="essential")}, "monitoring.alarms"),
        ({"database": dataclasses.replace(PROD.database, proxy=False)}, "max_concurrency of query"),
    ],
)
def test_contradictory_settings_are_rejected(change: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError, match=message) as refused:
        dataclasses.replace(PROD, **change)
    assert "sk-1" not in str(refused.value)


@pytest.mark.parametrize(
    ("part", "change", "message"),
    [
        (None, {"stage": "t\u00e9st"}, "lower-case letters"),
        (None, {"tenants": "acme"}, r": tenants must be a valid tuple, not 'acme'\.$"),
        (None, {"tenants": ()}, "tenants must have at least one entry"),
        (None, {"start": "snapstart"}, r": start must be 'on_demand', .*, not 'snapstart'"),
        (None, {"front_door": "rest"}, ": front_door must be 'rest_api'"),
        (None, {"requests_per_second": "ten"}, ": requests_per_second must be a valid integer"),
        (None, {"burst": 0}, ": burst must be at least 1, not 0"),
        (None, {"log_retention_days": 45}, ": log_retention_days must be 1, 7, 14, 30, 90 or 365, not 45"),
        (
            None,
            {"environment": {"VECTORFORGE_TOP_K": 5}},
            ": environment.VECTORFORGE_TOP_K must be a valid str",
        ),
        (None, {"environment": {5: "5"}}, r": environment\.5 must be a valid str.*, not 5\."),
        (
            None,
            {"code": CodeSettings(architecture=WRONG)},
            r": code\.architecture must be 'arm64' or 'x86_64'",
        ),
        (
            None,
            {"cloudfront_domain": CustomDomain("ask.example.org", "arn:aws:acm:eu-west-1:1:certificate/1")},
            r": cloudfront_domain\.certificate_arn must be the ARN of a certificate in us-east-1, not 'arn:",
        ),
        (
            None,
            {"cloudfront_domain": CustomDomain("https://ask.example.org", CERTIFICATE)},
            r": cloudfront_domain\.name must be a lower-case domain name",
        ),
        (None, {"domain": DomainSettings(WRONG, "Z1", "x.org")}, r": domain\.name must be a valid string"),
        (None, {"alarm_email": ""}, ": alarm_email must match pattern"),
        (None, {"authorizer": False}, ": authorizer must be"),
        (
            "network",
            {"egress": "ipv6"},
            r": network\.egress must be 'nat', 'dual_stack' or 'none', not 'ipv6'",
        ),
        ("network", {"nat_gateways": 3}, r": network\.nat_gateways must be 0, 1 or 2"),
        ("database", {"instance_type": "db.t4g.micro"}, r": database\.instance_type must match pattern"),
        ("database", {"multi_az": "no"}, r": database\.multi_az must be a valid boolean"),
        ("database", {"backup_days": 36}, r": database\.backup_days must be at most 35"),
        ("database", {"backup_window": "2-3"}, r": database\.backup_window must match pattern"),
        ("database", {"storage_gib": 501}, r"max_storage_gib must be at least storage_gib"),
        ("database", {"engine": "aurora", "min_acu": 0.7}, r": database\.min_acu must be a multiple of 0\.5"),
        ("query", {"memory_mb": 100}, r": query\.memory_mb must be at least 128"),
        ("ingest", {"timeout_s": 901}, r": ingest\.timeout_s must be at most 900"),
        ("ingest", {"max_concurrency": 1}, r": ingest\.max_concurrency must be between 2 and 1000"),
    ],
)
def test_values_of_wrong_type_or_range_are_rejected_with_their_field(
    part: str | None, change: dict[str, Any], message: str
) -> None:
    if part is not None:
        change = {part: dataclasses.replace(getattr(PROD, part), **change)}
    with pytest.raises(SettingsError, match=message):
        dataclasses.replace(PROD, **change)


def test_wrong_settings_end_a_command_with_one_line() -> None:
    program = "import dataclasses; from infra.settings import DEV; dataclasses.replace(DEV, stage='de v')"
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr == (
        "infra/settings.py, stage 'de v': stage must be 1 to 12 lower-case letters and digits.\n"
    )


@pytest.mark.parametrize("chosen", [("test", None), ("dev", "mips")])
def test_unknown_names_are_rejected_with_valid_ones(chosen: tuple[str, str | None]) -> None:
    with pytest.raises(SettingsError, match=r"dev, lean, prod, large|arm64 or x86_64"):
        choose(chosen[0], architecture=chosen[1])


def test_lean_stage_stays_within_its_instance() -> None:
    most = most_connections(LEAN.query, LEAN.log_writer, LEAN.ingest)
    assert most is not None
    assert most <= LEAN.database.max_connections - RESERVED


def test_concurrency_beyond_max_connections_is_rejected_with_the_possible() -> None:
    def lean(queries: int) -> Any:
        return dataclasses.replace(LEAN, query=dataclasses.replace(LEAN.query, max_concurrency=queries))

    with pytest.raises(SettingsError, match=r"db\.t4g\.micro has 97 .*max_concurrency to at most 12,"):
        lean(50)
    lean(12)
    with pytest.raises(SettingsError, match="at most 12"):
        lean(13)
    jobs = dataclasses.replace(LEAN.ingest, max_concurrency=50)
    with pytest.raises(SettingsError, match="reserved\\): choose a larger instance_type"):
        dataclasses.replace(LEAN, ingest=jobs)
    larger = dataclasses.replace(LEAN.database, instance_type="t4g.large")
    dataclasses.replace(lean(12), database=larger, ingest=jobs)


GOOGLE = {"VECTORFORGE_DEFAULT_EMBEDDING_PROVIDER": "google", "VECTORFORGE_DEFAULT_LLM_PROVIDER": "anthropic"}


@pytest.mark.parametrize(
    ("environment", "hosts"),
    [
        ({}, ["api.openai.com"]),
        (GOOGLE, []),
        (GOOGLE | {"VECTORFORGE_LLM_FALLBACKS": '["openai:gpt-4o"]'}, ["api.openai.com"]),
        (GOOGLE | {"VECTORFORGE_LLM_FALLBACKS": "no JSON"}, []),
        (GOOGLE | {"VECTORFORGE_VERTEX_PROJECT": "acme"}, ["aiplatform.googleapis.com"]),
        (GOOGLE | {"VECTORFORGE_GOOGLE_BASE_URL": "https://gate.example.org/v1"}, ["gate.example.org"]),
        (GOOGLE | {"VECTORFORGE_DEFAULT_LLM_PROVIDER": "bedrock"}, []),
        ({"VECTORFORGE_OPENAI_BASE_URL": "https://sqs.eu-central-1.api.aws"}, []),
    ],
)
def test_nat_is_chosen_for_vendors_without_known_ipv6(environment: dict[str, str], hosts: list[str]) -> None:
    assert without_known_ipv6(environment) == hosts
    chosen = network_for(environment)
    assert (chosen.egress, chosen.nat_gateways) == (("nat", 2) if hosts else ("dual_stack", 0))


def test_known_ipv6_hosts_have_sources() -> None:
    assert "api.anthropic.com" in vendor_hosts(GOOGLE)
    assert all(source.startswith("https://") for source in IPV6_SOURCES.values())
