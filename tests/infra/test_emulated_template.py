"""Production templates are turned into the emulator's."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from aws_cdk import App

from infra.app import add_environment, build
from infra.emulator.cloudformation.resources import DROPPED, KEPT
from infra.emulator.cloudformation.template import EmulationError, Report, emulate
from infra.settings import DEV

PROXY = {"Type": "AWS::RDS::DBProxy", "Properties": {}}
TLS = ":5432/vectorforge?sslmode=verify-full"
VALUES = {"AWS::RDS::DBProxy.Endpoint": "localhost:6543"}


def function(**properties: Any) -> dict[str, Any]:
    return {"Type": "AWS::Lambda::Function", "Properties": properties}


def get(logical_id: str, attribute: str) -> dict[str, Any]:
    return {"Fn::GetAtt": [logical_id, attribute]}


def join(*parts: Any) -> dict[str, Any]:
    return {"Fn::Join": ["", list(parts)]}


def turned(
    resources: Mapping[str, Any], values: Mapping[str, str] = VALUES, **sections: Any
) -> tuple[dict[str, Any], Report]:
    """Return the converted resources of one template, and the messages."""
    templates, report = emulate({"Stack": {"Resources": dict(resources), **sections}}, values)
    return templates["Stack"]["Resources"], report


def test_unlisted_resource_type_raises() -> None:
    with pytest.raises(EmulationError, match=r"AWS::Timestream::Table.*KEPT or DROPPED"):
        turned({"Table": {"Type": "AWS::Timestream::Table"}})


def test_resource_type_tables_are_disjoint() -> None:
    assert not KEPT & set(DROPPED)


def test_unsupported_resources_are_dropped_with_reason() -> None:
    found, report = turned(
        {"Proxy": PROXY, "Vpc": {"Type": "AWS::EC2::VPC"}, "Queue": {"Type": "AWS::SQS::Queue"}}
    )
    assert list(found) == ["Queue"]
    lines = list(report.lines())
    assert lines[:3] == ["kept 1:", "    1 AWS::SQS::Queue", "dropped 2:"]
    assert "    1 AWS::RDS::DBProxy: the database is the embedded PostgreSQL, its proxy PgBouncer" in lines


def test_custom_resources_are_preserved() -> None:
    found, _ = turned({"Schema": {"Type": "Custom::DatabaseSchema", "Properties": {}}})
    assert list(found) == ["Schema"]


def test_reference_is_replaced_by_local_value_with_port() -> None:
    url = join("postgresql://app@", get("Proxy", "Endpoint"), TLS)
    found, _ = turned({"Proxy": PROXY, "Query": function(Environment={"Variables": {"URL": url}})})
    variables = found["Query"]["Properties"]["Environment"]["Variables"]
    assert variables == {"URL": "postgresql://app@localhost:6543/vectorforge?sslmode=verify-full"}


def test_local_value_without_port_preserves_production_port() -> None:
    values = {"AWS::RDS::DBProxy.Endpoint": "localhost"}
    url = join("postgresql://app@", get("Proxy", "Endpoint"), TLS)
    found, _ = turned({"Proxy": PROXY, "Query": function(Description=url)}, values)
    assert found["Query"]["Properties"]["Description"] == f"postgresql://app@localhost{TLS}"


def test_unresolved_parts_of_join_are_preserved() -> None:
    text = join("a", get("Proxy", "Endpoint"), ":5432", {"Ref": "AWS::Region"}, "b", "c")
    found, _ = turned({"Proxy": PROXY, "Query": function(Description=text)})
    assert found["Query"]["Properties"]["Description"] == join(
        "alocalhost:6543", {"Ref": "AWS::Region"}, "bc"
    )


@pytest.mark.parametrize(
    "reference",
    [
        get("Proxy", "DBProxyArn"),
        {"Ref": "Proxy"},
        {"Fn::Select": [6, {"Fn::Split": [":", get("Proxy", "DBProxyArn")]}]},
    ],
)
def test_reference_without_local_value_raises_naming_both(reference: dict[str, Any]) -> None:
    with pytest.raises(EmulationError, match=r"Query \(AWS::Lambda::Function, Stack\).*AWS::RDS::DBProxy"):
        turned({"Proxy": PROXY, "Query": function(Description=reference)})


def test_policy_may_reference_dropped_resource() -> None:
    statement = {"Action": "rds-db:connect", "Resource": get("Proxy", "DBProxyArn")}
    policy = {"Type": "AWS::IAM::Policy", "Properties": {"PolicyDocument": {"Statement": [statement]}}}
    found, _ = turned({"Proxy": PROXY, "Policy": policy})
    assert found["Policy"]["Properties"]["PolicyDocument"]["Statement"][0]["Action"] == "rds-db:connect"


def test_alarms_about_dropped_resources_are_dropped() -> None:
    def alarm(subject: str) -> dict[str, Any]:
        dimension = {"Name": "DBInstanceIdentifier", "Value": {"Ref": subject}}
        return {"Type": "AWS::CloudWatch::Alarm", "Properties": {"Dimensions": [dimension]}}

    def both(*names: str) -> dict[str, Any]:
        rule = join(*(get(name, "Arn") for name in names))
        return {"Type": "AWS::CloudWatch::CompositeAlarm", "Properties": {"AlarmRule": rule}}

    resources = {
        "Instance": {"Type": "AWS::RDS::DBInstance"},
        "Queue": {"Type": "AWS::SQS::Queue"},
        "Full": alarm("Instance"),
        "Late": alarm("Queue"),
        "Either": both("Full", "Late"),
        "Alone": both("Late"),
    }
    found, report = turned(resources)
    assert sorted(found) == ["Alone", "Late", "Queue"]
    assert report.dropped["AWS::CloudWatch::Alarm", "its subject is dropped"] == 1


def test_dependencies_on_dropped_resources_are_removed() -> None:
    resources = {
        "Vpc": {"Type": "AWS::EC2::VPC"},
        "One": {"Type": "AWS::SQS::Queue", "DependsOn": "Vpc"},
        "Two": {"Type": "AWS::SQS::Queue", "DependsOn": ["Vpc", "One"]},
    }
    found, _ = turned(resources)
    assert "DependsOn" not in found["One"]
    assert found["Two"]["DependsOn"] == ["One"]


def test_function_leaves_vpc_and_preserves_other_properties() -> None:
    query = function(
        VpcConfig={"SubnetIds": [{"Ref": "Subnet"}]},
        SnapStart={"ApplyOn": "PublishedVersions"},
        Environment={
            "Variables": {"AWS_USE_DUALSTACK_ENDPOINT": "true", "VECTORFORGE_RESPONSE_MODE": "stream"}
        },
        Timeout=150,
    )
    found, report = turned({"Subnet": {"Type": "AWS::EC2::Subnet"}, "Query": query})
    assert found["Query"]["Properties"] == {
        "Environment": {"Variables": {"VECTORFORGE_RESPONSE_MODE": "stream"}},
        "Timeout": 150,
    }
    assert report.removed.total() == 3
    assert any("without Properties.VpcConfig" in line for line in report.lines())


def test_changed_variables_of_functions_create_other_versions(tmp_path: Path) -> None:
    """Otherwise an alias would stay on the version with the old ones."""
    versions = []
    for number, value in enumerate(("3", "4")):
        app = App(context={"aws:cdk:bundling-stacks": []}, outdir=str(tmp_path / str(number)))
        _, functions = build(app, DEV)
        add_environment(functions, {"VECTORFORGE_MAX_TOP_K": value})
        app.synth()
        resources = json.loads((tmp_path / str(number) / functions.template_file).read_text())["Resources"]
        for made in resources.values():
            if made["Type"] == "AWS::Lambda::Function":
                assert made["Properties"]["Environment"]["Variables"]["VECTORFORGE_MAX_TOP_K"] == value
        versions.append({name for name, made in resources.items() if made["Type"] == "AWS::Lambda::Version"})
    assert not versions[0] & versions[1]


def test_method_without_authorizer_still_requires_key() -> None:
    authorizer = {"Type": "AWS::ApiGateway::Authorizer", "Properties": {}}
    wanting = {"AuthorizationType": "CUSTOM", "AuthorizerId": {"Ref": "Authorizer"}, "ApiKeyRequired": True}
    api = {"Type": "AWS::ApiGateway::RestApi", "Properties": {"ApiKeySourceType": "AUTHORIZER", "Name": "a"}}
    method = {"Type": "AWS::ApiGateway::Method", "Properties": wanting}
    found, report = turned({"Authorizer": authorizer, "Api": api, "Method": method})
    assert found["Method"]["Properties"] == {"AuthorizationType": "NONE", "ApiKeyRequired": True}
    assert found["Api"]["Properties"] == {"Name": "a"}  # keys are in x-api-key, the default
    why = "there are no authorizers: keys come in x-api-key"
    assert f"    1 AWS::ApiGateway::Method without Properties.AuthorizerId: {why}" in report.lines()


def test_streaming_method_becomes_buffered_invocation() -> None:
    def uri(version: str, action: str) -> dict[str, Any]:
        return join(
            "arn:aws:apigateway:",
            {"Ref": "AWS::Region"},
            f":lambda:path/{version}/functions/",
            {"Ref": "Alias"},
            f"/{action}",
        )

    streaming = {
        "Type": "AWS_PROXY",
        "ResponseTransferMode": "STREAM",
        "Uri": uri("2021-11-15", "response-streaming-invocations"),
    }
    method = {
        "Type": "AWS::ApiGateway::Method",
        "Properties": {"Integration": streaming, "ApiKeyRequired": True},
    }
    found, _ = turned({"Alias": {"Type": "AWS::Lambda::Alias"}, "Method": method})
    assert found["Method"]["Properties"] == {
        "Integration": {"Type": "AWS_PROXY", "Uri": uri("2015-03-31", "invocations")},
        "ApiKeyRequired": True,
    }


def test_alias_is_updated_without_code_deploy() -> None:
    alias = {
        "Type": "AWS::Lambda::Alias",
        "UpdatePolicy": {"CodeDeployLambdaAliasUpdate": {"ApplicationName": {"Ref": "Canary"}}},
        "Properties": {"Name": "live"},
    }
    found, _ = turned({"Canary": {"Type": "AWS::CodeDeploy::Application"}, "Alias": alias})
    assert found["Alias"] == {"Type": "AWS::Lambda::Alias", "Properties": {"Name": "live"}}


def test_distributed_map_passes_one_item_at_a_time() -> None:
    task = {"Type": "Task", "Resource": "${Ingest}", "Parameters": {"Items.$": "$.Items", "Text": "$.Items"}}
    processor = {"ProcessorConfig": {"Mode": "DISTRIBUTED"}, "StartAt": "Ingest", "States": {"Ingest": task}}
    objects = {
        "Type": "Map",
        "ToleratedFailurePercentage": 5,
        "ItemBatcher": {"MaxItemsPerBatch": 10},
        "ItemProcessor": processor,
    }
    definition = json.dumps({"StartAt": "Objects", "States": {"Objects": objects}})
    machine = {"Type": "AWS::StepFunctions::StateMachine", "Properties": {"DefinitionString": definition}}
    found, report = turned({"BulkLoad": machine})
    (state,) = json.loads(found["BulkLoad"]["Properties"]["DefinitionString"])["States"].values()
    assert "ItemBatcher" not in state
    assert '"ToleratedFailurePercentage": 5.0' in found["BulkLoad"]["Properties"]["DefinitionString"]
    parameters = state["ItemProcessor"]["States"]["Ingest"]["Parameters"]
    assert parameters == {"Items.$": "States.Array($)", "Text": "$.Items"}
    assert report.removed.total() == 1


def test_outputs_of_dropped_resources_are_dropped() -> None:
    data = {
        "Resources": {"Proxy": PROXY, "Queue": {"Type": "AWS::SQS::Queue"}},
        "Outputs": {
            "Endpoint": {"Value": get("Proxy", "Endpoint"), "Export": {"Name": "Data:Endpoint"}},
            "Group": {"Value": get("Proxy", "GroupId"), "Export": {"Name": "Data:Group"}},
            "Queue": {"Value": get("Queue", "Arn"), "Export": {"Name": "Data:Queue"}},
        },
    }
    query = function(Role={"Fn::ImportValue": "Data:Queue"}, VpcConfig={"Fn::ImportValue": "Data:Group"})
    templates, report = emulate({"Data": data, "App": {"Resources": {"Query": query}}}, VALUES)
    assert list(templates["Data"]["Outputs"]) == ["Queue"]
    assert sorted(report.outputs) == ["Endpoint", "Group"]
    assert templates["App"]["Resources"]["Query"]["Properties"] == {"Role": {"Fn::ImportValue": "Data:Queue"}}


def test_published_value_of_dropped_resource_replaces_parameter() -> None:
    def published(name: str, value: object) -> dict[str, object]:
        return {"Type": "AWS::SSM::Parameter", "Properties": {"Name": name, "Value": value}}

    kind = "AWS::SSM::Parameter::Value<String>"
    data = {"Resources": {"Proxy": PROXY, "Host": published("/x/host", get("Proxy", "Endpoint")),
                          "Other": published("/x/other", "text")}}  # fmt: skip
    parameters = {"Read": {"Type": kind, "Default": "/x/host"}, "Kept": {"Type": kind, "Default": "/x/other"}}
    query = function(Description=join("postgresql://app@", {"Ref": "Read"}, TLS), Role={"Ref": "Kept"})
    app = {"Parameters": parameters, "Resources": {"Query": query}}
    templates, _ = emulate({"Data": data, "App": app}, VALUES)
    assert list(templates["Data"]["Resources"]) == ["Other"]
    assert list(templates["App"]["Parameters"]) == ["Kept"]
    assert templates["App"]["Resources"]["Query"]["Properties"] == {
        "Description": "postgresql://app@localhost:6543/vectorforge?sslmode=verify-full",
        "Role": {"Ref": "Kept"},
    }


def test_input_template_is_not_modified() -> None:
    template = {"Resources": {"Proxy": PROXY, "Query": function(VpcConfig={})}}
    before = json.dumps(template)
    emulate({"Stack": template}, VALUES)
    assert json.dumps(template) == before
