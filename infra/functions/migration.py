"""Migrations by CloudFormation before new code serves, and hourly builds of missing vector indexes."""

import hashlib
from pathlib import Path

from aws_cdk import CustomResource, Duration
from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from constructs import Construct

from infra.bundling.bundle import ROOT
from infra.constructs.python_function import PythonFunction
from infra.data.data_stack import DataStack
from infra.functions.operator_host import OperatorHost
from infra.stage_settings import StageSettings

MIGRATIONS = ROOT / "shared" / "vectorforge" / "db" / "migrations"

_MARGIN_S = 300
"""Time for a process to start, and for Lambda to retry one that died before it answered."""
_INDEX_EVERY = Duration.hours(1)
"""Also the longest wait of work whose host was lost. A look without work is one SQL query."""


class Migration(Construct):
    """Migrates the schema if migrations are new or the database was replaced.

    CloudFormation calls the alias, which by then points to the new code. When an update is rolled back it is
    the other way round: the old code receives an update to a newer schema, changes nothing and succeeds.
    Deleting the stack leaves the data alone.

    Once an hour the function builds the indexes of collections that have become large enough
    (docs/operate/storage.md), or starts a host for them.

    Args:
        hosts: Hosts for what takes longer than the function's timeout; None: there are none.

    Attributes:
        function: The migrate function.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        stage: StageSettings,
        data: DataStack,
        hosts: OperatorHost | None,
    ) -> None:
        super().__init__(scope, construct_id)
        database = data.database
        template = {"VECTORFORGE_OPERATOR_TEMPLATE": hosts.template.ref} if hosts else {}
        self.function = PythonFunction(
            self,
            "Migrate",
            function="migrate",
            description="VectorForge: brings the database schema up to date",
            stage=stage,
            settings=stage.migrate,
            place=data.places["migrate"],
            environment={
                "VECTORFORGE_DATABASE_AUTH": "iam",
                "VECTORFORGE_MIGRATOR_DATABASE_URL": database.instance_url(self),
                "VECTORFORGE_MIGRATOR_SECRET_ID": database.value(self, "owner-secret"),
                **template,
            },
        )
        database.allow_owner_login(self.function.role)
        if hosts:
            hosts.let_start(self.function)
        wait = Duration.seconds(min(stage.migrate.timeout_s + _MARGIN_S, 3600))
        # What CloudFormation does not wait for any more must not begin.
        self.function.alias.configure_async_invoke(max_event_age=wait)
        self._schema = CustomResource(
            self,
            "Schema",
            resource_type="Custom::DatabaseSchema",
            # Never a version: CloudFormation does not let a service token change.
            service_token=self.function.alias.function_arn,
            service_timeout=wait,
            properties={
                "Migrations": fingerprint(MIGRATIONS),
                "Database": database.value(self, "resource-id"),
            },
        )
        self._build_indexes(stage)

    def before(self, *functions: PythonFunction) -> None:
        """Publish new versions of functions only after the migration."""
        for function in functions:
            function.function.current_version.node.add_dependency(self._schema)
            function.alias.node.add_dependency(self._schema)

    def _build_indexes(self, stage: StageSettings) -> None:
        """Build missing indexes. EventBridge does not retry; the next hour does."""
        rule = events.Rule(
            self,
            "Index",
            rule_name=f"{stage.prefix}-index",
            description="VectorForge: has the migrate function build the vector indexes that are missing",
            schedule=events.Schedule.rate(_INDEX_EVERY),
            targets=[
                targets.LambdaFunction(
                    self.function.alias,
                    event=events.RuleTargetInput.from_object({"action": "index"}),
                    retry_attempts=0,
                )
            ],
        )
        rule.node.add_dependency(self._schema)


def fingerprint(directory: Path) -> str:
    """Return the SHA-256 of all migrations of a folder, names and texts, in hex."""
    digest = hashlib.sha256()
    for file in sorted(directory.glob("*.sql")):
        digest.update(f"{file.name}\n{hashlib.sha256(file.read_bytes()).hexdigest()}\n".encode())
    return digest.hexdigest()
