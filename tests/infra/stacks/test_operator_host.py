"""The launch template of hosts for operators and long work, and who may start them."""

import dataclasses
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from aws_cdk import App

from infra.app import build
from infra.setting_types import NetworkSettings
from infra.settings import DEV
from tests.infra.stack_template import StackTemplate, text

ROOT = Path(__file__).parents[3]


@pytest.fixture(params=["dev", "prod"])
def template(request: pytest.FixtureRequest, app_templates: dict[str, StackTemplate]) -> StackTemplate:
    return app_templates[request.param]


def launched(template: StackTemplate) -> dict[str, Any]:
    data: dict[str, Any] = template.of_kind("AWS::EC2::LaunchTemplate")["OperatorTemplate"][
        "LaunchTemplateData"
    ]
    return data


def script(template: StackTemplate) -> str:
    return text(launched(template)["UserData"]["Fn::Base64"])


def test_host_is_private_encrypted_and_ends_when_it_powers_off(template: StackTemplate) -> None:
    data = launched(template)
    assert data["InstanceInitiatedShutdownBehavior"] == "terminate"
    assert data["MetadataOptions"]["HttpTokens"] == "required"
    [interface] = data["NetworkInterfaces"]
    assert interface["AssociatePublicIpAddress"] is False
    assert [text(group) for group in interface["Groups"]] == ["DatabaseMigrateGroup.GroupId"]
    [disk] = data["BlockDeviceMappings"]
    assert disk["Ebs"]["Encrypted"] is True
    assert disk["Ebs"]["DeleteOnTermination"] is True
    assert not template.of_kind("AWS::EC2::Instance")  # idle, there is none


def test_host_and_volume_have_tags_of_stage(template: StackTemplate) -> None:
    role = template.of_kind("AWS::IAM::Role")["OperatorRole"]
    tags = {tag["Key"]: tag["Value"] for tag in role["Tags"]}
    specifications = launched(template)["TagSpecifications"]
    assert [one["ResourceType"] for one in specifications] == ["instance", "volume"]
    for one in specifications:
        assert tags.items() <= {tag["Key"]: tag["Value"] for tag in one["Tags"]}.items()


def test_user_data_is_a_script_with_all_values_and_no_secret(template: StackTemplate) -> None:
    written = script(template)
    assert subprocess.run(["bash", "-n"], input=written, text=True, check=False).returncode == 0
    assert not re.search(r"@[A-Z_]+@", written)
    assert "VECTORFORGE_MIGRATOR_SECRET_ID" in written
    assert 'shutdown --poweroff "+$minutes"' in written
    assert len(written) < 16_384  # https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/user-data.html


def test_only_hosts_without_nat_use_dual_stack_endpoints(app_templates: dict[str, StackTemplate]) -> None:
    assert "export AWS_USE_DUALSTACK_ENDPOINT" in script(app_templates["dev"])
    assert "export AWS_USE_DUALSTACK_ENDPOINT" not in script(app_templates["prod"])
    assert launched(app_templates["dev"])["NetworkInterfaces"][0]["Ipv6AddressCount"] == 1
    assert "Ipv6AddressCount" not in launched(app_templates["prod"])["NetworkInterfaces"][0]


def test_migrate_function_starts_hosts_of_this_template_only(template: StackTemplate) -> None:
    statements = {
        statement["Action"]: statement
        for statement in template.statements("MigrationMigrateRole")
        if isinstance(statement["Action"], str)
    }
    condition = statements["ec2:RunInstances"]["Condition"]
    assert text(condition["ArnEquals"]["ec2:LaunchTemplate"]).endswith("launch-template/OperatorTemplate")
    assert condition["Bool"] == {"ec2:IsLaunchTemplateResource": "true"}
    assert text(statements["iam:PassRole"]["Resource"]) == "OperatorRole.Arn"
    environment = template.of_kind("AWS::Lambda::Function")["MigrationMigrateFunction"]["Environment"]
    assert text(environment["Variables"]["VECTORFORGE_OPERATOR_TEMPLATE"]) == "OperatorTemplate"


def test_host_role_reads_tools_and_logs_in(template: StackTemplate) -> None:
    actions = {action for action, _ in template.permissions("OperatorRole")}
    assert {
        "rds-db:connect",
        "secretsmanager:GetSecretValue",
        "lambda:InvokeFunction",
        "s3:GetObject",
    } <= actions
    assert not {action for action in actions if action.startswith(("ec2:", "iam:"))}


def test_stage_without_egress_has_no_hosts(tmp_path: Path) -> None:
    stage = dataclasses.replace(DEV, stage="closed", network=NetworkSettings(egress="none"))
    app = App(context={"aws:cdk:bundling-stacks": []}, outdir=str(tmp_path))
    _, functions = build(app, stage)
    assert functions.hosts is None


@pytest.mark.parametrize("name", ["host/start", "host/task", "user_data.sh"])
def test_scripts_parse(name: str) -> None:
    subprocess.run(["bash", "-n", str(ROOT / "infra" / "bundling" / name)], check=True)
