"""Invariants of every resource of every template."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.infra.conftest import VARIANTS
from tests.infra.stack_template import StackTemplate, as_list, text
from vectorforge.config import known_variables

WHOLE_SERVICE = {
    "ec2:AssignPrivateIpAddresses": "Lambda's network interfaces have no names before they exist",
    "ec2:CreateNetworkInterface": "the same",
    "ec2:DeleteNetworkInterface": "the same",
    "ec2:DescribeNetworkInterfaces": "takes no resource",
    "ec2:CreateTags": "of a host that is being started: an instance and its disk have no id before",
    "ec2:DescribeInstances": "takes no resource",
    "ec2:DescribeSubnets": "takes no resource",
    "ec2:RunInstances": "limited to one launch template by a condition",
    "ec2:UnassignPrivateIpAddresses": "as for creating them",
    "logs:CreateLogDelivery": "takes no resource; Step Functions' logs",
    "logs:DeleteLogDelivery": "the same",
    "logs:DescribeLogGroups": "the same",
    "logs:DescribeResourcePolicies": "the same",
    "logs:GetLogDelivery": "the same",
    "logs:ListLogDeliveries": "the same",
    "logs:PutResourcePolicy": "the same",
    "logs:UpdateLogDelivery": "the same",
    "ssm:UpdateInstanceInformation": "a host's agent; its actions take no resource",
    "ssmmessages:CreateControlChannel": "the same",
    "ssmmessages:CreateDataChannel": "the same",
    "ssmmessages:OpenControlChannel": "the same",
    "ssmmessages:OpenDataChannel": "the same",
    "xray:GetSamplingRules": "X-Ray's actions take no resource",
    "xray:GetSamplingTargets": "the same",
    "xray:PutTelemetryRecords": "the same",
    "xray:PutTraceSegments": "the same",
}
"""The only actions that are allowed on all resources, each with the reason."""

SECRET = re.compile(
    r"(?i)(sk-[a-z0-9]{8}|AKIA[A-Z0-9]{12}|-----BEGIN [A-Z ]*PRIVATE KEY|"
    r"(password|secret|token|api_?key)[\"']?\s*[:=]\s*[\"'][^\"'{}]{6,})"
)
WITHOUT_PASSWORD = re.compile(r"postgresql://([A-Za-z_]+@)?[^/:@]+:\d+/")


@pytest.fixture(scope="module", params=[stage.stage for stage in VARIANTS])
def stage_name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def files(assembly: Path, stage_name: str) -> list[Path]:
    found = sorted(assembly.glob(f"VectorForge-{stage_name}-*.template.json"))
    assert len(found) == 2
    return found


@pytest.fixture(scope="module")
def templates(files: list[Path]) -> list[StackTemplate]:
    return [StackTemplate(json.loads(file.read_text())) for file in files]


def of_kind(templates: list[StackTemplate], kind: str) -> dict[str, dict[str, Any]]:
    """Yield every resource of a type after checking that there is at least one."""
    found = {name: item for template in templates for name, item in template.of_kind(kind).items()}
    assert found, kind
    return found


def functions(templates: list[StackTemplate]) -> dict[str, dict[str, Any]]:
    return of_kind(templates, "AWS::Lambda::Function")


def policies(templates: list[StackTemplate]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the resource's name and each statement of every identity policy, also of those inside roles."""
    for template in templates:
        for name, policy in template.of_kind("AWS::IAM::Policy").items():
            yield from ((name, statement) for statement in policy["PolicyDocument"]["Statement"])
        for name, role in template.of_kind("AWS::IAM::Role").items():
            for inline in role.get("Policies", []):
                yield from ((name, statement) for statement in inline["PolicyDocument"]["Statement"])


def test_templates_contain_no_secret(files: list[Path]) -> None:  # C25
    for file in files:
        assert [found[0] for found in SECRET.finditer(file.read_text())] == []


@pytest.mark.parametrize(
    "leak",
    ["sk-proj1234abcd", "AKIAIOSFODNN7EXAMPLE", '"MasterUserPassword": "hunter22"', "api_key='abcdefg'"],
)
def test_secret_pattern_matches_leaked_secrets(leak: str) -> None:
    assert SECRET.search(f'{{"Environment": {leak}}}')


def test_function_variables_contain_no_password_or_key(templates: list[StackTemplate]) -> None:
    for function in functions(templates).values():
        for name, value in function["Environment"]["Variables"].items():
            assert not name.endswith(("_KEY", "_PASSWORD", "_SECRET", "_TOKEN")), name
            assert "resolve:secretsmanager" not in text(value), name
            if name.endswith("_DATABASE_URL"):
                assert WITHOUT_PASSWORD.match(text(value)), name
                assert "sslmode=verify-full&sslrootcert=/var/task/" in text(value), name


def test_function_settings_are_known_variables(templates: list[StackTemplate]) -> None:
    names = {name for f in functions(templates).values() for name in f["Environment"]["Variables"]}
    ours = {name for name in names if name.startswith("VECTORFORGE_")}
    assert ours
    assert ours <= known_variables()


CDK_GRANT = ("BackupNoticesRoleDefaultPolicy", "kms:GenerateDataKey*")
"""Made for a topic with a key; infra/nag_rules.py says on what."""


def test_wildcard_resources_are_allowed_for_listed_actions_only(templates: list[StackTemplate]) -> None:
    seen = set()
    for name, statement in policies(templates):
        actions = as_list(statement["Action"])
        assert "NotAction" not in statement, name
        assert not [action for action in actions if "*" in action and (name, action) != CDK_GRANT], name
        if statement["Effect"] == "Allow" and "*" in [text(r) for r in as_list(statement["Resource"])]:
            assert set(actions) <= set(WHOLE_SERVICE), name
            seen |= set(actions)
    assert seen == set(WHOLE_SERVICE)


def test_functions_have_own_role_trusted_by_lambda_only(templates: list[StackTemplate]) -> None:
    roles = [text(function["Role"]) for function in functions(templates).values()]
    assert len(set(roles)) == len(roles)
    known = of_kind(templates, "AWS::IAM::Role")
    for role in roles:
        [trust] = known[role.removesuffix(".Arn")]["AssumeRolePolicyDocument"]["Statement"]
        assert trust["Principal"] == {"Service": "lambda.amazonaws.com"}


def test_functions_log_trace_and_run_on_arm(templates: list[StackTemplate]) -> None:
    groups = of_kind(templates, "AWS::Logs::LogGroup")
    for name, function in functions(templates).items():
        assert text(function["LoggingConfig"]["LogGroup"]) in groups, name
        assert function["LoggingConfig"]["LogFormat"] == "JSON", name
        assert function["TracingConfig"] == {"Mode": "Active"}, name
        assert function["Architectures"] == ["arm64"], name
        # The authorizer has no outgoing connections, and the probe has those to AWS's APIs only.
        if function["Handler"].split(".")[1] not in ("authorizer", "probe"):
            assert function["VpcConfig"]["SecurityGroupIds"], name


def test_functions_are_invoked_by_live_alias(templates: list[StackTemplate]) -> None:
    aliases = of_kind(templates, "AWS::Lambda::Alias").values()
    assert {alias["Name"] for alias in aliases} == {"live"}
    assert {text(alias["FunctionName"]) for alias in aliases} == set(functions(templates))


def test_log_groups_have_retention(templates: list[StackTemplate]) -> None:
    for name, group in of_kind(templates, "AWS::Logs::LogGroup").items():
        assert group["RetentionInDays"] <= 365, name


def test_stored_data_is_encrypted(templates: list[StackTemplate]) -> None:
    for name, queue in of_kind(templates, "AWS::SQS::Queue").items():
        assert queue["SqsManagedSseEnabled"] is True, name
    for name, bucket in of_kind(templates, "AWS::S3::Bucket").items():
        assert bucket["BucketEncryption"]["ServerSideEncryptionConfiguration"], name
        assert set(bucket["PublicAccessBlockConfiguration"].values()) == {True}, name
    for name, instance in of_kind(templates, "AWS::RDS::DBInstance").items():
        assert instance["StorageEncrypted"] is True, name
        assert instance["PubliclyAccessible"] is False, name


@pytest.mark.parametrize(
    ("kind", "policy", "names"),
    [
        ("AWS::SQS::Queue", "AWS::SQS::QueuePolicy", "Queues"),
        ("AWS::S3::Bucket", "AWS::S3::BucketPolicy", "Bucket"),
        ("AWS::SNS::Topic", "AWS::SNS::TopicPolicy", "Topics"),
    ],
)
def test_plaintext_access_is_denied(
    templates: list[StackTemplate], kind: str, policy: str, names: str
) -> None:
    closed = {
        text(place)
        for item in of_kind(templates, policy).values()
        for statement in item["PolicyDocument"]["Statement"]
        if statement["Effect"] == "Deny"
        and statement["Condition"] == {"Bool": {"aws:SecureTransport": "false"}}
        and statement["Principal"] in ("*", {"AWS": "*"})
        for place in as_list(item[names])
    }
    assert closed == set(of_kind(templates, kind))


def test_security_groups_admit_no_public_ingress(templates: list[StackTemplate]) -> None:
    groups = of_kind(templates, "AWS::EC2::SecurityGroup")
    inward = [rule for group in groups.values() for rule in group.get("SecurityGroupIngress", [])]
    inward += of_kind(templates, "AWS::EC2::SecurityGroupIngress").values()
    for rule in inward:
        assert "CidrIpv6" not in rule
        assert "CidrIp" not in rule or "Fn::GetAtt" in rule["CidrIp"]  # the VPC's own addresses


def test_function_url_requires_iam(templates: list[StackTemplate], stage_name: str) -> None:
    urls = [url for template in templates for url in template.of_kind("AWS::Lambda::Url").values()]
    assert {url["AuthType"] for url in urls} <= {"AWS_IAM"}
    assert bool(urls) == (stage_name in ("url", "both"))
