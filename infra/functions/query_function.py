"""The query function, which streams answers to the front doors, and its canary deployments."""

import json
from collections.abc import Mapping, Sequence

from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_codedeploy as codedeploy
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from infra.connection_budget import QUERY_CONNECTIONS
from infra.constructs.bedrock import ANSWERS, EMBEDDINGS, allow_models
from infra.constructs.python_function import ALIAS, PythonFunction
from infra.data.data_stack import DataStack
from infra.data.database import APP_ROLE
from infra.functions.ingestion import Ingestion
from infra.functions.query_log import QueryLog
from infra.stage_settings import PROBE_KEY_ID, PROBE_TENANT, StageSettings


class QueryFunction(Construct):
    """The function; streams through ``vectorforge.runtime``.

    Args:
        data: Database and vendors' keys.
        query_log: Destination of query records.
        ingestion: Queue of jobs and bucket of uploads.
        environment: Variables that identify callers.

    Attributes:
        function: The function.
        canary: Its deployments; None without ``StageSettings.canary``.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        stage: StageSettings,
        data: DataStack,
        query_log: QueryLog,
        ingestion: Ingestion,
        environment: Mapping[str, str],
    ) -> None:
        super().__init__(scope, construct_id)
        self.function = PythonFunction(
            self,
            "Function",
            function="query",
            description=f"VectorForge ({stage.stage}): answers queries, streamed",
            stage=stage,
            settings=stage.query,
            place=data.places["query"],
            start=stage.start,
            environment={
                "AWS_LAMBDA_EXEC_WRAPPER": "/var/task/vectorforge/runtime/exec_wrapper",
                "VECTORFORGE_DATABASE_URL": data.database.client_url(self, APP_ROLE),
                "VECTORFORGE_DATABASE_AUTH": "iam",
                "VECTORFORGE_DATABASE_POOL_SIZE": str(QUERY_CONNECTIONS),
                "VECTORFORGE_IAM_TENANTS": json.dumps(dict(stage.iam_tenants)),
                "VECTORFORGE_API_EXPLORER": str(stage.api_explorer).lower(),
                **self._readers(stage, data),
                **_cors_origins(stage),
                **_probe_key(stage),
                **(stage.tokens.environment if stage.tokens else {}),
                **environment,
                **query_log.environment,
                **ingestion.environment,
                **data.provider_keys.environment,
            },
            reserved_concurrent_executions=stage.query.max_concurrency,
            # An automatic update of the managed runtime, also of published versions, could start its process
            # in a way that the wrapper does not know.
            runtime_management_mode=lambda_.RuntimeManagementMode.FUNCTION_UPDATE,
        )
        data.database.allow_login(self.function, APP_ROLE)
        data.provider_keys.allow_reading(self.function)
        allow_models(self.function, stage, ANSWERS, EMBEDDINGS)
        query_log.allow_sending(self.function)
        ingestion.allow_announcing(self.function)
        ingestion.allow_signing_uploads(self.function)
        ingestion.allow_linking_originals(self.function)
        self.canary = Canary(self, "Canary", stage=stage, function=self.function) if stage.canary else None

    def _readers(self, stage: StageSettings, data: DataStack) -> dict[str, str]:
        if not stage.database.readers:
            return {}
        return {"VECTORFORGE_DATABASE_READER_HOST": data.database.value(self, "reader-host")}


def _cors_origins(stage: StageSettings) -> dict[str, str]:
    return {"VECTORFORGE_CORS_ORIGINS": ",".join(stage.cors_origins)} if stage.cors_origins else {}


def _probe_key(stage: StageSettings) -> dict[str, str]:
    if stage.probe is None:
        return {}
    return {"VECTORFORGE_API_GATEWAY_KEYS": json.dumps({PROBE_KEY_ID: PROBE_TENANT})}


class Canary(Construct):
    """Blue/green by CodeDeploy: a tenth of the invocations for five minutes, then all; rolled back by alarms.

    Both versions serve in those minutes, and after a rollback the old one does: a migration must suit both.

    Args:
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

    def check_with(self, probe: PythonFunction) -> None:
        """Invoke the probe before a new version gets traffic, and roll back unless it reports success.

        The probe's unqualified function: CodeDeploy documents hooks by the names of functions only.
        https://docs.aws.amazon.com/AWSCloudFormation/latest/TemplateReference/aws-attribute-updatepolicy.html
        """
        self._group.add_pre_hook(probe.function)  # also lets the probe report
        # Named, not referred to: the probe waits for the group, which waits for this policy.
        self._role.add_to_policy(
            iam.PolicyStatement(actions=["lambda:InvokeFunction"], resources=[probe.named_arn()])
        )

    def watch(self, alarms: Sequence[cloudwatch.IAlarm]) -> None:
        """Roll back a new version while any of these fires.

        They may name the function, but not refer to its alias or to what invokes it: those wait for the
        deployment group, which waits for the alarms.
        """
        for alarm in alarms:
            self._group.add_alarm(alarm)
        if alarms:
            arns = [alarm.alarm_arn for alarm in alarms]
            self._role.add_to_policy(
                iam.PolicyStatement(actions=["cloudwatch:DescribeAlarms"], resources=arns)
            )

    def _allow_moving(self, function: PythonFunction) -> None:
        """Allow CodeDeploy to move the alias.

        https://docs.aws.amazon.com/codedeploy/latest/userguide/getting-started-create-service-role.html
        """
        arns = [function.named_arn(), function.named_arn(ALIAS)]
        self._role.add_to_policy(
            iam.PolicyStatement(
                actions=[
                    "lambda:GetAlias",
                    "lambda:GetProvisionedConcurrencyConfig",
                    "lambda:UpdateAlias",
                ],
                resources=arns,
            )
        )
