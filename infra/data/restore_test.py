"""A monthly restore of the newest backup into a temporary database, by AWS Backup's restore testing."""

from aws_cdk import Fn
from aws_cdk import aws_backup as backup
from aws_cdk import aws_iam as iam
from aws_cdk import aws_rds as rds
from constructs import Construct

from infra.data.database import Database
from infra.setting_types import RESTORED_HOURS, BackupSettings

_AFTER_BACKUP_H = 6
"""A backup starts within an hour of its time; the newest one that is complete is restored."""
_START_WITHIN_H = 6


class RestoreTest(Construct):
    """Restores on the first of each month, and deletes the restored database after ``RESTORED_HOURS``.

    An instance is restored next to the original, without a second zone, and a cluster without instances. Both
    accept tokens of IAM, so that the migrate function can read the restored instance.
    https://docs.aws.amazon.com/aws-backup/latest/devguide/restore-testing-inferred-metadata.html

    Args:
        settings: Time of the backups.
        prefix: Prefix of names.
        vault: Vault of the backups.
        database: The database, whose subnets and security group the restored one has.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        settings: BackupSettings,
        prefix: str,
        vault: backup.IBackupVault,
        database: Database,
    ) -> None:
        super().__init__(scope, construct_id)
        role = iam.Role(
            self,
            "Role",
            assumed_by=iam.ServicePrincipal("backup.amazonaws.com"),
            description=f"Lets AWS Backup restore {prefix} into a temporary database, and delete that",
            managed_policies=[
                iam.ManagedPolicy.from_aws_managed_policy_name(
                    "service-role/AWSBackupServiceRolePolicyForRestores"
                )
            ],
        )
        hour = (settings.hour_utc + _AFTER_BACKUP_H) % 24
        plan = backup.CfnRestoreTestingPlan(
            self,
            "Plan",
            restore_testing_plan_name=restore_plan_name(prefix),
            schedule_expression=f"cron(0 {hour} 1 * ? *)",
            start_window_hours=_START_WITHIN_H,
            recovery_point_selection=backup.CfnRestoreTestingPlan.RestoreTestingRecoveryPointSelectionProperty(
                algorithm="LATEST_WITHIN_WINDOW",
                include_vaults=[vault.backup_vault_arn],
                recovery_point_types=["SNAPSHOT"],
                selection_window_days=min(settings.keep_days, 30),
            ),
        )
        selection = backup.CfnRestoreTestingSelection(
            self,
            "Selection",
            restore_testing_plan_name=plan.ref,
            restore_testing_selection_name="database",
            protected_resource_type="Aurora" if isinstance(database.instance, rds.DatabaseCluster) else "RDS",
            protected_resource_arns=[database.arn],
            iam_role_arn=role.role_arn,
            restore_metadata_overrides={
                "dbSubnetGroupName": database.subnet_group,
                "vpcSecurityGroupIds": Fn.join("", ['["', database.group.security_group_id, '"]']),
                "enableIamDatabaseAuthentication": "true",
            },
            validation_window_hours=RESTORED_HOURS,
        )
        selection.node.add_dependency(role)


def restore_plan_name(prefix: str) -> str:
    """Return the plan's name, for which AWS Backup accepts letters, digits and underscores only."""
    return prefix.replace("-", "_")
