"""Functions may call the Amazon Bedrock models in the stage's settings, and no others. C34."""

import dataclasses
import json
from pathlib import Path

import pytest
from aws_cdk import App
from aws_cdk.assertions import Template

from infra.app import build
from infra.constructs.bedrock import NamedModel, named_model, named_models
from infra.costs.bill import egress_bill
from infra.data.data_stack import DataStack
from infra.nag_rules import acknowledge
from infra.setting_types import NetworkSettings, SettingsError
from infra.settings import DEV
from infra.stage_settings import StageSettings
from tests.infra.stack_template import StackTemplate
from tests.infra.stacks.test_rules import findings

PROFILE = "eu.amazon.nova-2-lite-v1:0"
TITAN = "amazon.titan-embed-text-v2:0"
HERE = "arn:AWS::Partition:bedrock:AWS::Region"


def naming(**environment: str) -> StageSettings:
    variables = {f"VECTORFORGE_BEDROCK_{name}": value for name, value in environment.items()}
    return dataclasses.replace(DEV, environment=variables)


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> App:
    found = App(context={"aws:cdk:bundling-stacks": []}, outdir=str(tmp_path_factory.mktemp("assembly")))
    stage = naming(MODEL=PROFILE, EMBEDDING_MODEL=TITAN)
    data, functions = build(found, stage)
    acknowledge({"Data": data, "App": functions}, stage)
    return found


@pytest.fixture(scope="module")
def template(app: App) -> StackTemplate:
    file = Path(app.synth().directory) / "VectorForge-dev-App.template.json"
    return StackTemplate(json.loads(file.read_text()))


def bedrock(template: StackTemplate, role: str) -> set[tuple[str, str]]:
    return {found for found in template.permissions(role) if found[0].startswith("bedrock:")}


def test_query_function_role_invokes_configured_models_and_lists_all(template: StackTemplate) -> None:
    profile = f"{HERE}:AWS::AccountId:inference-profile/{PROFILE}"
    model = "arn:AWS::Partition:bedrock:*::foundation-model/amazon.nova-2-lite-v1:0"
    assert bedrock(template, "QueryFunctionRole") == {
        ("bedrock:InvokeModel", profile),
        ("bedrock:InvokeModelWithResponseStream", profile),
        ("bedrock:InvokeModel", model),
        ("bedrock:InvokeModelWithResponseStream", model),
        ("bedrock:InvokeModel", f"{HERE}::foundation-model/{TITAN}"),
        ("bedrock:ListFoundationModels", "*"),
        ("bedrock:ListInferenceProfiles", "*"),
    }
    [condition] = [
        statement["Condition"]
        for statement in template.statements("QueryFunctionRole")
        if "foundation-model/amazon.nova" in json.dumps(statement)
    ]
    assert PROFILE in json.dumps(condition["StringEquals"]["bedrock:InferenceProfileArn"])


def test_ingest_function_role_invokes_both_models_without_streaming(template: StackTemplate) -> None:
    assert bedrock(template, "IngestionIngestRole") == {
        ("bedrock:InvokeModel", f"{HERE}::foundation-model/{TITAN}"),
        ("bedrock:InvokeModel", f"{HERE}:AWS::AccountId:inference-profile/{PROFILE}"),
        ("bedrock:InvokeModel", "arn:AWS::Partition:bedrock:*::foundation-model/amazon.nova-2-lite-v1:0"),
    }


def test_other_function_roles_have_no_bedrock_permission(template: StackTemplate) -> None:
    assert bedrock(template, "QueryLogWriterRole") == set()
    assert bedrock(template, "MigrationMigrateRole") == set()


def test_cdk_nag_reports_no_unacknowledged_finding(app: App) -> None:
    assert sorted(findings(app)) == []


@pytest.mark.parametrize(
    ("name", "model_id", "profiled"),
    [
        (TITAN, TITAN, None),
        ("ai21.jamba-1-5-mini-v1:0", "ai21.jamba-1-5-mini-v1:0", None),
        ("us.anthropic.claude-x-v1:0", "us.anthropic.claude-x-v1:0", "anthropic.claude-x-v1:0"),
        ("global.anthropic.claude-x-v1:0", "global.anthropic.claude-x-v1:0", "anthropic.claude-x-v1:0"),
        (
            "arn:aws:bedrock:eu-west-1:1:inference-profile/eu.cohere.embed-v4:0",
            "eu.cohere.embed-v4:0",
            "cohere.embed-v4:0",
        ),
        ("arn:aws:bedrock:eu-west-1:1:provisioned-model/abc", "abc", None),
    ],
)
def test_model_name_is_parsed_into_model_and_profile(name: str, model_id: str, profiled: str | None) -> None:
    assert named_models(naming(MODEL=name)) == [NamedModel(name, model_id, profiled)]


def test_application_inference_profile_is_rejected() -> None:
    stage = naming(EMBEDDING_MODEL="arn:aws:bedrock:eu-west-1:1:application-inference-profile/abc")
    with pytest.raises(SettingsError, match="VECTORFORGE_BEDROCK_EMBEDDING_MODEL hides its models"):
        named_model(stage, "VECTORFORGE_BEDROCK_EMBEDDING_MODEL")


@pytest.mark.parametrize(("stage", "services"), [(DEV, 2), (naming(MODEL=TITAN), 4)])
def test_bedrock_without_egress_has_billed_endpoints(stage: StageSettings, services: int) -> None:
    closed = dataclasses.replace(stage, network=NetworkSettings(egress="none"))
    app = App(context={"aws:cdk:bundling-stacks": []})
    data = DataStack(app, "Data", stage=closed)
    Template.from_stack(data).resource_properties_count_is(
        "AWS::EC2::VPCEndpoint", {"VpcEndpointType": "Interface"}, services
    )
    [line] = egress_bill(closed)
    [less] = egress_bill(dataclasses.replace(closed, environment={}))
    assert line.dollars == pytest.approx(less.dollars * services / 2)
