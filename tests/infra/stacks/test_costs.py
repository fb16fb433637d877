"""Costs: the document agrees with the settings and with the dashboard."""

import dataclasses
import re
from typing import Any

import pytest

from infra.bundling.bundle import ROOT
from infra.costs.__main__ import DOCUMENT, filled, main, tables
from infra.costs.bill import (
    ASSUMED,
    ENDPOINTS,
    MEASURED,
    QUERIES,
    SECRETS,
    WEB_ACL_RULES,
    ZONES,
    BillLine,
    idle_bill,
    query_bill,
    stage_models,
    token_bill,
    total,
)
from infra.costs.prices import PRICES, PriceError
from infra.setting_types import NetworkSettings
from infra.settings import DEV, PROD, STAGES, network_for
from infra.stage_settings import StageSettings
from tests.infra.stack_template import StackTemplate
from tests.infra.watched_metrics import dashboard_body
from vectorforge.config import LLMSettings

WITH_DASHBOARD = [stage for stage in STAGES.values() if stage.monitoring.dashboard]
QUESTIONS = "docs/use/questions.md"
EACH_STAGE = pytest.mark.parametrize("stage", STAGES.values(), ids=STAGES)


def test_cost_document_tables_match_settings(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--check"]) == 0, "run: python -m infra.costs --write"
    assert main([]) == 0
    assert capsys.readouterr().out.strip() == "\n\n".join(tables().values())


def test_costs_of_common_questions_and_readme_match_the_bills() -> None:
    questions, readme = (" ".join((ROOT / page).read_text().split()) for page in (QUESTIONS, "README.md"))
    lean, dev, prod = (f"${total(idle_bill(STAGES[name])):.0f}" for name in ("lean", "dev", "prod"))
    assert f"about {lean} a month (`lean`), {dev} (`dev`) or {prod} (`prod`)" in questions
    assert f"1,000 queries cost ${total(query_bill(DEV)):.2f} more" in questions
    assert f"`dev` costs [about {dev} a month](docs/operate/costs.md), and `lean` about {lean}" in readme


def test_changed_figure_is_restored_and_missing_table_raises() -> None:
    document = DOCUMENT.read_text()
    altered = document.replace(f"**{total(idle_bill(DEV)):.2f}**", "**1.00**")
    assert altered != document
    assert filled(altered) == document
    with pytest.raises(ValueError, match="egress"):
        filled(document.replace("<!-- costs: egress -->", ""))


def test_measured_figures_match_performance_document() -> None:
    text = (ROOT / "docs" / "results" / "performance.md").read_text()
    _, _, section = text.partition("### Billed resources of one query")
    rows = re.findall(r"^\| ([^|]+) \| ([\d,.]+) \|$", section, re.MULTILINE)
    found = {what: float(number.replace(",", "")) for what, number in rows}
    assert found["query function: CPU ms, mean"] == pytest.approx(MEASURED.own_ms, abs=0.5)
    for what, value in {
        "query function: bytes of log, essential metrics": MEASURED.log_bytes,
        "answer: bytes to the client": MEASURED.answer_bytes,
        "prompt: tokens": MEASURED.prompt_tokens,
        "model: bytes of the request": MEASURED.request_bytes,
        "model: bytes of the reply": MEASURED.reply_bytes,
        "query log: bytes of its messages": MEASURED.message_bytes,
        "log writer: ms per batch of one query": MEASURED.writer_ms,
        "log writer: bytes of log per batch": MEASURED.writer_log_bytes,
        "ingest function: ms of a scheduled run without jobs": MEASURED.look_ms,
    }.items():
        assert found[what] == value, what
    # SQS bills messages in units of 64 KB: these two are two.
    assert found["query log: messages"] == 2
    assert MEASURED.message_bytes < 64_000


@EACH_STAGE
def test_idle_bill_matches_template_resources(
    stage: StageSettings, app_templates: dict[str, StackTemplate], data_templates: dict[str, StackTemplate]
) -> None:
    app, data = app_templates[stage.stage], data_templates[stage.stage]
    assert len(data.of_kind("AWS::EC2::NatGateway")) == stage.network.nat_gateways
    assert len(data.of_kind("AWS::RDS::DBInstance")) == 1
    assert len(data.of_kind("AWS::RDS::DBProxy")) == int(stage.database.proxy)
    master_secret = 1  # created by RDS
    secrets = sum(len(part.of_kind("AWS::SecretsManager::Secret")) for part in (app, data)) + master_secret
    gateway_keys = 1  # all stages have a REST API
    assert secrets == SECRETS + gateway_keys
    assert len(app.of_kind("AWS::KMS::Key")) + len(data.of_kind("AWS::KMS::Key")) == int(
        stage.monitoring.topic_key
    )
    assert len(app.of_kind("AWS::CloudWatch::Dashboard")) == int(stage.monitoring.dashboard)
    sources = app.of_kind("AWS::Lambda::EventSourceMapping")
    assert len(sources) == 2
    assert all("MaximumConcurrency" in source["ScalingConfig"] for source in sources.values())
    acls = app.of_kind("AWS::WAFv2::WebACL").values()
    assert len(acls) == int(stage.web_acl)
    assert all(len(acl["Rules"]) == WEB_ACL_RULES for acl in acls)


# The figures promised: by list prices, without free tiers.
@pytest.mark.parametrize(("stage", "dollars"), [("lean", 23), ("dev", 40)])
def test_small_stage_costs_at_most_its_goal_idle(stage: str, dollars: float) -> None:
    assert 10 < total(idle_bill(STAGES[stage])) <= dollars


def test_prod_without_nat_saves_the_gateways() -> None:
    vendors = {
        "VECTORFORGE_DEFAULT_LLM_PROVIDER": "anthropic",
        "VECTORFORGE_DEFAULT_EMBEDDING_PROVIDER": "google",
    }
    ipv6 = dataclasses.replace(PROD, network=network_for(vendors))
    assert total(idle_bill(PROD)) - total(idle_bill(ipv6)) == pytest.approx(73.0)


def test_network_without_egress_has_endpoints_in_each_zone() -> None:
    from aws_cdk import App, Stack
    from aws_cdk.assertions import Template

    from infra.data.network import Network

    alone = dataclasses.replace(DEV, network=NetworkSettings(egress="none"))
    stack = Stack(App(), "Alone")
    Network(stack, "Network", alone)
    endpoints = StackTemplate(Template.from_stack(stack).to_json()).of_kind("AWS::EC2::VPCEndpoint").values()
    zones = [
        len(endpoint["SubnetIds"]) for endpoint in endpoints if endpoint["VpcEndpointType"] == "Interface"
    ]
    assert zones == [ZONES] * ENDPOINTS


def by_name(lines: list[BillLine]) -> dict[str, float]:
    return {line.what: line.dollars for line in lines}


def test_stage_settings_change_the_bill() -> None:
    idle, provisioned = (
        by_name(idle_bill(PROD)),
        dataclasses.replace(PROD, start="provisioned", provisioned_concurrency=2),
    )
    assert idle["NAT gateways"] == pytest.approx(65.70)
    assert idle["SnapStart, one version's snapshot"] == pytest.approx(6.83, abs=0.01)
    assert by_name(idle_bill(provisioned))["provisioned concurrency"] == pytest.approx(30.27, abs=0.01)
    assert by_name(idle_bill(DEV))["RDS Proxy"] == pytest.approx(21.90)
    x86 = dataclasses.replace(DEV, code=dataclasses.replace(DEV.code, architecture="x86_64"))
    assert total(query_bill(x86)) > total(query_bill(DEV))
    bounded = dataclasses.replace(DEV.query, max_concurrency=50)
    url = by_name(query_bill(dataclasses.replace(DEV, front_door="function_url", query=bounded)))
    assert "CloudFront" in url
    assert "API Gateway" not in url


def test_missing_price_raises_or_omits_unpriced_model() -> None:
    unknown = dataclasses.replace(DEV, database=dataclasses.replace(DEV.database, instance_type="z9.large"))
    with pytest.raises(PriceError, match=r"infra/costs/prices.py has no price for db\.z9\.large"):
        idle_bill(unknown)
    own = dataclasses.replace(DEV, environment={"VECTORFORGE_DEFAULT_LLM_MODEL": "my-own"})
    assert set(stage_models(own)) == {"anthropic", "google"}


def test_stage_models_default_to_library_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DEFAULT_LLM_MODEL", "ANTHROPIC_MODEL", "GOOGLE_MODEL"):
        monkeypatch.delenv(f"VECTORFORGE_{name}", raising=False)
    settings = LLMSettings()
    defaults = {
        "openai": settings.default_model,
        "anthropic": settings.anthropic_model,
        "google": settings.google_model,
    }
    assert {provider: price.model for provider, price in stage_models(DEV).items()} == defaults


def evaluated(body: dict[str, Any], label: str, values: dict[str, float]) -> float:
    """Evaluate an expression of the dashboard as CloudWatch does; metrics without a value are zero."""
    for widget in body["widgets"]:
        entries = widget["properties"].get("metrics", [])
        for entry in entries:
            if entry[-1].get("label") == label and "expression" in entry[-1]:
                ids = {one[-1]["id"]: 0.0 for one in entries if "id" in one[-1]}
                known = {"FILL": lambda value, _: value, **ids, **values}
                return float(eval(entry[-1]["expression"], {"__builtins__": {}}, known))  # noqa: S307 - ours
    raise AssertionError(label)


@pytest.mark.parametrize("stage", WITH_DASHBOARD, ids=lambda stage: stage.stage)
def test_dashboard_cost_formula_matches_bill(
    stage: StageSettings, app_templates: dict[str, StackTemplate]
) -> None:
    body = dashboard_body(app_templates[stage.stage])
    lines = by_name(query_bill(stage))
    batches = QUERIES * ASSUMED.writer_batches
    values = {
        "queries": float(QUERIES),
        "n_query": QUERIES,
        "ms_query": QUERIES * (ASSUMED.model_s * 1000 + MEASURED.own_ms),
        "n_logwriter": batches,
        "ms_logwriter": batches * MEASURED.writer_ms,
        "requests": QUERIES,
        "log_query": lines["CloudWatch Logs"] / PRICES["log_gb"].each * 1e9,
        "in_openai": QUERIES * MEASURED.prompt_tokens,
        "out_openai": QUERIES * ASSUMED.answer_tokens,
    }
    functions = lines["Lambda, requests"] + lines["query function"] + lines["log writer"]
    front_door_cost = lines["API Gateway"] + lines.get("WAF", 0)
    tokens = total(token_bill(stage_models(stage)["openai"])[1:])
    for label, dollars in {
        "functions": functions,
        "front door": front_door_cost,
        "logs": lines["CloudWatch Logs"],
        "openai": tokens,
        "anthropic": 0,
        "$ for 1,000 queries": functions + front_door_cost + lines["CloudWatch Logs"] + tokens,
    }.items():
        assert evaluated(body, label, values) == pytest.approx(dollars, rel=1e-4), label
