"""Settings of the stages: contradictions are rejected before a deployment."""

import dataclasses
from typing import Any

import pytest

from infra.setting_types import CustomDomain, NetworkSettings, SettingsError
from infra.settings import DEV, PROD, STAGES, choose

ROLE = "arn:aws:iam::123456789012:role/acme-reader"


def test_stage_is_chosen_by_name_with_other_architecture() -> None:
    chosen = choose("dev", architecture="x86_64", python_version="3.11")
    assert chosen.code.platform == "x86_64-manylinux_2_34"
    assert chosen.code.python_version == "3.11"
    assert dataclasses.replace(chosen, code=DEV.code) == DEV
    assert set(STAGES) == {"dev", "prod"}


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
        ({"environment": {"VECTORFORGE_OPENAI_API_KEY": "sk-1"}}, "VECTORFORGE_OPENAI_API_KEY"),
        ({"environment": {"PATH": "/bin"}}, "PATH"),
        ({"tenants": ("acme corp",)}, "acme corp"),
        ({"tenants": ("acme", "beta", "acme")}, "differ in more"),
        ({"tenants": ("acme-1", "acme1")}, "differ in more"),
        ({"tenants": tuple(f"t{n}" for n in range(91))}, "at most 90.*`vectorforge keys create"),
        ({"iam_tenants": {ROLE: "acme"}}, "function URL"),
        ({"front_door": "both", "iam_tenants": {ROLE: ""}}, "tenant ''"),
        ({"front_door": "both", "iam_tenants": {f"{ROLE}/*": "acme"}}, "must be ARNs"),
        ({"front_door": "both", "iam_tenants": {"arn:aws:iam::123456789012:root": "acme"}}, "must be ARNs"),
        ({"front_door": "function_url"}, "web_acl"),
        ({"cloudfront_domain": CustomDomain("ask.example.org", "arn:...")}, "cloudfront_domain"),
        ({"uploads_kept_days": 14}, "uploads_kept_days"),
        ({"upload_origins": ("https://docs.example.com", "http://docs.example.com")}, "upload_origins"),
        ({"upload_origins": ("*",)}, "upload_origins"),
        ({"cors_origins": ("https://app.example.com/",)}, "entry 1 of cors_origins"),
        ({"cors_origins": ("https://app.example.com", "app.example.com")}, "entry 2 of cors_origins"),
        ({"cors_origins": ("https://*.com",)}, "cors_origins"),
        ({"cors_origins": ("*", "https://app.example.com")}, "cors_origins"),
        ({"environment": {"VECTORFORGE_CORS_ORIGINS": "*"}}, "cors_origins"),
    ],
)
def test_contradictory_settings_are_rejected(change: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError, match=message) as refused:
        dataclasses.replace(PROD, **change)
    assert "sk-1" not in str(refused.value)


@pytest.mark.parametrize("chosen", [("test", None), ("dev", "mips")])
def test_unknown_names_are_rejected_with_valid_ones(chosen: tuple[str, str | None]) -> None:
    with pytest.raises(SettingsError, match=r"dev, prod|arm64 or x86_64"):
        choose(chosen[0], architecture=chosen[1])
