"""Daily backups of the database by AWS Backup, and their copies in another region."""

from aws_cdk import Aws, Duration, Fn, RemovalPolicy
from aws_cdk import aws_backup as backup
from aws_cdk import aws_events as events
from aws_cdk import aws_rds as rds
from constructs import Construct

from infra.data.database import Database
from infra.setting_types import BackupSettings

_START_WITHIN = Duration.hours(1)


class DatabaseBackup(Construct):
    """A vault, and a plan that backs up the database once a day.

    Snapshots of RDS keep the database's key; a copy gets the key of its vault.
    https://docs.aws.amazon.com/aws-backup/latest/devguide/encryption.html

    Args:
        settings: Retention, time and vault of the copies.
        prefix: Prefix of names.
        database: The database.

    Attributes:
        vault: The vault.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        settings: BackupSettings,
        prefix: str,
        database: Database,
    ) -> None:
        super().__init__(scope, construct_id)
        # A vault with backups cannot be deleted, so it stays, and the next stack needs another name.
        unique = Fn.select(0, Fn.split("-", Fn.select(2, Fn.split("/", Aws.STACK_ID))))
        self.vault = backup.BackupVault(
            self,
            "Vault",
            backup_vault_name=f"{prefix}-{unique}",
            removal_policy=RemovalPolicy.RETAIN,
        )
        copies = []
        if settings.copy_vault_arn is not None:
            other = backup.BackupVault.from_backup_vault_arn(self, "CopyVault", settings.copy_vault_arn)
            copies = [
                backup.BackupPlanCopyActionProps(
                    destination_backup_vault=other, delete_after=Duration.days(settings.copy_keep_days)
                )
            ]
        daily = backup.BackupPlanRule(
            rule_name="daily",
            schedule_expression=events.Schedule.cron(hour=str(settings.hour_utc), minute="0"),
            start_window=_START_WITHIN,
            completion_window=Duration.hours(12),
            delete_after=Duration.days(settings.keep_days),
            copy_actions=copies,
        )
        plan = backup.BackupPlan(
            self, "Plan", backup_plan_name=prefix, backup_vault=self.vault, backup_plan_rules=[daily]
        )
        plan.add_selection(
            "Database",
            resources=[
                backup.BackupResource.from_rds_database_cluster(database.instance)
                if isinstance(database.instance, rds.DatabaseCluster)
                else backup.BackupResource.from_rds_database_instance(database.instance)
            ],
        )
