"""The alarms of a deployment, and their SNS topic: encrypted, TLS only."""

from collections.abc import Sequence

from aws_cdk import ArnFormat, CfnOutput, Duration, RemovalPolicy, Stack
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_cloudwatch_actions as actions
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sns_subscriptions as subscriptions
from constructs import Construct

from infra.constructs.python_function import PythonFunction
from infra.functions.bulk_load import BulkLoad
from infra.monitoring.alarm_rules import AlarmRule, alarm_rules
from infra.monitoring.database_alarm_rules import database_alarm_rules
from infra.monitoring.metrics import FIVE_MINUTES, LogMetrics, ServiceMetrics
from infra.settings import StageSettings

RUNBOOK = "docs/operate/runbook.md"


class Alarms(Construct):
    """All alarms; each one needs a human action.

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
        rules = (*alarm_rules(stage, metrics, bulk_load=failed_loads), *database_alarm_rules(stage, metrics))
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


class AlarmTopic(Construct):
    """A topic that only the stage's alarms may publish to.

    It has its own key: CloudWatch cannot use the AWS managed key of SNS.
    https://docs.aws.amazon.com/sns/latest/dg/sns-key-management.html#compatibility-with-aws-services

    Attributes:
        topic: The topic.
    """

    def __init__(self, scope: Construct, construct_id: str, stage: StageSettings) -> None:
        super().__init__(scope, construct_id)
        stack = Stack.of(self)
        alarms = stack.format_arn(
            service="cloudwatch",
            resource="alarm",
            resource_name=f"{stage.prefix}-*",
            arn_format=ArnFormat.COLON_RESOURCE_NAME,
        )
        conditions = {
            "StringEquals": {"aws:SourceAccount": stack.account},
            "ArnLike": {"aws:SourceArn": alarms},
        }
        cloudwatch = iam.ServicePrincipal("cloudwatch.amazonaws.com")
        key = kms.Key(
            self,
            "Key",
            description=f"VectorForge ({stage.stage}): messages of alarms",
            enable_key_rotation=True,
            rotation_period=_ROTATION,
            pending_window=Duration.days(7),
            removal_policy=RemovalPolicy.DESTROY,
        )
        key.add_to_resource_policy(
            iam.PolicyStatement(
                principals=[cloudwatch],
                actions=["kms:Decrypt", "kms:GenerateDataKey"],
                resources=["*"],
                conditions=conditions,
            )
        )
        self.topic = sns.Topic(
            self,
            "Topic",
            topic_name=f"{stage.prefix}-alarms",
            display_name=f"VectorForge {stage.stage}",
            master_key=key,
            enforce_ssl=True,
        )
        self.topic.add_to_resource_policy(
            iam.PolicyStatement(
                sid="Alarms",
                principals=[cloudwatch],
                actions=["sns:Publish"],
                resources=[self.topic.topic_arn],
                conditions=conditions,
            )
        )
        if stage.alarm_email is not None:
            self.topic.add_subscription(subscriptions.EmailSubscription(stage.alarm_email))
        CfnOutput(
            stack,
            "AlarmTopic",
            description="Topic of the alarms: aws sns subscribe --protocol email --topic-arn ...",
            value=self.topic.topic_arn,
        )
