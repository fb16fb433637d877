"""Permissions of log writer, ingest function, migrate function and bulk load, by statement."""

import pytest

from infra.settings import STAGES
from tests.infra.stack_template import StackTemplate, as_list, text

_INTERFACES = {
    "ec2:CreateNetworkInterface",
    "ec2:DeleteNetworkInterface",
    "ec2:DescribeNetworkInterfaces",
    "ec2:DescribeSubnets",
    "ec2:AssignPrivateIpAddresses",
    "ec2:UnassignPrivateIpAddresses",
}
_TRACES = {"xray:PutTraceSegments", "xray:PutTelemetryRecords"}
_CONSUMES = {
    "sqs:ReceiveMessage",
    "sqs:DeleteMessage",
    "sqs:GetQueueAttributes",
    "sqs:ChangeMessageVisibility",
}
_LOG_DELIVERY = {
    "logs:CreateLogDelivery",
    "logs:GetLogDelivery",
    "logs:UpdateLogDelivery",
    "logs:DeleteLogDelivery",
    "logs:ListLogDeliveries",
    "logs:PutResourcePolicy",
    "logs:DescribeResourcePolicies",
    "logs:DescribeLogGroups",
}
"""https://docs.aws.amazon.com/step-functions/latest/dg/cw-logs.html: no resource can be named."""
_IMAGE = "parameter/aws/service/ami-amazon-linux-latest/al2023-ami-kernel-default-arm64"
_HERE = "AWS::Region:AWS::AccountId"
_PROXY, _INSTANCE = "database.proxyid", "database.resourceid"


@pytest.fixture(scope="module", params=sorted(STAGES))
def stage(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def server(stage: str) -> str:
    """Return the resource that the app's roles log in to."""
    return _PROXY if STAGES[stage].database.proxy else _INSTANCE


@pytest.fixture(scope="module")
def template(stage: str, app_templates: dict[str, StackTemplate]) -> StackTemplate:
    return app_templates[stage]


def _function(logs: str, *own: tuple[str, str]) -> set[tuple[str, str]]:
    """Return every function's permissions: write its log, be attached to the VPC, send traces."""
    anywhere = {(action, "*") for action in _INTERFACES | _TRACES}
    log = {(f"logs:{action}", f"{logs}.Arn") for action in ("CreateLogStream", "PutLogEvents")}
    return anywhere | log | set(own)


# F-003
def test_log_writer_role_reads_queue_and_overflow_and_writes_logs(
    template: StackTemplate, server: str
) -> None:
    assert template.permissions("QueryLogWriterRole") == _function(
        "QueryLogWriterLogs",
        *((action, "QueryLogRecordsQueue.Arn") for action in _CONSUMES),
        ("s3:GetObject", "QueryLogOverflow.Arn/query-logs/*"),
        ("s3:PutObject", "QueryLogOverflow.Arn/query-logs/*"),
        ("rds-db:connect", f"arn:AWS::Partition:rds-db:{_HERE}:dbuser:{server}/vectorforge_log_writer"),
    )


def test_ingest_role_reads_uploads_and_provider_keys(template: StackTemplate, server: str) -> None:
    assert template.permissions("IngestionIngestRole") == _function(
        "IngestionIngestLogs",
        *((action, "IngestionJobsQueue.Arn") for action in _CONSUMES | {"sqs:SendMessage"}),
        ("s3:GetObject", "IngestionUploads.Arn/*"),
        ("s3:DeleteObject", "IngestionUploads.Arn/*"),
        ("s3:ListBucket", "IngestionUploads.Arn"),
        ("s3:PutObject", "IngestionOriginals.Arn/*"),
        ("s3:DeleteObject", "IngestionOriginals.Arn/*"),
        ("s3:ListBucket", "IngestionOriginals.Arn"),
        ("rds-db:connect", f"arn:AWS::Partition:rds-db:{_HERE}:dbuser:{server}/vectorforge_app"),
        ("secretsmanager:GetSecretValue", "ProviderKeysSecret"),
    )


def test_migrate_role_connects_as_owner_and_starts_operator_hosts(template: StackTemplate) -> None:
    assert template.permissions("MigrationMigrateRole") == _function(
        "MigrationMigrateLogs",
        ("secretsmanager:GetSecretValue", "database.ownersecret"),
        (
            "rds-db:connect",
            f"arn:AWS::Partition:rds-db:{_HERE}:dbuser:database.resourceid/vectorforge_owner",
        ),
        ("ec2:RunInstances", "*"),  # with the launch template only, see test_operator_host
        ("ec2:CreateTags", "*"),
        ("ec2:DescribeInstances", "*"),
        ("ssm:GetParameters", f"arn:AWS::Partition:ssm:AWS::Region::{_IMAGE}"),
        ("iam:PassRole", "OperatorRole.Arn"),
    )


def test_bulk_load_role_lists_uploads_invokes_function_and_writes_reports(
    template: StackTemplate, stage: str
) -> None:
    machine = f"arn:AWS::Partition:states:{_HERE}"
    name = f"vectorforge-{stage}-bulk-load"
    traces = _TRACES | {"xray:GetSamplingRules", "xray:GetSamplingTargets"}
    assert template.permissions("BulkLoadRole") == {
        *((action, "*") for action in traces | _LOG_DELIVERY),
        ("s3:ListBucket", "IngestionUploads.Arn"),
        ("lambda:InvokeFunction", "IngestionIngestAlias"),
        ("s3:PutObject", "BulkLoadReports.Arn/reports/*"),
        ("s3:GetObject", "BulkLoadReports.Arn/reports/*"),
        ("s3:ListMultipartUploadParts", "BulkLoadReports.Arn/reports/*"),
        ("s3:AbortMultipartUpload", "BulkLoadReports.Arn/reports/*"),
        ("states:StartExecution", f"{machine}:stateMachine:{name}"),
        ("states:DescribeExecution", f"{machine}:execution:{name}:*"),
        ("states:StopExecution", f"{machine}:execution:{name}:*"),
        ("states:RedriveExecution", f"{machine}:execution:{name}/Objects:*"),
    }


def test_roles_trust_one_service_and_actions_have_no_wildcard(template: StackTemplate) -> None:
    roles = template.of_kind("AWS::IAM::Role")
    services = {
        "QueryLogWriterRole": "lambda",
        "IngestionIngestRole": "lambda",
        "MigrationMigrateRole": "lambda",
        "BulkLoadRole": "states",
    }
    for role, service in services.items():
        (statement,) = roles[role]["AssumeRolePolicyDocument"]["Statement"]
        assert statement["Principal"] == {"Service": f"{service}.amazonaws.com"}
        for own in template.statements(role):
            assert not any("*" in action for action in as_list(own["Action"]))
    confused = roles["BulkLoadRole"]["AssumeRolePolicyDocument"]["Statement"][0]["Condition"]
    assert confused == {"StringEquals": {"aws:SourceAccount": {"Ref": "AWS::AccountId"}}}


def test_function_code_is_denied_vpc_interface_actions(template: StackTemplate, stage: str) -> None:
    for role, function in (
        ("QueryLogWriterRole", "log-writer"),
        ("IngestionIngestRole", "ingest"),
        ("MigrationMigrateRole", "migrate"),
    ):
        (refused,) = [s for s in template.statements(role) if s["Effect"] == "Deny"]
        assert set(refused["Action"]) == _INTERFACES
        arn = text(refused["Condition"]["ArnEquals"]["lambda:SourceFunctionArn"])
        assert arn.endswith(f":function:vectorforge-{stage}-{function}")
