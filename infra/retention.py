"""How long things are kept: lines of logs, and what a stack leaves behind."""

from aws_cdk import RemovalPolicy
from aws_cdk import aws_logs as logs

from infra.settings import StageSettings

_RETENTION = {
    1: logs.RetentionDays.ONE_DAY,
    7: logs.RetentionDays.ONE_WEEK,
    14: logs.RetentionDays.TWO_WEEKS,
    30: logs.RetentionDays.ONE_MONTH,
    90: logs.RetentionDays.THREE_MONTHS,
    365: logs.RetentionDays.ONE_YEAR,
}


def retention(days: int) -> logs.RetentionDays:
    """CloudWatch's word for a number of days.

    Raises:
        ValueError: CloudWatch does not keep logs for so many days.
    """
    if days not in _RETENTION:
        raise ValueError(f"Logs are kept {', '.join(map(str, _RETENTION))} days, not {days}.")
    return _RETENTION[days]


def removal(stage: StageSettings) -> RemovalPolicy:
    """What becomes of data when its stack is deleted.

    Of a stage that keeps data, everything stays, but for what a failed first deployment has made: its names
    would refuse the next one. https://docs.aws.amazon.com/AWSCloudFormation/latest/UserGuide/aws-attribute-deletionpolicy.html
    """
    return RemovalPolicy.RETAIN_ON_UPDATE_OR_DELETE if stage.keep_data else RemovalPolicy.DESTROY
