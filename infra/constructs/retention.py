"""Retention of data and logs."""

from aws_cdk import RemovalPolicy
from aws_cdk import aws_logs as logs
from constructs import Construct

from infra.constructs.encryption import customer_key
from infra.setting_types import LogDays
from infra.stage_settings import StageSettings

_RETENTION = {
    1: logs.RetentionDays.ONE_DAY,
    7: logs.RetentionDays.ONE_WEEK,
    14: logs.RetentionDays.TWO_WEEKS,
    30: logs.RetentionDays.ONE_MONTH,
    90: logs.RetentionDays.THREE_MONTHS,
    365: logs.RetentionDays.ONE_YEAR,
}


def removal(stage: StageSettings) -> RemovalPolicy:
    """Return the removal policy of data when its stack is deleted.

    A stage that keeps data retains everything except the resources of a failed first deployment, whose names
    would block the next one. https://docs.aws.amazon.com/AWSCloudFormation/latest/UserGuide/aws-attribute-deletionpolicy.html
    """
    return RemovalPolicy.RETAIN_ON_UPDATE_OR_DELETE if stage.keep_data else RemovalPolicy.DESTROY


def log_group(
    scope: Construct, construct_id: str, stage: StageSettings, name: str, *, days: LogDays | None = None
) -> logs.LogGroup:
    """Create a log group, encrypted with the stage's key.

    Args:
        scope: Parent construct.
        construct_id: Id of the group.
        stage: The stage's settings.
        name: Name of the group.
        days: Retention; default: ``StageSettings.log_retention_days``.
    """
    return logs.LogGroup(
        scope,
        construct_id,
        log_group_name=name,
        encryption_key=customer_key(scope, stage),
        retention=_RETENTION[days or stage.log_retention_days],
        removal_policy=removal(stage),
    )
