"""Tables of everything that LocalStack 4.13.1 cannot deploy: the difference between production and emulator.

A resource type must be in one of the first two tables; any other is an error, because LocalStack would mark
it as complete without creating it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

NO_NETWORK = "functions are processes of this machine: there is no VPC"
NO_AUTHORIZER = "there are no authorizers: keys come in x-api-key"
NOT_THERE = "not in LocalStack's free edition"

DROPPED: Mapping[str, str] = MappingProxyType(
    {
        "AWS::ApiGateway::Account": "an account's own setting, for logs that the emulator does not write",
        "AWS::ApiGateway::Authorizer": NOT_THERE,
        "AWS::ApplicationAutoScaling::*": NOT_THERE,
        "AWS::Budgets::*": NOT_THERE,
        "AWS::CDK::Metadata": "usage statistics for AWS",
        "AWS::CertificateManager::*": "no certificate authority: the emulator's front door speaks HTTP",
        "AWS::CloudFront::*": NOT_THERE,
        "AWS::CloudWatch::Dashboard": NOT_THERE,
        "AWS::CodeDeploy::*": NOT_THERE,
        "AWS::EC2::*": NO_NETWORK,
        "AWS::IAM::InstanceProfile": "there are no machines to start",
        "AWS::KMS::*": "LocalStack's own needs a newer Python than 3.11",
        "AWS::Logs::MetricFilter": NOT_THERE,
        "AWS::Logs::QueryDefinition": NOT_THERE,
        "AWS::RDS::*": "the database is the embedded PostgreSQL, its proxy PgBouncer",
        "AWS::SecretsManager::RotationSchedule": "what rotates RDS's passwords is RDS",
        "AWS::SecretsManager::SecretTargetAttachment": "there is no instance to attach to",
        "AWS::WAFv2::*": NOT_THERE,
    }
)
"""Dropped types with the reason; a name may end in ``*``."""

_KEPT = """
    ApiGateway::ApiKey ApiGateway::Deployment ApiGateway::GatewayResponse ApiGateway::Method
    ApiGateway::Model ApiGateway::RequestValidator ApiGateway::Resource ApiGateway::RestApi
    ApiGateway::Stage ApiGateway::UsagePlan ApiGateway::UsagePlanKey CloudFormation::CustomResource
    CloudWatch::Alarm CloudWatch::CompositeAlarm Events::Rule IAM::ManagedPolicy IAM::Policy IAM::Role
    Lambda::Alias Lambda::EventInvokeConfig Lambda::EventSourceMapping Lambda::Function
    Lambda::Permission Lambda::Url Lambda::Version Logs::LogGroup S3::Bucket S3::BucketPolicy
    SNS::Subscription SNS::Topic SNS::TopicPolicy SQS::Queue SQS::QueuePolicy SSM::Parameter
    SecretsManager::ResourcePolicy SecretsManager::Secret StepFunctions::StateMachine
"""
KEPT = frozenset({"Custom::*", *(f"AWS::{name}" for name in _KEPT.split())})
"""Types that LocalStack creates; custom resources by our plug-in."""

DROPPED_WITH_THEIR_SUBJECT = frozenset(
    {"AWS::CloudWatch::Alarm", "AWS::CloudWatch::CompositeAlarm", "AWS::Lambda::Permission"}
)
"""Types of which a resource is dropped if it refers to a dropped one."""

MAY_NAME_WHAT_IS_DROPPED = frozenset({"AWS::IAM::ManagedPolicy", "AWS::IAM::Policy", "AWS::IAM::Role"})
"""Types that may refer to dropped resources: the emulator enforces no permissions."""


@dataclass(frozen=True, slots=True)
class Removal:
    """A dropped part of a resource."""

    resource_type: str
    path: tuple[str, ...]
    """Keys from the resource to the part."""
    reason: str


REMOVALS = (
    Removal("AWS::Lambda::Function", ("Properties", "VpcConfig"), NO_NETWORK),
    Removal("AWS::Lambda::Function", ("Properties", "Ipv6AllowedForDualStack"), NO_NETWORK),
    Removal("AWS::Lambda::Function", ("Properties", "SnapStart"), "a process has no snapshot"),
    Removal(
        "AWS::Lambda::Function",
        ("Properties", "Environment", "Variables", "VECTORFORGE_OPERATOR_TEMPLATE"),
        "there are no machines to start",
    ),
    Removal(
        "AWS::Lambda::Function",
        ("Properties", "Environment", "Variables", "AWS_USE_DUALSTACK_ENDPOINT"),
        "the emulator has one address; SDKs refuse both settings together",
    ),
    Removal("AWS::SNS::Topic", ("Properties", "KmsMasterKeyId"), "there is no KMS"),
    Removal("AWS::Lambda::Alias", ("UpdatePolicy",), "CodeDeploy is dropped: the alias moves at once"),
    Removal("AWS::ApiGateway::RestApi", ("Properties", "ApiKeySourceType"), NO_AUTHORIZER),
    Removal("AWS::ApiGateway::Method", ("Properties", "AuthorizerId"), NO_AUTHORIZER),
    Removal(
        "AWS::ApiGateway::Method",
        ("Properties", "Integration", "ResponseTransferMode"),
        "LocalStack's API Gateway passes on whole answers only",
    ),
)
"""Dropped parts of kept resources."""

WHOLE_ANSWERS = MappingProxyType(
    {"2021-11-15/functions/": "2015-03-31/functions/", "/response-streaming-invocations": "/invocations"}
)
"""Replacements in the URI of a method's integration: from streaming to buffered invocation."""


def is_listed(resource_type: str, names: frozenset[str] | Mapping[str, str]) -> str | None:
    """Return the entry of a table that covers a type, or None."""
    service = resource_type.rpartition("::")[0]
    return next((name for name in (resource_type, f"{service}::*") if name in names), None)
