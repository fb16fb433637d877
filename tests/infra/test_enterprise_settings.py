"""Settings for accounts with rules of their own: an existing VPC, a permissions boundary."""

import dataclasses

import pytest
from aws_cdk import App
from aws_cdk.assertions import Template

from infra.app import build
from infra.setting_types import ExistingVpc, NetworkSettings, SettingsError
from infra.settings import DEV
from tests.infra.stack_template import StackTemplate, text

BOUNDARY = "arn:aws:iam::123456789012:policy/platform/boundary"
VPC = ExistingVpc(
    "vpc-0a1b2c3d4e5f60718",
    ("eu-central-1a", "eu-central-1b"),
    ("subnet-0000000000000000a", "subnet-0000000000000000b"),
    ("subnet-0000000000000000c", "subnet-0000000000000000d"),
)


@pytest.fixture(scope="module")
def templates(tmp_path_factory: pytest.TempPathFactory) -> dict[str, StackTemplate]:
    stage = dataclasses.replace(
        DEV,
        stage="own",
        network=NetworkSettings(egress="nat", existing=VPC),
        permissions_boundary_arn=BOUNDARY,
    )
    app = App(context={"aws:cdk:bundling-stacks": []}, outdir=str(tmp_path_factory.mktemp("own")))
    data, functions = build(app, stage)
    return {
        name: StackTemplate(Template.from_stack(stack).to_json())
        for name, stack in (("Data", data), ("App", functions))
    }


def test_existing_vpc_is_used_and_not_changed(templates: dict[str, StackTemplate]) -> None:
    kinds = {resource["Type"] for resource in templates["Data"].resources.values()}
    created = {"VPC", "Subnet", "NatGateway", "VPCEndpoint", "Route"}
    assert not kinds & {f"AWS::EC2::{kind}" for kind in created}
    [group] = templates["Data"].of_kind("AWS::RDS::DBSubnetGroup").values()
    assert group["SubnetIds"] == list(VPC.database_subnets)
    for security in templates["Data"].of_kind("AWS::EC2::SecurityGroup").values():
        assert security["VpcId"] == VPC.id
    functions = templates["App"].of_kind("AWS::Lambda::Function")
    assert functions["MigrationMigrateFunction"]["VpcConfig"]["SubnetIds"] == list(VPC.function_subnets)
    host = templates["App"].of_kind("AWS::EC2::LaunchTemplate")["OperatorTemplate"]["LaunchTemplateData"]
    assert text(host["NetworkInterfaces"][0]["SubnetId"]) == VPC.function_subnets[0]


def test_every_role_has_the_boundary(templates: dict[str, StackTemplate]) -> None:
    roles = [role for template in templates.values() for role in template.of_kind("AWS::IAM::Role").values()]
    assert len(roles) > 8
    assert {role.get("PermissionsBoundary") for role in roles} == {BOUNDARY}


def test_stages_have_no_boundary_by_default(app_templates: dict[str, StackTemplate]) -> None:
    for role in app_templates["prod"].of_kind("AWS::IAM::Role").values():
        assert "PermissionsBoundary" not in role


@pytest.mark.parametrize(
    ("network", "message"),
    [
        ({"egress": "dual_stack"}, "egress must be"),
        ({"egress": "nat", "nat_gateways": 1}, "without nat_gateways"),
        ({"egress": "nat", "flow_logs": True}, "flow_logs"),
    ],
)
def test_settings_of_own_vpc_contradict_existing_one(network: dict[str, object], message: str) -> None:
    settings = dataclasses.replace(NetworkSettings(egress="nat", existing=VPC), **network)  # type: ignore[arg-type] # of a test's table
    with pytest.raises(SettingsError, match=message):
        dataclasses.replace(DEV, network=settings)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"id": "10.0.0.0/16"}, "id of a VPC"),
        ({"function_subnets": ("subnet-0000000000000000a",) * 2}, "function_subnets must have 2"),
        ({"database_subnets": ("subnet-0000000000000000c", "database")}, "not the id of a subnet"),
    ],
)
def test_malformed_existing_vpc_is_rejected(change: dict[str, object], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        dataclasses.replace(VPC, **change)  # type: ignore[arg-type] # of a test's table


def test_malformed_boundary_is_rejected() -> None:
    with pytest.raises(SettingsError, match="permissions_boundary_arn"):
        dataclasses.replace(DEV, permissions_boundary_arn="boundary")
