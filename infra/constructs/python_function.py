"""The construct of all Lambda functions: code, role, log group, alias."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from aws_cdk import Annotations, Duration, RemovalPolicy, Stack
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from infra.constructs.arns import named_arn
from infra.constructs.encryption import allow_key
from infra.constructs.function_code import function_code, needed_sdks
from infra.constructs.retention import log_group
from infra.setting_types import FunctionSettings, Start
from infra.stage_settings import StageSettings

ALIAS = "live"

_NETWORK_INTERFACE_ACTIONS = [
    "ec2:CreateNetworkInterface", "ec2:DeleteNetworkInterface", "ec2:DescribeNetworkInterfaces",
    "ec2:DescribeSubnets", "ec2:AssignPrivateIpAddresses", "ec2:UnassignPrivateIpAddresses",
]  # fmt: skip
"""https://docs.aws.amazon.com/lambda/latest/dg/configuration-vpc.html#configuration-vpc-permissions"""


@dataclass(frozen=True, slots=True)
class Place:
    """Network of a function: where its network interfaces are."""

    vpc: ec2.IVpc
    subnets: ec2.SubnetSelection
    security_group: ec2.ISecurityGroup


class PythonFunction(Construct):
    """A function of ``functions/`` behind the alias ``live``, which all callers invoke.

    Args:
        function: A folder of ``functions/``.
        place: Its network; None: outside of the VPC, for what reaches nothing.
        environment: Variables of this function alone.
        start: See ``Start``; query function only.
        **more: Arguments of CDK's ``Function``.

    Attributes:
        role: Its role; the owner of a resource adds the statements.
        function: The function, and not what to invoke.
        alias: Alias that callers invoke.
        log_group: Log group of its logs and metrics.
        name: Name of the function.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        function: str,
        description: str,
        stage: StageSettings,
        settings: FunctionSettings,
        place: Place | None,
        environment: Mapping[str, str],
        start: Start = "on_demand",
        **more: Any,
    ) -> None:
        super().__init__(scope, construct_id)
        self._stage = stage
        self.name = f"{stage.prefix}-{function.replace('_', '-')}"
        self.log_group = log_group(self, "Logs", stage, f"/aws/lambda/{self.name}")
        self.role = self._make_role()
        if place is not None:
            self._allow_interfaces()
            more |= _inside(place, stage)
        self.function = lambda_.Function(
            self,
            "Function",
            function_name=self.name,
            description=description,
            code=function_code(function, stage.code, needed_sdks(function, stage.environment)),
            handler=f"functions.{function}.handler.handler",
            runtime=_runtime(stage),
            architecture=_architecture(stage),
            memory_size=settings.memory_mb,
            timeout=Duration.seconds(settings.timeout_s),
            environment={**_common_environment(stage), **otel_environment(self, stage), **environment},
            role=self.role,
            log_group=self.log_group,
            logging_format=lambda_.LoggingFormat.JSON,
            tracing=lambda_.Tracing.ACTIVE if stage.otel is None else lambda_.Tracing.DISABLED,
            snap_start=lambda_.SnapStartConf.ON_PUBLISHED_VERSIONS if start == "snap_start" else None,
            current_version_options=lambda_.VersionOptions(
                # A version that stays would keep its snapshot, which is billed.
                removal_policy=RemovalPolicy.DESTROY
            ),
            **more,
        )
        if start == "snap_start":
            Annotations.of(self.function).acknowledge_warning(
                "@aws-cdk/aws-lambda:snapStartRequirePublish", "The alias below is of a published version."
            )
        self.alias = lambda_.Alias(
            self,
            "Alias",
            alias_name=ALIAS,
            version=self.function.current_version,
            provisioned_concurrent_executions=stage.provisioned_concurrency
            if start == "provisioned"
            else None,
        )

    def allow(self, *actions: str, on: list[str], when: Mapping[str, Any] | None = None) -> None:
        """Allow the function these actions, and to use the stage's key for them.

        Args:
            actions: Actions of IAM, without wildcards.
            on: ARNs.
            when: Conditions of IAM.
        """
        self.role.add_to_policy(
            iam.PolicyStatement(actions=list(actions), resources=on, conditions=dict(when or {}))
        )
        allow_key(self.role, self._stage, *actions)

    def named_arn(self, qualifier: str | None = None) -> str:
        """Return the function's ARN by its name, for what must not refer to it; ``ALIAS`` is a qualifier."""
        return named_arn(self, "lambda", "function", f"{self.name}:{qualifier}" if qualifier else self.name)

    def _make_role(self) -> iam.Role:
        role = iam.Role(
            self,
            "Role",
            assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"),
            description=f"What {self.name} may do",
        )
        self.log_group.grant_write(role)
        return role

    def _allow_interfaces(self) -> None:
        # Lambda itself makes the interfaces, with this role; no resource can be named before they exist.
        self.role.add_to_policy(iam.PolicyStatement(actions=_NETWORK_INTERFACE_ACTIONS, resources=["*"]))
        self.role.add_to_policy(  # the function's own code does not need them
            iam.PolicyStatement(
                effect=iam.Effect.DENY,
                actions=_NETWORK_INTERFACE_ACTIONS,
                resources=["*"],
                conditions={"ArnEquals": {"lambda:SourceFunctionArn": self.named_arn()}},
            )
        )


def _inside(place: Place, stage: StageSettings) -> dict[str, Any]:
    """Return the arguments of a function in the VPC."""
    return {
        "vpc": place.vpc,
        "vpc_subnets": place.subnets,
        "security_groups": [place.security_group],
        "ipv6_allowed_for_dual_stack": stage.network.egress == "dual_stack",
    }


def _runtime(stage: StageSettings) -> lambda_.Runtime:
    """https://docs.aws.amazon.com/lambda/latest/dg/snapstart.html: Python 3.12 or later."""
    version = stage.code.python_version
    snapshots = tuple(int(number) for number in version.split(".")) >= (3, 12)
    return lambda_.Runtime(f"python{version}", lambda_.RuntimeFamily.PYTHON, supports_snap_start=snapshots)


def _architecture(stage: StageSettings) -> lambda_.Architecture:
    return lambda_.Architecture.ARM_64 if stage.code.architecture == "arm64" else lambda_.Architecture.X86_64


def otel_environment(scope: Construct, stage: StageSettings) -> dict[str, str]:
    """Return the variables of a stage that exports spans with OpenTelemetry; none with X-Ray."""
    if (otel := stage.otel) is None:
        return {}
    return {
        "VECTORFORGE_TRACING": "otel",
        "VECTORFORGE_OTLP_ENDPOINT": otel.endpoint
        or f"https://xray.{Stack.of(scope).region}.{Stack.of(scope).url_suffix}/v1/traces",
        "VECTORFORGE_OTLP_RESOURCE": (f"service.name=vectorforge,deployment.environment.name={stage.stage}"),
        "VECTORFORGE_OTLP_TEXTS": str(otel.texts).lower(),
    }


def _common_environment(stage: StageSettings) -> dict[str, str]:
    common = {"POWERTOOLS_METRICS_NAMESPACE": stage.metrics_namespace, "VECTORFORGE_TRACING": "xray"}
    if stage.network.egress == "dual_stack":
        # The classic hosts of SQS and Secrets Manager have no IPv6 addresses.
        # https://docs.aws.amazon.com/sdkref/latest/guide/feature-endpoints.html
        common["AWS_USE_DUALSTACK_ENDPOINT"] = "true"
    return common
