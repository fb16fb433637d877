"""The alarms of a deployment, and the topic they tell of their changes."""

from collections.abc import Sequence

from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_cloudwatch_actions as actions
from constructs import Construct

from infra.alarm_rule import AlarmRule
from infra.alarm_rules import alarm_rules
from infra.alarm_topic import AlarmTopic
from infra.bulk_load import BulkLoad
from infra.log_metrics import LogMetrics
from infra.python_function import PythonFunction
from infra.service_metrics import FIVE_MINUTES, ServiceMetrics
from infra.settings import StageSettings

RUNBOOK = "docs/runbook.md"


class Alarms(Construct):
    """Few alarms, each of which means that somebody should look.

    Args:
        scope: Of the construct.
        construct_id: Of the construct.
        stage: The stage's settings.
        query: The query function.
        ingest: The ingest function.
        bulk_load: The bulk loads.

    Attributes:
        topic: Where they publish.
        all: Every alarm, in the order of the runbook.
        deployment_alarms: Those that take a new version of the query function back.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        stage: StageSettings,
        query: PythonFunction,
        ingest: PythonFunction,
        bulk_load: BulkLoad,
    ) -> None:
        super().__init__(scope, construct_id)
        self._stage = stage
        LogMetrics(self, "LogMetrics", stage=stage, query=query, key_readers=[query, ingest])
        self.topic = AlarmTopic(self, "Topic", stage).topic
        failed_loads = bulk_load.state_machine.metric_failed(statistic="Sum", period=FIVE_MINUTES)
        rules = alarm_rules(stage, ServiceMetrics(stage), bulk_load=failed_loads)
        made = [(rule, self._make(rule)) for rule in rules]
        self.all: Sequence[cloudwatch.Alarm] = [alarm for _, alarm in made]
        self.deployment_alarms: Sequence[cloudwatch.Alarm] = [
            alarm for rule, alarm in made if rule.stops_deployment
        ]

    def _make(self, rule: AlarmRule) -> cloudwatch.Alarm:
        operator = cloudwatch.ComparisonOperator
        alarm = cloudwatch.Alarm(
            self,
            rule.name,
            alarm_name=f"{self._stage.prefix}-{rule.name}",
            alarm_description=f"{rule.means} What to do: {RUNBOOK}#{rule.name}",
            metric=rule.metric,
            threshold=rule.threshold,
            comparison_operator=operator.LESS_THAN_THRESHOLD
            if rule.below
            else operator.GREATER_THAN_OR_EQUAL_TO_THRESHOLD,
            evaluation_periods=rule.periods,
            datapoints_to_alarm=rule.breaching or rule.periods,
            treat_missing_data=rule.missing,
        )
        if rule.tells:
            alarm.add_alarm_action(actions.SnsAction(self.topic))
            alarm.add_ok_action(actions.SnsAction(self.topic))
        return alarm
