"""Settings for accounts with rules of their own: VPC, permissions boundary, domain, backups."""

import dataclasses
import json
from pathlib import Path

import pytest
from aws_cdk import App
from aws_cdk.assertions import Template

from infra.costs.bill import idle_bill
from infra.data.data_stack import DataStack
from infra.monitoring.backup_notices import NOTICES
from infra.setting_types import (
    BackupSettings,
    CustomDomain,
    DomainSettings,
    ExistingVpc,
    NetworkSettings,
    SettingsError,
)
from infra.settings import DEV
from tests.infra.stack_template import StackTemplate, text
from tests.infra.synthesized import synthesize

BOUNDARY = "arn:aws:iam::123456789012:policy/platform/boundary"
VPC = ExistingVpc(
    "vpc-0a1b2c3d4e5f60718",
    ("eu-central-1a", "eu-central-1b"),
    ("subnet-0000000000000000a", "subnet-0000000000000000b"),
    ("subnet-0000000000000000c", "subnet-0000000000000000d"),
)
DOMAIN = DomainSettings("rag.example.com", "Z0123456789ABC", "example.com")
CERTIFICATE = "arn:aws:acm:eu-central-1:123456789012:certificate/11111111-2222-3333"
VAULT = "arn:aws:backup:eu-west-1:123456789012:backup-vault:vectorforge-copies"

OWN = dataclasses.replace(
    DEV,
    stage="own",
    network=NetworkSettings(egress="nat", existing=VPC),
    permissions_boundary_arn=BOUNDARY,
    domain=DOMAIN,
    backup=BackupSettings(VAULT, keep_days=14, copy_keep_days=90, restore_test=True),
)
AURORA = dataclasses.replace(DEV.database, engine="aurora")


@pytest.fixture(scope="module")
def templates(tmp_path_factory: pytest.TempPathFactory) -> dict[str, StackTemplate]:
    return synthesize(OWN, tmp_path_factory.mktemp("own"))


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


def test_readers_endpoint_is_in_database_subnets_of_existing_vpc() -> None:
    database = dataclasses.replace(AURORA, readers=1)
    stack = DataStack(App(), "Data", stage=dataclasses.replace(OWN, database=database))
    template = StackTemplate(Template.from_stack(stack).to_json())
    [endpoint] = template.of_kind("AWS::RDS::DBProxyEndpoint").values()
    assert endpoint["VpcSubnetIds"] == list(VPC.database_subnets)


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


def test_domain_leads_to_api_by_both_ip_versions(templates: dict[str, StackTemplate]) -> None:
    app = templates["App"]
    [domain] = app.of_kind("AWS::ApiGateway::DomainName").values()
    assert domain["DomainName"] == DOMAIN.name
    assert domain["EndpointConfiguration"] == {"Types": ["REGIONAL"], "IpAddressType": "dualstack"}
    api = app.of_kind("AWS::ApiGateway::RestApi")["RestApi"]
    for setting in ("SecurityPolicy", "EndpointAccessMode"):
        assert domain[setting] == api[setting]
    [mapping] = app.of_kind("AWS::ApiGateway::BasePathMapping").values()
    assert "BasePath" not in mapping
    assert (text(mapping["RestApiId"]), text(mapping["Stage"])) == ("RestApi", "RestApiDeploymentStageown")
    records = app.of_kind("AWS::Route53::RecordSet").values()
    assert {record["Type"] for record in records} == {"A", "AAAA"}
    for record in records:
        assert (record["Name"], record["HostedZoneId"]) == (f"{DOMAIN.name}.", DOMAIN.hosted_zone_id)
        assert text(record["AliasTarget"]["DNSName"]) == "RestApiDomain.RegionalDomainName"
    outputs = app.outputs
    assert outputs["ApiUrl"]["Value"] == "https://rag.example.com"
    assert outputs["ApiExample"]["Value"].startswith("curl -N https://rag.example.com/v1/rag/query ")


def test_certificate_is_created_in_zone_unless_given(
    templates: dict[str, StackTemplate], tmp_path: Path
) -> None:
    [certificate] = templates["App"].of_kind("AWS::CertificateManager::Certificate").values()
    assert certificate["ValidationMethod"] == "DNS"
    assert certificate["DomainValidationOptions"] == [
        {"DomainName": DOMAIN.name, "HostedZoneId": DOMAIN.hosted_zone_id}
    ]
    given = dataclasses.replace(DEV, domain=dataclasses.replace(DOMAIN, certificate_arn=CERTIFICATE))
    app = synthesize(given, tmp_path)["App"]
    assert not app.of_kind("AWS::CertificateManager::Certificate")
    [domain] = app.of_kind("AWS::ApiGateway::DomainName").values()
    assert domain["RegionalCertificateArn"] == CERTIFICATE


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"name": "Rag.example.com"}, "domain.name must be a lower-case"),
        ({"name": "rag.example.org"}, "must be in the zone"),
        ({"name": "notexample.com"}, "must be in the zone"),
        ({"zone_name": "com."}, "domain.zone_name"),
        ({"hosted_zone_id": "/hostedzone/Z1"}, "hosted_zone_id"),
        ({"certificate_arn": "11111111-2222-3333"}, "certificate_arn"),
    ],
)
def test_malformed_domain_is_rejected(change: dict[str, str], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        dataclasses.replace(DEV, domain=dataclasses.replace(DOMAIN, **change))


def test_domain_without_rest_api_is_rejected() -> None:
    query = dataclasses.replace(DEV.query, max_concurrency=50)
    with pytest.raises(SettingsError, match="domain needs the REST API"):
        dataclasses.replace(DEV, front_door="function_url", query=query, domain=DOMAIN)
    same = CustomDomain(DOMAIN.name, CERTIFICATE.replace("eu-central-1", "us-east-1"))
    with pytest.raises(SettingsError, match="different names"):
        dataclasses.replace(DEV, front_door="both", query=query, domain=DOMAIN, cloudfront_domain=same)


@pytest.mark.parametrize("engine", ["rds", "aurora"])
def test_plan_backs_up_database_daily_and_copies_to_other_region(
    engine: str, templates: dict[str, StackTemplate], tmp_path: Path
) -> None:
    aurora = dataclasses.replace(OWN, database=AURORA)
    data = (templates if engine == "rds" else synthesize(aurora, tmp_path))["Data"]
    [vault] = data.of_kind("AWS::Backup::BackupVault")
    assert data.resources[vault]["DeletionPolicy"] == "Retain"
    [plan] = data.of_kind("AWS::Backup::BackupPlan").values()
    [rule] = plan["BackupPlan"]["BackupPlanRule"]
    assert text(rule["TargetBackupVault"]) == f"{vault}.BackupVaultName"
    assert rule["ScheduleExpression"] == "cron(0 5 * * ? *)"
    assert rule["Lifecycle"] == {"DeleteAfterDays": 14}
    assert rule["CopyActions"] == [{"DestinationBackupVaultArn": VAULT, "Lifecycle": {"DeleteAfterDays": 90}}]
    [selection] = data.of_kind("AWS::Backup::BackupSelection").values()
    [resource] = selection["BackupSelection"]["Resources"]
    kind, name = ("db", "DatabaseInstance") if engine == "rds" else ("cluster", "DatabaseCluster")
    assert text(resource).endswith(f":{kind}:{name}")
    role = text(selection["BackupSelection"]["IamRoleArn"]).removesuffix(".Arn")
    [policy] = data.resources[role]["Properties"]["ManagedPolicyArns"]
    assert text(policy).endswith("/AWSBackupServiceRolePolicyForBackup")


@pytest.mark.parametrize("engine", ["rds", "aurora"])
def test_restore_test_restores_newest_backup_monthly(engine: str) -> None:
    stage = OWN if engine == "rds" else dataclasses.replace(OWN, database=AURORA)
    data = StackTemplate(Template.from_stack(DataStack(App(), "Data", stage=stage)).to_json())
    [plan] = data.of_kind("AWS::Backup::RestoreTestingPlan").values()
    assert plan["RestoreTestingPlanName"] == "vectorforge_own"
    assert plan["ScheduleExpression"] == "cron(0 11 1 * ? *)"  # six hours after the backup
    chosen = plan["RecoveryPointSelection"]
    assert (chosen["Algorithm"], chosen["SelectionWindowDays"]) == ("LATEST_WITHIN_WINDOW", 14)
    assert text(chosen["IncludeVaults"][0]) == "BackupVault.BackupVaultArn"
    [selection] = data.of_kind("AWS::Backup::RestoreTestingSelection").values()
    assert selection["ProtectedResourceType"] == ("RDS" if engine == "rds" else "Aurora")
    [database] = selection["ProtectedResourceArns"]
    kind, name = ("db", "DatabaseInstance") if engine == "rds" else ("cluster", "DatabaseCluster")
    assert text(database).endswith(f":{kind}:{name}")
    metadata = {key: text(value) for key, value in selection["RestoreMetadataOverrides"].items()}
    [subnets] = data.of_kind("AWS::RDS::DBSubnetGroup")
    assert metadata == {
        "dbSubnetGroupName": subnets,
        "vpcSecurityGroupIds": '["DatabaseInstanceGroup.GroupId"]',
        "enableIamDatabaseAuthentication": "true",
    }


def test_failed_backups_are_published_and_restored_instance_is_read(
    templates: dict[str, StackTemplate],
) -> None:
    app = templates["App"]
    rules = {
        rule["Name"].removeprefix("vectorforge-own-"): rule
        for rule in app.of_kind("AWS::Events::Rule").values()
        if rule.get("EventPattern")
    }
    assert set(rules) == {*NOTICES, "restored"}
    failed = rules["backup-failed"]["EventPattern"]
    assert failed["detail-type"] == ["Backup Job State Change", "Copy Job State Change"]
    assert {"FAILED", "EXPIRED"} <= set(failed["detail"]["state"])
    [database] = failed["detail"]["resourceArn"]
    assert text(database).endswith(":db:vectorforge-own")
    role = "BackupNoticesRole"
    assert ("sns:Publish", "AlarmsTopic") in app.permissions(role)
    for name in NOTICES:
        [target] = rules[name]["Targets"]
        assert (text(target["Arn"]), text(target["RoleArn"])) == ("AlarmsTopic", f"{role}.Arn")
        assert f"runbook.md#{name}" in target["InputTransformer"]["InputTemplate"]
    [target] = rules["restored"]["Targets"]
    assert text(target["Arn"]) == "MigrationMigrateAlias"
    assert json.loads(target["InputTransformer"]["InputTemplate"].replace("<", '"').replace(">", '"')) == {
        "action": "restored",
        "instance": "detail-createdResourceArn",
    }
    owner = {resource for action, resource in app.permissions("MigrationMigrateRole") if "rds-db" in action}
    assert any(resource.endswith(":dbuser:*/vectorforge_owner") for resource in owner)


def test_stage_without_restore_test_restores_nothing(
    app_templates: dict[str, StackTemplate], data_templates: dict[str, StackTemplate]
) -> None:
    for template in (app_templates["prod"], data_templates["prod"]):
        kinds = {resource["Type"] for resource in template.resources.values()}
        assert not {kind for kind in kinds if kind.startswith("AWS::Backup::")}
        rules = template.of_kind("AWS::Events::Rule").values()
        assert not [rule for rule in rules if "EventPattern" in rule]


def test_vault_of_each_stack_has_own_name(templates: dict[str, StackTemplate]) -> None:
    [vault] = templates["Data"].of_kind("AWS::Backup::BackupVault").values()
    assert text(vault["BackupVaultName"]).startswith("vectorforge-own-AWS::StackId")


def test_bill_has_backups_and_copies() -> None:
    plain = {line.what for line in idle_bill(DEV)}
    rds = {line.what: line.dollars for line in idle_bill(OWN)}
    aurora = dataclasses.replace(DEV, database=AURORA, backup=BackupSettings())
    without_copies = {line.what: line.dollars for line in idle_bill(aurora)}
    assert not plain & {"backups, first", "their copies, first"}
    assert rds["backups, first"] == rds["their copies, first"] == pytest.approx(20 * 0.095)
    assert rds["restore test"] == 1.5
    assert rds["restored instance"] == pytest.approx(3 * 0.016)
    assert "restore test" not in without_copies
    assert without_copies["backups, first"] == pytest.approx(20 * 0.021)
    assert "their copies, first" not in without_copies


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"copy_vault_arn": "vectorforge-copies"}, "copy_vault_arn"),
        ({"keep_days": 0}, "keep_days must be at least 1, not 0"),
        ({"copy_keep_days": 36_501}, "copy_keep_days must be at most 36500"),
        ({"hour_utc": 24}, "backup.hour_utc must be at most 23"),
    ],
)
def test_malformed_backup_is_rejected(change: dict[str, object], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        dataclasses.replace(DEV, backup=BackupSettings(**change))  # type: ignore[arg-type] # of a test's table


@pytest.mark.parametrize(
    ("hour", "window"), [(0, "backup_window"), (2, "backup_window"), (3, "maintenance_window")]
)
def test_backup_in_or_before_windows_is_rejected(hour: int, window: str) -> None:
    with pytest.raises(SettingsError, match=f"database.{window}"):
        dataclasses.replace(DEV, backup=BackupSettings(hour_utc=hour))
    for free in (4, 23):
        dataclasses.replace(DEV, backup=BackupSettings(hour_utc=free))


def test_backup_before_window_that_begins_at_midnight_is_rejected() -> None:
    database = dataclasses.replace(DEV.database, backup_window="00:15-00:45")
    with pytest.raises(SettingsError, match=r"database\.backup_window"):
        dataclasses.replace(DEV, database=database, backup=BackupSettings(hour_utc=23))
