"""The CDK app: ``cdk synth -c stage=dev``. It calls no AWS service and needs no credentials.

Context: ``stage`` (infra/settings.py), ``architecture`` and ``python`` (for machines other than Lambda's),
``environment`` (the emulator's variables for every function, as JSON), ``canary=off`` (a new version gets all
queries at once, also in a stage with ``canary``).
"""

import json
import sys
from collections.abc import Mapping
from typing import Any

from aws_cdk import App, Stack, Tags
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from infra.constructs.buckets import AccessLogs
from infra.data.data_stack import DataStack
from infra.front_doors.function_url import QueryUrl
from infra.front_doors.gateway_keys import TenantKeys
from infra.front_doors.rest_api import RestApi
from infra.functions.bulk_load import BulkLoad
from infra.functions.ingestion import Ingestion
from infra.functions.migration import Migration
from infra.functions.operator_host import OperatorHost
from infra.functions.probe import Probe
from infra.functions.query_function import QueryFunction
from infra.functions.query_log import QueryLog
from infra.monitoring.alarms import Alarms
from infra.monitoring.backup_notices import BackupNotices
from infra.monitoring.budget import Budget
from infra.monitoring.dashboard import Dashboard
from infra.nag_rules import hold_to_rules
from infra.setting_types import CodeSettings, SettingsError
from infra.settings import choose
from infra.stage_settings import StageSettings


class AppStack(Stack):
    """The functions and their triggers; a new version of the code updates this stack only."""

    def __init__(
        self, scope: Construct, construct_id: str, *, stage: StageSettings, data: DataStack, **kwargs: Any
    ) -> None:
        super().__init__(scope, construct_id, **kwargs)
        access_logs = AccessLogs(self, "AccessLogs", stage)
        # Without egress no host reaches Session Manager, and the function not EC2.
        egress = stage.network.egress != "none"
        self.hosts = OperatorHost(self, "Operator", stage=stage, data=data) if egress else None
        self.migration = Migration(self, "Migration", stage=stage, data=data, hosts=self.hosts)
        self.query_log = QueryLog(self, "QueryLog", stage=stage, data=data, access_logs=access_logs)
        self.ingestion = Ingestion(self, "Ingestion", stage=stage, data=data, access_logs=access_logs)
        self.bulk_load = BulkLoad(
            self, "BulkLoad", stage=stage, ingestion=self.ingestion, access_logs=access_logs
        )
        keys = TenantKeys(self, "TenantKeys", stage) if stage.has_gateway_keys else None
        self.query = QueryFunction(
            self,
            "Query",
            stage=stage,
            data=data,
            query_log=self.query_log,
            ingestion=self.ingestion,
            environment=keys.environment if keys else {},
        )
        if keys:
            keys.allow_reading(self.query.function)
        if stage.front_door != "function_url":
            RestApi(self, "RestApi", stage=stage, function=self.query.function, keys=keys)
        if stage.front_door != "rest_api":
            QueryUrl(self, "QueryUrl", stage=stage, function=self.query.function)
        if stage.probe is not None:
            Probe(self, "Probe", stage=stage, settings=stage.probe, query=self.query)
        self.migration.before(self.query_log.writer, self.ingestion.function, self.query.function)
        self.alarms = Alarms(
            self,
            "Alarms",
            stage=stage,
            query=self.query.function,
            ingest=self.ingestion.function,
            bulk_load=self.bulk_load,
        )
        if self.query.canary is not None:
            self.query.canary.watch(self.alarms.deployment_alarms)
        if stage.backup is not None:
            BackupNotices(
                self,
                "BackupNotices",
                stage=stage,
                topic=self.alarms.topic,
                migrate=self.migration.function,
            )
        if stage.monthly_budget_dollars is not None:
            Budget(self, "Budget", stage=stage, dollars=stage.monthly_budget_dollars, topic=self.alarms.topic)
        if stage.monitoring.dashboard:
            Dashboard(self, "Dashboard", stage=stage, alarms=self.alarms)


_CONTEXT = {
    "@aws-cdk/core:defaultCrossStackReferences": "strong",  # the default, which warns unless it is set
    "@aws-cdk/core:validateAgainstDefaultRules": True,  # CDK's own findings are errors
}
"""Here, not in cdk.json, so that tests synthesize with the same context."""


def build(app: App, stage: StageSettings) -> tuple[DataStack, AppStack]:
    """Create both stacks of a stage, tagged."""
    name = f"VectorForge-{stage.stage}"
    data = DataStack(
        app, f"{name}-Data", stage=stage, description=f"VectorForge ({stage.stage}): network, database, keys"
    )
    functions = AppStack(
        app,
        f"{name}-App",
        stage=stage,
        data=data,
        description=f"VectorForge ({stage.stage}): functions, queues, front door",
    )
    if stage.permissions_boundary_arn is not None:
        for stack in (data, functions):
            boundary = iam.ManagedPolicy.from_managed_policy_arn(
                stack, "PermissionsBoundary", stage.permissions_boundary_arn
            )
            iam.PermissionsBoundary.of(stack).apply(boundary)
    for stack in (data, functions):
        for key, value in stage.tags.items():
            # CloudFormation has no tags for it, though CDK thinks so.
            Tags.of(stack).add(key, value, exclude_resource_types=["AWS::RDS::DBProxyTargetGroup"])
    return data, functions


def add_environment(stack: Stack, variables: Mapping[str, str]) -> None:
    """Add variables to every function of a stack; CDK publishes new versions when they change."""
    for construct in stack.node.find_all():
        if isinstance(construct, lambda_.Function):
            for name, value in variables.items():
                construct.add_environment(name, value)


def _canary(context: str | None) -> bool | None:
    if context not in (None, "off"):
        raise SettingsError(f'The context canary must be "off" or absent, not {context!r}.')
    return False if context else None


def main() -> int:
    """Synthesize; return 0, or 1 with the reason on stderr."""
    app = App(post_cli_context=_CONTEXT)
    try:
        stage = choose(
            app.node.try_get_context("stage") or "dev",
            architecture=app.node.try_get_context("architecture"),
            python_version=app.node.try_get_context("python"),
            canary=_canary(app.node.try_get_context("canary")),
        )
    except SettingsError as exc:
        sys.stderr.write(f"{exc}\n")
        return 1
    data, functions = build(app, stage)
    if (variables := app.node.try_get_context("environment")) is not None:
        add_environment(functions, json.loads(variables))
    if stage.code == CodeSettings():  # an emulator's Python may not be the latest, which is a finding
        hold_to_rules(app, {"Data": data, "App": functions}, stage)
    app.synth()
    return 0


if __name__ == "__main__":
    sys.exit(main())
