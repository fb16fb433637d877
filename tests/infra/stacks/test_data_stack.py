"""Network and database of both stages, as CloudFormation reads them."""

import dataclasses
from collections.abc import Iterator
from typing import Any, cast

import pytest
from aws_cdk import App
from aws_cdk.assertions import Annotations, Match, Template

from infra.data.data_stack import DataStack
from infra.setting_types import NetworkSettings
from infra.settings import DEV, LEAN, PROD
from infra.stage_settings import StageSettings

NONE = dataclasses.replace(DEV, stage="closed", network=NetworkSettings(egress="none"))

KNOWN = {
    "VECTORFORGE_DEFAULT_EMBEDDING_PROVIDER": "google",
    "VECTORFORGE_DEFAULT_LLM_PROVIDER": "anthropic",
}
"""Vendors that are known to have IPv6 addresses."""


def synthesize(stage: StageSettings) -> Template:
    return Template.from_stack(DataStack(App(), "Data", stage=stage))


@pytest.fixture(scope="module", params=[DEV, PROD, NONE], ids=lambda stage: stage.stage)
def stage(request: pytest.FixtureRequest) -> StageSettings:
    return cast("StageSettings", request.param)


@pytest.fixture(scope="module")
def template(stage: StageSettings) -> Template:
    return synthesize(stage)


def properties(template: Template, kind: str) -> Iterator[dict[str, Any]]:
    for resource in template.find_resources(kind).values():
        yield resource["Properties"]


# F-004
def test_database_proxy_uses_iam_end_to_end_and_requires_tls(template: Template) -> None:
    template.has_resource_properties(
        "AWS::RDS::DBProxy",
        {
            "EngineFamily": "POSTGRESQL",
            "DefaultAuthScheme": "IAM_AUTH",
            "RequireTLS": True,
            "Auth": Match.absent(),
        },
    )
    template.has_resource_properties(
        "AWS::RDS::DBInstance",
        {
            "Engine": "postgres",
            "EnableIAMDatabaseAuthentication": True,
            "ManageMasterUserPassword": True,
            "MasterUserPassword": Match.absent(),
            "StorageEncrypted": True,
            "PubliclyAccessible": False,
        },
    )
    template.has_resource_properties(
        "AWS::RDS::DBParameterGroup",
        {"Parameters": Match.object_like({"rds.force_ssl": "1", "ssl_min_protocol_version": "TLSv1.2"})},
    )


# A minor version here would contradict RDS's automatic upgrades.
def test_engine_version_names_the_major_version_alone(template: Template) -> None:
    template.has_resource_properties(
        "AWS::RDS::DBInstance", {"EngineVersion": "17", "AutoMinorVersionUpgrade": True}
    )
    template.has_resource_properties("AWS::RDS::DBParameterGroup", {"Family": "postgres17"})


def test_parameters_log_slow_statements_without_values(
    template: Template,
) -> None:
    [group] = properties(template, "AWS::RDS::DBParameterGroup")
    parameters = group["Parameters"]
    assert 0 < int(parameters["log_min_duration_statement"]) <= 1000  # ms
    assert parameters["log_parameter_max_length"] == "0"  # otherwise it has texts of documents and queries
    assert parameters["log_lock_waits"] == "1"
    assert parameters["rds.logical_replication"] == "1"  # static: later it would need a restart


def test_backup_and_maintenance_windows_do_not_overlap(template: Template) -> None:
    [instance] = properties(template, "AWS::RDS::DBInstance")
    backup = instance["PreferredBackupWindow"].split("-")
    (day, begin), (last_day, end) = (
        moment.split(":", 1) for moment in instance["PreferredMaintenanceWindow"].split("-")
    )
    assert day == last_day
    assert backup[0] < backup[1] <= begin < end


def test_proxy_target_group_depends_on_security_group_rules(template: Template) -> None:
    [target_group] = template.find_resources("AWS::RDS::DBProxyTargetGroup").values()
    names = _names_of_groups(template)
    for kind, own, other in (
        ("Ingress", "GroupId", "SourceSecurityGroupId"),
        ("Egress", "DestinationSecurityGroupId", "GroupId"),
    ):
        [rule] = [
            key
            for key, found in template.find_resources(f"AWS::EC2::SecurityGroup{kind}").items()
            if names[found["Properties"][own]["Fn::GetAtt"][0]] == "PostgreSQL"
            and names[found["Properties"][other]["Fn::GetAtt"][0]] == "RDS Proxy"
        ]
        assert rule in target_group["DependsOn"]


def test_proxy_role_connects_as_two_database_users_only(template: Template) -> None:
    statements = [
        statement
        for policy in properties(template, "AWS::IAM::Policy")
        for statement in policy["PolicyDocument"]["Statement"]
        if statement["Action"] == "rds-db:connect"
    ]
    assert len(statements) == 1
    users = [resource["Fn::Join"][1][-1] for resource in statements[0]["Resource"]]
    assert users == ["/vectorforge_app", "/vectorforge_log_writer"]


def test_database_accepts_its_clients_only(template: Template) -> None:
    flows = {
        ("Query function", "RDS Proxy"),
        ("Log writer", "RDS Proxy"),
        ("Ingest function", "RDS Proxy"),
        ("RDS Proxy", "PostgreSQL"),
        ("Migrate function", "PostgreSQL"),
    }
    names = _names_of_groups(template)

    def name(reference: dict[str, list[str]]) -> str:
        return names[reference["Fn::GetAtt"][0]]

    inward = [
        (name(rule["SourceSecurityGroupId"]), name(rule["GroupId"]))
        for rule in properties(template, "AWS::EC2::SecurityGroupIngress")
    ]
    outward = [
        (name(rule["GroupId"]), name(rule["DestinationSecurityGroupId"]))
        for rule in properties(template, "AWS::EC2::SecurityGroupEgress")
    ]
    assert sorted(inward) == sorted(outward) == sorted(flows)  # AWS rejects duplicate rules


def test_security_groups_allow_only_https_egress_and_no_other_ingress(
    template: Template, stage: StageSettings
) -> None:
    endpoints = 0
    for group in properties(template, "AWS::EC2::SecurityGroup"):
        inward, outward = group.get("SecurityGroupIngress", []), group.get("SecurityGroupEgress", [])
        if ":" not in group["GroupDescription"]:  # an endpoint's rule, for the VPC's own addresses
            assert [(rule["FromPort"], rule["ToPort"]) for rule in inward] == [(443, 443)]
            assert all("Fn::GetAtt" in rule["CidrIp"] for rule in inward)
            endpoints += 1
            continue
        assert not inward
        for rule in outward:
            if rule.get("CidrIp") == "255.255.255.255/32":  # CDK's notation for no destination
                continue
            assert (rule["FromPort"], rule["ToPort"]) == (443, 443)
            assert "CidrIpv6" not in rule or stage.network.egress == "dual_stack"
    assert endpoints == (2 if stage.network.egress == "none" else 0)


def _names_of_groups(template: Template) -> dict[str, str]:
    """Return the part of each description before the colon, by logical id."""
    groups = template.find_resources("AWS::EC2::SecurityGroup")
    return {key: group["Properties"]["GroupDescription"].partition(":")[0] for key, group in groups.items()}


@pytest.mark.parametrize(
    ("stage", "gateways"),
    [(DEV, (0, 1, 0)), (PROD, (2, 0, 1)), (NONE, (0, 0, 0))],
    ids=["dual_stack", "nat", "none"],
)
def test_network_gateways_follow_stage_egress(stage: StageSettings, gateways: tuple[int, int, int]) -> None:
    template = synthesize(stage)
    nat, egress_only, internet = gateways
    template.resource_count_is("AWS::EC2::NatGateway", nat)
    template.resource_count_is("AWS::EC2::EgressOnlyInternetGateway", egress_only)
    template.resource_count_is("AWS::EC2::InternetGateway", internet)
    for subnet in properties(template, "AWS::EC2::Subnet"):
        assert subnet.get("MapPublicIpOnLaunch", False) is False
    endpoints = [endpoint["VpcEndpointType"] for endpoint in properties(template, "AWS::EC2::VPCEndpoint")]
    interfaces = ["Interface", "Interface"] if stage.network.egress == "none" else []
    assert sorted(endpoints) == ["Gateway", *interfaces]


def test_database_is_snapshotted_and_secrets_follow_keep_data(
    template: Template, stage: StageSettings
) -> None:
    template.has_resource(
        "AWS::RDS::DBInstance", {"DeletionPolicy": "Snapshot", "UpdateReplacePolicy": "Snapshot"}
    )
    removal_policy = "RetainExceptOnCreate" if stage.keep_data else "Delete"
    template.has_resource("AWS::SecretsManager::Secret", {"DeletionPolicy": removal_policy})
    template.has_resource("AWS::Logs::LogGroup", {"DeletionPolicy": removal_policy})


def test_log_groups_exist_before_their_writers(template: Template, stage: StageSettings) -> None:
    groups = {
        group["Properties"]["LogGroupName"]: name
        for name, group in template.find_resources("AWS::Logs::LogGroup").items()
        if "LogGroupName" in group["Properties"]
    }
    writers = {
        "AWS::RDS::DBInstance": [
            f"instance/{stage.prefix}/{kind}" for kind in ("postgresql", "iam-db-auth-error")
        ],
        "AWS::RDS::DBProxy": [f"proxy/{stage.prefix}"],
    }
    for kind, written in writers.items():
        [writer] = template.find_resources(kind).values()
        assert {groups[f"/aws/rds/{name}"] for name in written} <= set(writer["DependsOn"]), kind
    [instance] = properties(template, "AWS::RDS::DBInstance")
    assert instance["EnableCloudwatchLogsExports"] == ["postgresql", "iam-db-auth-error"]


def test_provider_secret_is_created_as_empty_object(template: Template) -> None:
    assert [secret["SecretString"] for secret in properties(template, "AWS::SecretsManager::Secret")] == [
        "{}"
    ]


def test_production_database_is_multi_az_and_development_is_small() -> None:
    production, development = synthesize(PROD), synthesize(DEV)
    production.has_resource_properties(
        "AWS::RDS::DBInstance", {"MultiAZ": True, "DeletionProtection": True, "BackupRetentionPeriod": 14}
    )
    development.has_resource_properties(
        "AWS::RDS::DBInstance", {"MultiAZ": False, "DBInstanceClass": "db.t4g.micro"}
    )


def test_stage_without_proxy_reaches_the_instance_directly() -> None:
    template = synthesize(LEAN)
    for kind in ("DBProxy", "DBProxyTargetGroup"):
        template.resource_count_is(f"AWS::RDS::{kind}", 0)
    template.resource_count_is("AWS::IAM::Role", 0)
    names = _names_of_groups(template)
    flows = sorted(
        (names[rule["SourceSecurityGroupId"]["Fn::GetAtt"][0]], names[rule["GroupId"]["Fn::GetAtt"][0]])
        for rule in properties(template, "AWS::EC2::SecurityGroupIngress")
    )
    clients = ("Ingest function", "Log writer", "Migrate function", "Query function")
    assert flows == [(client, "PostgreSQL") for client in clients]
    [group] = properties(template, "AWS::RDS::DBParameterGroup")
    assert group["Parameters"]["max_connections"] == "112"  # the bound that settings.py checks
    template.has_resource_properties("AWS::RDS::DBInstance", {"EnableIAMDatabaseAuthentication": True})


@pytest.mark.parametrize(
    ("stage", "level", "said"),
    [
        (LEAN, "warning", "api.openai.com has IPv6 addresses"),
        (PROD, "info", r"cost \$73.00 a month. No source"),
        (dataclasses.replace(PROD, environment=KNOWN), "info", '"dual_stack" would be free'),
        (dataclasses.replace(LEAN, environment=KNOWN), None, ""),
    ],
)
def test_synthesis_explains_egress(stage: StageSettings, level: str | None, said: str) -> None:
    stack = DataStack(App(), "Data", stage=stage)
    found = Annotations.from_stack(stack)
    for name, has, has_no in (
        ("warning", found.has_warning, found.has_no_warning),
        ("info", found.has_info, found.has_no_info),
    ):
        if name == level:
            has("*", Match.string_like_regexp(said))
        else:
            has_no("*", Match.any_value())
