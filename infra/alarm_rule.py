"""What an alarm consists of, apart from a stage's names."""

from dataclasses import dataclass

from aws_cdk import aws_cloudwatch as cloudwatch


@dataclass(frozen=True, slots=True)
class AlarmRule:
    """One alarm.

    Rings when ``breaching`` of the last ``periods`` points are at or above ``threshold``; ``below`` turns it
    round.
    """

    name: str
    """Without the stage's prefix; a heading of docs/runbook.md."""
    means: str
    metric: cloudwatch.IMetric
    threshold: float
    periods: int = 1
    breaching: int | None = None
    """None: all of them."""
    below: bool = False
    missing: cloudwatch.TreatMissingData = cloudwatch.TreatMissingData.NOT_BREACHING
    stops_deployment: bool = False
    """Whether a new version goes back while this rings. Such a rule refers to no resource of the stack."""
    tells: bool = True
    """Whether somebody is told; of what only stops deployments, whoever deploys is told by that."""
