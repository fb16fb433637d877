"""Notifications of failed backups, copies and restore tests, and the check of each restored database.

AWS Backup reports jobs as events, not as metrics of one database, so these are rules of EventBridge and not
alarms: each failed job is one message. https://docs.aws.amazon.com/aws-backup/latest/devguide/eventbridge.html
"""

from collections.abc import Mapping, Sequence

from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from aws_cdk import aws_iam as iam
from aws_cdk import aws_sns as sns
from constructs import Construct

from infra.constructs.arns import named_arn
from infra.constructs.encryption import allow_key
from infra.constructs.python_function import PythonFunction
from infra.data.database import OWNER_ROLE
from infra.data.restore_test import restore_plan_name
from infra.monitoring.restored_cluster import RestoredCluster
from infra.stage_settings import StageSettings

RUNBOOK = "docs/operate/runbook.md"
NOTICES = ("backup-failed", "restore-test-failed")
"""Rules by their headings of the runbook."""
_FAILED = ["FAILED", "ABORTED", "EXPIRED", "PARTIAL"]


class BackupNotices(Construct):
    """The rules of a stage with ``backup``.

    Args:
        topic: The alarms' topic.
        migrate: The migrate function, which reads each restored database.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        stage: StageSettings,
        topic: sns.ITopic,
        migrate: PythonFunction,
    ) -> None:
        super().__init__(scope, construct_id)
        self._stage = stage
        self._topic = topic
        kind = "cluster" if stage.database.engine == "aurora" else "db"
        # By name: rules must not refer to the data stack's resources.
        database = named_arn(self, "rds", kind, stage.prefix)
        self._role = iam.Role(
            self,
            "Role",
            assumed_by=iam.ServicePrincipal("events.amazonaws.com"),
            description="Lets EventBridge publish failed backups to the alarms' topic",
        )
        self._notify(
            "backup-failed",
            "Backup or copy of the database",
            "state",
            ["Backup Job State Change", "Copy Job State Change"],
            {"resourceArn": [database], "state": _FAILED},
        )
        if stage.backup is not None and stage.backup.restore_test:
            # its end is random
            plan = named_arn(self, "backup", "restore-testing-plan", restore_plan_name(stage.prefix))
            restores = {"restoreTestingPlanArn": [{"prefix": plan}]}
            restored = ["Restore Job State Change"]
            self._notify(
                "restore-test-failed",
                "Monthly restore test",
                "status",
                restored,
                {**restores, "status": _FAILED},
            )
            self._check(migrate, restored, {**restores, "status": ["COMPLETED"]})

    def _notify(
        self,
        name: str,
        what: str,
        field: str,
        kinds: list[str],
        detail: Mapping[str, Sequence[object]],
        *,
        source: str = "aws.backup",
        heading: str | None = None,
    ) -> None:
        """Publish each event that matches to the alarms' topic, with a reference to the runbook."""
        state, why = events.EventField.from_path(f"$.detail.{field}"), "$.detail.statusMessage"
        advice = f"What to do: {RUNBOOK}#{heading or name}"
        events.Rule(
            self,
            name,
            rule_name=f"{self._stage.prefix}-{name}",
            description=f"VectorForge: {what} failed. {advice}",
            event_pattern=events.EventPattern(source=[source], detail_type=kinds, detail=detail),
            targets=[
                targets.SnsTopic(
                    self._topic,
                    role=self._role,
                    message=events.RuleTargetInput.from_text(
                        f"{what} of {self._stage.prefix}: {state}. {events.EventField.from_path(why)} "
                        f"{advice}"
                    ),
                )
            ],
        )
        allow_key(self._role, self._stage, "sns:Publish")

    def _check(
        self, migrate: PythonFunction, kinds: list[str], detail: Mapping[str, Sequence[object]]
    ) -> None:
        """Have the migrate function read schema and rows; its failure fires the alarm migrate-errors."""
        restored = events.EventField.from_path("$.detail.createdResourceArn")
        target: events.IRuleTarget = targets.LambdaFunction(
            migrate.alias,
            event=events.RuleTargetInput.from_object({"action": "restored", "instance": restored}),
        )
        if self._stage.database.engine == "aurora":
            machine = RestoredCluster(self, "Cluster", stage=self._stage, migrate=migrate).state_machine
            target = targets.SfnStateMachine(
                machine, input=events.RuleTargetInput.from_object({"cluster": restored})
            )
            self._notify(
                "restored-not-read",
                "Reading the restored cluster",
                "status",
                ["Step Functions Execution Status Change"],
                {
                    "stateMachineArn": [machine.state_machine_arn],
                    "status": ["FAILED", "TIMED_OUT", "ABORTED"],
                },
                source="aws.states",
                heading="restore-test-failed",
            )
        events.Rule(
            self,
            "restored",
            rule_name=f"{self._stage.prefix}-restored",
            description="VectorForge: has the migrate function read the database that a restore test made",
            event_pattern=events.EventPattern(source=["aws.backup"], detail_type=kinds, detail=detail),
            targets=[target],
        )
        # The id of a restored instance is not known before.
        owner = named_arn(self, "rds-db", "dbuser", f"*/{OWNER_ROLE}")
        migrate.allow("rds-db:connect", on=[owner])
