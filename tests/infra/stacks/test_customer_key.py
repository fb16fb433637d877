"""A customer managed key for all data of a stage, and the roles that use it."""

import dataclasses

import pytest
from aws_cdk import App
from aws_cdk.assertions import Template

from infra.costs.bill import idle_bill
from infra.data.data_stack import DataStack
from infra.setting_types import SettingsError
from infra.settings import DEV, PROD
from tests.infra.stack_template import StackTemplate
from tests.infra.synthesized import synthesize

KEY = "arn:aws:kms:eu-central-1:123456789012:key/11111111-2222-3333-4444-555555555555"
KEYED = dataclasses.replace(PROD, stage="keyed", kms_key_arn=KEY)
ENCRYPTED: dict[str, tuple[str, ...]] = {
    "AWS::RDS::DBInstance": ("KmsKeyId", "PerformanceInsightsKMSKeyId", "MasterUserSecret.KmsKeyId"),
    "AWS::SQS::Queue": ("KmsMasterKeyId",),
    "AWS::S3::Bucket": (
        _BUCKET := "BucketEncryption.ServerSideEncryptionConfiguration.0"
        ".ServerSideEncryptionByDefault.KMSMasterKeyID",
    ),
    "AWS::Logs::LogGroup": ("KmsKeyId",),
    "AWS::SecretsManager::Secret": ("KmsKeyId",),
    "AWS::SNS::Topic": ("KmsMasterKeyId",),
}
"""Resource type -> paths of its properties that name the key."""
ACCESS_LOGS = "AccessLogsBucket"
"""Bucket of access logs, to which S3 delivers only without a customer managed key."""
USES = {
    "s3:GetObject": {"kms:Decrypt"},
    "s3:PutObject": {"kms:Decrypt", "kms:GenerateDataKey"},
    "secretsmanager:GetSecretValue": {"kms:Decrypt"},
    "sqs:ReceiveMessage": {"kms:Decrypt"},
    "sqs:SendMessage": {"kms:Decrypt", "kms:GenerateDataKey"},
}


@pytest.fixture(scope="module")
def keyed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, StackTemplate]:
    return synthesize(KEYED, tmp_path_factory.mktemp("keyed"))


def at(properties: object, path: str) -> object:
    """Return the value at a path such as ``Rules.0.Id``; None if there is none."""
    for part in path.split("."):
        match properties:
            case dict():
                properties = properties.get(part)
            case list():
                properties = properties[int(part)]
            case _:
                return None
    return properties


def test_every_resource_with_data_names_the_key(keyed: dict[str, StackTemplate]) -> None:
    found = {
        (kind, name, path): at(properties, path)
        for template in keyed.values()
        for kind, paths in ENCRYPTED.items()
        for name, properties in template.of_kind(kind).items()
        for path in paths
    }
    assert {kind for kind, _, _ in found} == set(ENCRYPTED)
    assert {place for place, key in found.items() if key != KEY} == {
        ("AWS::S3::Bucket", ACCESS_LOGS, _BUCKET)
    }
    assert not any(template.of_kind("AWS::KMS::Key") for template in keyed.values())


def test_aurora_names_the_key() -> None:
    database = dataclasses.replace(DEV.database, engine="aurora", performance_insights=True)
    stack = DataStack(App(), "Data", stage=dataclasses.replace(KEYED, database=database))
    template = StackTemplate(Template.from_stack(stack).to_json())
    [cluster] = template.of_kind("AWS::RDS::DBCluster").values()
    [writer] = template.of_kind("AWS::RDS::DBInstance").values()
    assert (cluster["KmsKeyId"], cluster["MasterUserSecret"]["KmsKeyId"]) == (KEY, KEY)
    assert writer["PerformanceInsightsKMSKeyId"] == KEY


def test_every_role_may_use_the_key_as_its_actions_need_it(keyed: dict[str, StackTemplate]) -> None:
    checked = set()
    for template in keyed.values():
        for role, resource in template.resources.items():
            if resource["Type"] != "AWS::IAM::Role" or "ManagedPolicyArns" in resource["Properties"]:
                continue
            allowed = template.permissions(role)
            plain = {action for action, on in allowed if "cdk-hnb659fds" not in on}
            needed = {use for action in plain for use in USES.get(action, ())}
            assert {action for action, on in allowed if on == KEY} == needed, role
            checked |= {role} if needed else set()
    assert checked >= {
        "QueryFunctionRole",
        "QueryLogWriterRole",
        "IngestionIngestRole",
        "MigrationMigrateRole",
        "BulkLoadRole",
        "OperatorRole",
    }


def test_stages_have_no_customer_key_by_default(
    app_templates: dict[str, StackTemplate], data_templates: dict[str, StackTemplate]
) -> None:
    for template in (app_templates["prod"], data_templates["prod"]):
        for kind, paths in ENCRYPTED.items():
            for properties in template.of_kind(kind).values():
                keys = [at(properties, path) for path in paths if kind != "AWS::SNS::Topic"]
                assert not any(keys)


def test_customer_key_replaces_key_of_topic_on_the_bill() -> None:
    assert "key of the alarms' topic" in {line.what for line in idle_bill(PROD)}
    assert "key of the alarms' topic" not in {line.what for line in idle_bill(KEYED)}


@pytest.mark.parametrize("arn", ["alias/vectorforge", KEY.replace(":key/", ":alias/")])
def test_malformed_key_is_rejected(arn: str) -> None:
    with pytest.raises(SettingsError, match="kms_key_arn must be the ARN of a key"):
        dataclasses.replace(DEV, kms_key_arn=arn)
