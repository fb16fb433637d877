"""A monthly budget of a stage with AWS Budgets, which notifies the alarms' topic."""

from aws_cdk import Stack
from aws_cdk import aws_budgets as budgets
from aws_cdk import aws_sns as sns
from constructs import Construct

from infra.stage_settings import StageSettings

_SPENT_PERCENT = 80
_FORECAST_PERCENT = 100


class Budget(Construct):
    """Counts what is tagged with the stage, once the tag is activated for cost allocation.

    https://docs.aws.amazon.com/awsaccountbilling/latest/aboutv2/activating-tags.html

    Args:
        dollars: Limit of a month.
        topic: Topic that is notified; ``AlarmTopic`` lets AWS Budgets publish.
    """

    def __init__(
        self, scope: Construct, construct_id: str, *, stage: StageSettings, dollars: int, topic: sns.ITopic
    ) -> None:
        super().__init__(scope, construct_id)
        subscriber = budgets.CfnBudget.SubscriberProperty(subscription_type="SNS", address=topic.topic_arn)
        budget = budgets.CfnBudget(
            self,
            "Budget",
            budget=budgets.CfnBudget.BudgetDataProperty(
                budget_name=f"{stage.prefix}-{Stack.of(self).region}",  # unique in the account
                budget_type="COST",
                time_unit="MONTHLY",
                budget_limit=budgets.CfnBudget.SpendProperty(amount=dollars, unit="USD"),
                cost_filters={"TagKeyValue": [f"user:stage${stage.stage}"]},
            ),
            notifications_with_subscribers=[
                budgets.CfnBudget.NotificationWithSubscribersProperty(
                    notification=budgets.CfnBudget.NotificationProperty(
                        notification_type=kind,
                        comparison_operator="GREATER_THAN",
                        threshold=percent,
                        threshold_type="PERCENTAGE",
                    ),
                    subscribers=[subscriber],
                )
                for kind, percent in (("ACTUAL", _SPENT_PERCENT), ("FORECASTED", _FORECAST_PERCENT))
            ],
        )
        if (policy := topic.node.try_find_child("Policy")) is not None:
            budget.node.add_dependency(policy)  # AWS Budgets checks that it may publish
