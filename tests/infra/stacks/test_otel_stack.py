"""A stage that exports spans with OpenTelemetry: variables, permissions, without X-Ray."""

import dataclasses
import json
from pathlib import Path

import pytest

from infra.setting_types import NetworkSettings, OtelSettings, SettingsError
from infra.settings import DEV, PROD
from infra.stage_settings import StageSettings
from tests.infra.stack_template import StackTemplate, text
from vectorforge.aws.trace_export import DELIVERIES
from vectorforge.config import known_variables

LANGFUSE = "https://cloud.langfuse.com/api/public/otel/v1/traces"
TO_CLOUDWATCH = dataclasses.replace(PROD, stage="cloudwatch", otel=OtelSettings())
TO_LANGFUSE = dataclasses.replace(
    PROD, stage="langfuse", otel=OtelSettings(endpoint=LANGFUSE, headers_secret="langfuse", texts=True)
)
IN_VPC = dataclasses.replace(
    PROD, stage="invpc", otel=OtelSettings(), network=NetworkSettings(egress="none"), web_acl=False
)
_EXPORT = {("xray:PutTraceSegments", "*"), ("xray:PutSpans", "*"), ("xray:PutSpansForIndexing", "*")}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Synthesize the stages, which cdk-nag checks."""
    from aws_cdk import App

    from infra.app import build

    folder = tmp_path_factory.mktemp("otel")
    app = App(context={"aws:cdk:bundling-stacks": []}, outdir=str(folder))
    for stage in (TO_CLOUDWATCH, TO_LANGFUSE, IN_VPC):
        build(app, stage)
    app.synth()
    return folder


def template(folder: Path, stage: StageSettings, stack: str = "App") -> StackTemplate:
    return StackTemplate(
        json.loads((folder / f"VectorForge-{stage.stage}-{stack}.template.json").read_text())
    )


def variables(stack: StackTemplate, function: str) -> dict[str, str]:
    found = stack.of_kind("AWS::Lambda::Function")[function]["Environment"]["Variables"]
    return {name: text(value) for name, value in found.items()}


def test_functions_record_spans_and_log_writer_may_export_to_cloudwatch(folder: Path) -> None:
    stack = template(folder, TO_CLOUDWATCH)
    for function in ("QueryFunction", "QueryLogWriterFunction"):
        values = variables(stack, function)
        assert values["VECTORFORGE_TRACING"] == "otel"
        assert values["VECTORFORGE_OTLP_ENDPOINT"].startswith("https://xray.")
        assert values["VECTORFORGE_OTLP_ENDPOINT"].endswith("/v1/traces")
        assert values["VECTORFORGE_OTLP_TEXTS"] == "false"
        assert values["VECTORFORGE_OTLP_RESOURCE"] == (
            "service.name=vectorforge,deployment.environment.name=cloudwatch"
        )
        assert {name for name in values if name.startswith("VECTORFORGE_")} <= known_variables()
    assert stack.permissions("QueryLogWriterRole") >= _EXPORT
    assert not any(action.startswith("xray:") for action, _ in stack.permissions("QueryFunctionRole"))


def test_x_ray_traces_neither_functions_nor_api(folder: Path) -> None:
    stack = template(folder, TO_CLOUDWATCH)
    for function in stack.of_kind("AWS::Lambda::Function").values():
        assert function.get("TracingConfig", {}).get("Mode") != "Active"
    for stage in stack.of_kind("AWS::ApiGateway::Stage").values():
        assert stage["TracingEnabled"] is False


def test_only_log_writer_reads_the_headers_of_another_backend(folder: Path) -> None:
    stack = template(folder, TO_LANGFUSE)
    writer = variables(stack, "QueryLogWriterFunction")
    assert (writer["VECTORFORGE_OTLP_ENDPOINT"], writer["VECTORFORGE_OTLP_TEXTS"]) == (LANGFUSE, "true")
    assert writer["VECTORFORGE_PROVIDER_SECRET_ID"] == "langfuse"
    readable = [on for action, on in stack.permissions("QueryLogWriterRole") if "secretsmanager" in action]
    assert len(readable) == 1
    assert readable[0].endswith(":secret:langfuse-??????")
    assert not _EXPORT & stack.permissions("QueryLogWriterRole")
    assert not any(on in readable for _, on in stack.permissions("QueryFunctionRole"))


def test_stage_without_egress_reaches_cloudwatch_through_an_endpoint(folder: Path) -> None:
    endpoints = template(folder, IN_VPC, "Data").of_kind("AWS::EC2::VPCEndpoint").values()
    assert any(text(one["ServiceName"]).endswith(".xray") for one in endpoints)


def test_ipv6_egress_requires_another_endpoint() -> None:
    with pytest.raises(SettingsError, match=r"otel\.endpoint"):
        dataclasses.replace(DEV, otel=OtelSettings())
    dataclasses.replace(DEV, otel=OtelSettings(endpoint=LANGFUSE))


def test_last_delivery_of_the_log_writer_is_that_of_its_queue(folder: Path) -> None:
    queues = template(folder, TO_CLOUDWATCH).of_kind("AWS::SQS::Queue")
    assert queues["QueryLogRecordsQueue"]["RedrivePolicy"]["maxReceiveCount"] == DELIVERIES
