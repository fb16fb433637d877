"""What LocalStack 4.13.1 cannot deploy, as tables: the whole difference between production and emulator.

A resource type must stand in one of the first two tables. One that stands in neither is an error, because
LocalStack would mark it as complete without making it.
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
        "AWS::CDK::Metadata": "tells AWS what CDK is used for",
        "AWS::CertificateManager::*": "no certificate authority: the emulator's front door speaks HTTP",
        "AWS::CloudFront::*": NOT_THERE,
        "AWS::CloudWatch::Dashboard": NOT_THERE,
        "AWS::CodeDeploy::*": NOT_THERE,
        "AWS::EC2::*": NO_NETWORK,
        "AWS::KMS::*": "LocalStack's own needs a newer Python than 3.11",
        "AWS::Logs::MetricFilter": NOT_THERE,
        "AWS::Logs::QueryDefinition": NOT_THERE,
        "AWS::RDS::*": "the database is the embedded PostgreSQL, its proxy PgBouncer",
        "AWS::SecretsManager::RotationSchedule": "what rotates RDS's passwords is RDS",
        "AWS::SecretsManager::SecretTargetAttachment": "there is no instance to attach to",
        "AWS::WAFv2::*": NOT_THERE,
    }
)
"""Types that are left out, and why; a name may end in ``*``."""

KEPT = frozenset(
    {
        "AWS::ApiGateway::ApiKey",
        "AWS::ApiGateway::Deployment",
        "AWS::ApiGateway::GatewayResponse",
        "AWS::ApiGateway::Method",
        "AWS::ApiGateway::Model",
        "AWS::ApiGateway::RequestValidator",
        "AWS::ApiGateway::Resource",
        "AWS::ApiGateway::RestApi",
        "AWS::ApiGateway::Stage",
        "AWS::ApiGateway::UsagePlan",
        "AWS::ApiGateway::UsagePlanKey",
        "AWS::CloudFormation::CustomResource",
        "AWS::CloudWatch::Alarm",
        "AWS::CloudWatch::CompositeAlarm",
        "AWS::Events::Rule",
        "AWS::IAM::ManagedPolicy",
        "AWS::IAM::Policy",
        "AWS::IAM::Role",
        "AWS::Lambda::Alias",
        "AWS::Lambda::EventInvokeConfig",
        "AWS::Lambda::EventSourceMapping",
        "AWS::Lambda::Function",
        "AWS::Lambda::Permission",
        "AWS::Lambda::Url",
        "AWS::Lambda::Version",
        "AWS::Logs::LogGroup",
        "AWS::S3::Bucket",
        "AWS::S3::BucketPolicy",
        "AWS::SNS::Subscription",
        "AWS::SNS::Topic",
        "AWS::SNS::TopicPolicy",
        "AWS::SQS::Queue",
        "AWS::SQS::QueuePolicy",
        "AWS::SSM::Parameter",
        "AWS::SecretsManager::ResourcePolicy",
        "AWS::SecretsManager::Secret",
        "AWS::StepFunctions::StateMachine",
        "Custom::*",
    }
)
"""Types that LocalStack makes, custom resources with a plug-in of ours."""

DROPPED_WITH_THEIR_SUBJECT = frozenset(
    {"AWS::CloudWatch::Alarm", "AWS::CloudWatch::CompositeAlarm", "AWS::Lambda::Permission"}
)
"""Types of which a resource is left out, too, when it refers to one that is."""

MAY_NAME_WHAT_IS_DROPPED = frozenset({"AWS::IAM::ManagedPolicy", "AWS::IAM::Policy", "AWS::IAM::Role"})
"""Types in which the name of a dropped resource stands for itself: the emulator enforces no permissions."""


@dataclass(frozen=True, slots=True)
class Removal:
    """A part of a resource that is left out."""

    resource_type: str
    path: tuple[str, ...]
    """Keys from the resource's ``Properties``, or from ``UpdatePolicy``, to the part."""
    reason: str


REMOVALS = (
    Removal("AWS::Lambda::Function", ("Properties", "VpcConfig"), NO_NETWORK),
    Removal("AWS::Lambda::Function", ("Properties", "Ipv6AllowedForDualStack"), NO_NETWORK),
    Removal("AWS::Lambda::Function", ("Properties", "SnapStart"), "a process has no snapshot"),
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
"""Parts that are left out of resources that stay."""

WHOLE_ANSWERS = MappingProxyType(
    {"2021-11-15/functions/": "2015-03-31/functions/", "/response-streaming-invocations": "/invocations"}
)
"""In the address of a method's integration: from the streaming invocation to the other one."""


def is_listed(resource_type: str, names: frozenset[str] | Mapping[str, str]) -> str | None:
    """The name in a table that covers a type; None: there is none."""
    service = resource_type.rpartition("::")[0]
    return next((name for name in (resource_type, f"{service}::*") if name in names), None)
