"""Who is told when an alarm rings: an SNS topic, encrypted, over TLS only."""

from aws_cdk import ArnFormat, CfnOutput, Duration, RemovalPolicy, Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sns_subscriptions as subscriptions
from constructs import Construct

from infra.settings import StageSettings

_ROTATION = Duration.days(2560)
"""The longest there is: the first two rotations of a key raise its price, and no message is a secret."""


class AlarmTopic(Construct):
    """A topic that the stage's alarms may publish to, and nobody else.

    With a key of its own: CloudWatch may not use the one that AWS manages for SNS.
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
            description="Tells of alarms: aws sns subscribe --protocol email --topic-arn ...",
            value=self.topic.topic_arn,
        )
