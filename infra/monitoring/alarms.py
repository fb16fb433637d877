"""The alarms of a deployment, and their SNS topic: encrypted, TLS only."""

from collections.abc import Sequence
from dataclasses import dataclass

from aws_cdk import ArnFormat, CfnOutput, Duration, RemovalPolicy, Stack
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_cloudwatch_actions as actions
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sns_subscriptions as subscriptions
from constructs import Construct

from infra.constructs.arns import named_arn
from infra.constructs.encryption import customer_key
from infra.constructs.python_function import PythonFunction
from infra.functions.bulk_load import BulkLoad
from infra.monitoring.alarm_rules import AlarmRule, alarm_rules
from infra.monitoring.database_alarm_rules import database_alarm_rules
from infra.monitoring.metrics import FIVE_MINUTES, LogMetrics, ServiceMetrics
from infra.monitoring.objective_alarm_rules import objective_alarm_rules
from infra.stage_settings import StageSettings

RUNBOOK = "docs/operate/runbook.md"
ESSENTIAL = frozenset(
    {
        "query-failing", "query-function-errors", "api-failing", "url-failing", "authorizer-errors",
        "keys-unreadable", "query-log-dead-letters", "query-log-printed", "ingestion-dead-letters",
        "migrate-errors", "bulk-load-failed", "database-cpu", "database-credits", "database-storage",
        "database-connections",
    }
)  # fmt: skip
"""Alarms of a stage that pays for no others: outages, losses, and a database that is about to stop."""
_SERVICE_DOWN = frozenset({"probe-failed", "query-failing", "api-failing", "url-failing"})


class Alarms(Construct):
    """The alarms of the stage's selection; each one needs a human action.

    Args:
        query: The query function.
        ingest: The ingest function.
        bulk_load: The bulk loads.

    Attributes:
        topic: Topic that they publish to.
        all: Every alarm, in the order of the runbook.
        deployment_alarms: Alarms that roll back a new version of the query function.
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
        metrics = ServiceMetrics(stage)
        rules = (
            *alarm_rules(stage, metrics, bulk_load=failed_loads),
            *database_alarm_rules(stage, metrics),
            *objective_alarm_rules(stage, metrics),
        )
        # Where the stage itself bounds the queries at a time, more of them fail.
        essential = ESSENTIAL | {"query-throttled"} if stage.query.max_concurrency else ESSENTIAL
        chosen = [rule for rule in rules if stage.monitoring.alarms == "all" or rule.name in essential]
        made = [(rule, self._make(rule)) for rule in chosen]
        if stage.probe is not None:
            self._service_down([alarm for rule, alarm in made if rule.name in _SERVICE_DOWN])
        self.all: Sequence[cloudwatch.Alarm] = [alarm for _, alarm in made]
        self.deployment_alarms: Sequence[cloudwatch.Alarm] = [
            alarm for rule, alarm in made if rule.stops_deployment
        ]

    def _service_down(self, alarms: Sequence[cloudwatch.Alarm]) -> None:
        """Combine the alarms that each mean an outage: the one to wake a person with."""
        down = cloudwatch.CompositeAlarm(
            self,
            "service-down",
            composite_alarm_name=f"{self._stage.prefix}-service-down",
            alarm_description=f"Callers get no answers. What to do: {RUNBOOK}#service-down",
            alarm_rule=cloudwatch.AlarmRule.any_of(
                *(cloudwatch.AlarmRule.from_alarm(alarm, cloudwatch.AlarmState.ALARM) for alarm in alarms)
            ),
        )
        down.add_alarm_action(actions.SnsAction(self.topic))
        down.add_ok_action(actions.SnsAction(self.topic))

    def _make(self, rule: AlarmRule) -> cloudwatch.Alarm:
        operator = cloudwatch.ComparisonOperator
        alarm = cloudwatch.Alarm(
            self,
            rule.name,
            alarm_name=f"{self._stage.prefix}-{rule.name}",
            alarm_description=f"{rule.meaning} What to do: {RUNBOOK}#{rule.name}",
            metric=rule.metric,
            threshold=rule.threshold,
            comparison_operator=operator.LESS_THAN_THRESHOLD
            if rule.below
            else operator.GREATER_THAN_OR_EQUAL_TO_THRESHOLD,
            evaluation_periods=rule.periods,
            datapoints_to_alarm=rule.breaching or rule.periods,
            treat_missing_data=rule.missing,
        )
        if rule.notifies:
            alarm.add_alarm_action(actions.SnsAction(self.topic))
            alarm.add_ok_action(actions.SnsAction(self.topic))
        return alarm


_ROTATION = Duration.days(2560)
"""The maximum: the first two rotations of a key raise its price, and messages are not secret."""


@dataclass(frozen=True, slots=True)
class _Publisher:
    """An AWS service that publishes to the topic for resources of this account."""

    sid: str
    principal: str
    source_arn: str

    def statement(self, stack: Stack, allowed: list[str], *, on: str) -> iam.PolicyStatement:
        return iam.PolicyStatement(
            sid=self.sid,
            principals=[iam.ServicePrincipal(self.principal)],
            actions=allowed,
            resources=[on],
            conditions={
                "StringEquals": {"aws:SourceAccount": stack.account},
                "ArnLike": {"aws:SourceArn": self.source_arn},
            },
        )


class AlarmTopic(Construct):
    """A topic that only the stage's alarms and its budget may publish to.

    With ``MonitoringSettings.topic_key`` it has a key of its own: CloudWatch cannot use the AWS managed one.
    https://docs.aws.amazon.com/sns/latest/dg/sns-key-management.html#compatibility-with-aws-services

    Attributes:
        topic: The topic.
    """

    def __init__(self, scope: Construct, construct_id: str, stage: StageSettings) -> None:
        super().__init__(scope, construct_id)
        stack = Stack.of(self)
        alarms = named_arn(self, "cloudwatch", "alarm", f"{stage.prefix}-*")
        publishers = [_Publisher("Alarms", "cloudwatch.amazonaws.com", alarms)]
        if stage.monthly_budget_dollars is not None:
            budgets = stack.format_arn(
                service="budgets", region="", resource="*", arn_format=ArnFormat.NO_RESOURCE_NAME
            )
            publishers.append(_Publisher("Budgets", "budgets.amazonaws.com", budgets))
        key = customer_key(self, stage)
        if key is None and stage.monitoring.topic_key:
            key = self._make_key(stage, publishers)
        self.topic = sns.Topic(
            self,
            "Topic",
            topic_name=f"{stage.prefix}-alarms",
            display_name=f"VectorForge {stage.stage}",
            master_key=key,
            enforce_ssl=True,
        )
        for publisher in publishers:
            allowed = publisher.statement(stack, ["sns:Publish"], on=self.topic.topic_arn)
            self.topic.add_to_resource_policy(allowed)
        if stage.alarm_email is not None:
            self.topic.add_subscription(subscriptions.EmailSubscription(stage.alarm_email))
        CfnOutput(
            stack,
            "AlarmTopic",
            description="Topic of the alarms: aws sns subscribe --protocol email --topic-arn ...",
            value=self.topic.topic_arn,
        )

    def _make_key(self, stage: StageSettings, publishers: Sequence[_Publisher]) -> kms.Key:
        key = kms.Key(
            self,
            "Key",
            description=f"VectorForge ({stage.stage}): messages of alarms",
            enable_key_rotation=True,
            rotation_period=_ROTATION,
            pending_window=Duration.days(7),
            removal_policy=RemovalPolicy.DESTROY,
        )
        for publisher in publishers:
            key.add_to_resource_policy(
                publisher.statement(Stack.of(self), ["kms:Decrypt", "kms:GenerateDataKey"], on="*")
            )
        return key
