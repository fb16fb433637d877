"""Blue/green: CodeDeploy moves the alias to a new version, a tenth of the questions first."""

from collections.abc import Sequence

from aws_cdk import ArnFormat, Stack
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_codedeploy as codedeploy
from aws_cdk import aws_iam as iam
from constructs import Construct

from infra.python_function import ALIAS, PythonFunction
from infra.settings import StageSettings


class Canary(Construct):
    """A tenth of the invocations for five minutes, then all; back to the old version when an alarm rings.

    Both versions serve in those minutes, and after a rollback the old one does: a migration must suit both.

    Args:
        scope: Of the construct.
        construct_id: Of the construct.
        stage: The stage's settings.
        function: Whose alias is moved.
    """

    def __init__(
        self, scope: Construct, construct_id: str, *, stage: StageSettings, function: PythonFunction
    ) -> None:
        super().__init__(scope, construct_id)
        self._role = iam.Role(
            self,
            "Role",
            assumed_by=iam.ServicePrincipal("codedeploy.amazonaws.com"),
            description=f"Lets CodeDeploy move the alias of {function.name}",
        )
        self._allow_moving(function)
        self._group = codedeploy.LambdaDeploymentGroup(
            self,
            "Group",
            alias=function.alias,
            application=codedeploy.LambdaApplication(self, "Application", application_name=function.name),
            deployment_group_name=function.name,
            deployment_config=codedeploy.LambdaDeploymentConfig.CANARY_10_PERCENT_5_MINUTES,
            # CDK adds a policy of AWS to any other role, which allows it every function and topic.
            role=self._role.without_policy_updates(),
            auto_rollback=codedeploy.AutoRollbackConfig(failed_deployment=True, stopped_deployment=True),
        )
        if (policy := self._role.node.try_find_child("DefaultPolicy")) is not None:
            self._group.node.add_dependency(policy)

    def watch(self, alarms: Sequence[cloudwatch.IAlarm]) -> None:
        """Roll back while any of these rings."""
        for alarm in alarms:
            self._group.add_alarm(alarm)
        if alarms:
            arns = [alarm.alarm_arn for alarm in alarms]
            self._role.add_to_policy(
                iam.PolicyStatement(actions=["cloudwatch:DescribeAlarms"], resources=arns)
            )

    def _allow_moving(self, function: PythonFunction) -> None:
        """https://docs.aws.amazon.com/codedeploy/latest/userguide/getting-started-create-service-role.html."""
        function_arn = Stack.of(self).format_arn(
            service="lambda",
            resource="function",
            resource_name=function.name,
            arn_format=ArnFormat.COLON_RESOURCE_NAME,
        )
        self._role.add_to_policy(
            iam.PolicyStatement(
                actions=[
                    "lambda:GetAlias",
                    "lambda:GetProvisionedConcurrencyConfig",
                    "lambda:UpdateAlias",
                ],
                resources=[function_arn, f"{function_arn}:{ALIAS}"],
            )
        )
