"""How long CloudWatch keeps logs."""

from aws_cdk import aws_logs as logs

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
