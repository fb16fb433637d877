"""Points of the monitoring: metrics, dashboard, alarms, budget."""

import json
from datetime import UTC, datetime
from typing import Any, Final

from infra.verification.points import AwsPoint, PointSkippedError, require, wait_for
from infra.verification.stage import DeployedStage

_TEST_ALARM = "recursion-stopped"
"""An alarm that rolls nothing back."""
_QUERY_METRICS = 12


def _metrics(stage: DeployedStage) -> str:
    pages = (
        stage.aws("cloudwatch")
        .get_paginator("list_metrics")
        .paginate(
            Namespace=stage.settings.metrics_namespace, Dimensions=[{"Name": "service", "Value": "query"}]
        )
    )
    names = set(pages.search("Metrics[].MetricName"))
    require(len(names) >= _QUERY_METRICS, f"only {len(names)} metrics of the query function: {sorted(names)}")
    return f"{len(names)} metrics of the query function"


def _alarms(stage: DeployedStage) -> str:
    pages = stage.aws("cloudwatch").get_paginator("describe_alarms")
    found = pages.paginate(
        AlarmNamePrefix=f"{stage.settings.prefix}-", AlarmTypes=["MetricAlarm", "CompositeAlarm"]
    )
    alarms = list(found.search("[MetricAlarms, CompositeAlarms][]"))
    ringing = sorted(alarm["AlarmName"] for alarm in alarms if alarm["StateValue"] == "ALARM")
    require(alarms, "there is no alarm")
    require(not ringing, f"firing: {', '.join(ringing)}")
    if stage.settings.probe is not None:
        down = [one for one in alarms if one["AlarmName"] == f"{stage.settings.prefix}-service-down"]
        require(down and down[0].get("AlarmActions"), "service-down does not exist, or notifies nobody")
    return f"{len(alarms)} alarms, none firing"


def _alarm_notifies(stage: DeployedStage) -> str:
    """Set one alarm to ALARM for an evaluation; its subscribers get a message, and another when it ends."""
    cloudwatch, name = stage.aws("cloudwatch"), f"{stage.settings.prefix}-{_TEST_ALARM}"
    before = datetime.now(UTC)
    cloudwatch.set_alarm_state(AlarmName=name, StateValue="ALARM", StateReason="make verify")

    def published() -> str | None:
        history = cloudwatch.describe_alarm_history(
            AlarmName=name, HistoryItemType="Action", StartDate=before
        )
        return next((item["HistorySummary"] for item in history["AlarmHistoryItems"]), None)

    summary = wait_for(published, what="the alarm's action")
    require(summary.startswith("Successfully executed"), summary)
    return "an alarm published to the encrypted topic; it ends with its next evaluation"


def _dashboard(stage: DeployedStage) -> str:
    """Look for each metric of the dashboard; CloudWatch lists those with values in the last two weeks."""
    if not stage.settings.monitoring.dashboard:
        raise PointSkippedError("the stage has no dashboard")
    cloudwatch = stage.aws("cloudwatch")
    body = json.loads(cloudwatch.get_dashboard(DashboardName=stage.settings.prefix)["DashboardBody"])
    shown = sorted(dashboard_metrics(body))
    absent = []
    for namespace, name, *dimensions in shown:
        names, values = dimensions[::2], dimensions[1::2]
        wanted = [{"Name": one, "Value": value} for one, value in zip(names, values, strict=True)]
        listed = cloudwatch.list_metrics(Namespace=namespace, MetricName=name, Dimensions=wanted)["Metrics"]
        if all(len(metric["Dimensions"]) != len(wanted) for metric in listed):
            absent.append(f"{namespace} {name}")
    require(len(absent) < len(shown), "no metric of the dashboard has values")
    if absent:
        raise PointSkippedError(
            f"without values in two weeks, of {len(shown)}: {', '.join(sorted(set(absent)))}"
        )
    return f"{len(shown)} metrics of the dashboard have values"


def dashboard_metrics(body: dict[str, Any]) -> set[tuple[str, ...]]:
    """Return the metrics of a dashboard's body: namespace, name, and dimensions as name, value, name, ...

    https://docs.aws.amazon.com/AmazonCloudWatch/latest/APIReference/CloudWatch-Dashboard-Body-Structure.html
    """
    lines = [line for widget in body["widgets"] for line in widget["properties"].get("metrics", ())]
    found = (tuple(part for part in line if isinstance(part, str)) for line in lines)
    return {metric for metric in found if metric}  # an expression has none


def _budget(stage: DeployedStage) -> str:
    """Compare the month's budget with the settings, and see that it counts."""
    limit = stage.settings.monthly_budget_dollars
    if limit is None:
        raise PointSkippedError("the stage has no budget")
    budgets = stage.aws("budgets")
    named = {
        "AccountId": stage.aws("sts").get_caller_identity()["Account"],
        "BudgetName": f"{stage.settings.prefix}-{stage.region}",
    }
    found = budgets.describe_budget(**named)["Budget"]
    amount = float(found["BudgetLimit"]["Amount"])
    require(amount == limit, f"the limit is {amount:g} $, not {limit} $")
    notifications = budgets.describe_notifications_for_budget(**named)["Notifications"]
    kinds = sorted(one["NotificationType"] for one in notifications)
    require(kinds == ["ACTUAL", "FORECASTED"], f"it notifies of {kinds or 'nothing'}")
    for one in notifications:
        subscribers = budgets.describe_subscribers_for_notification(**named, Notification=one)["Subscribers"]
        require(any(s["SubscriptionType"] == "SNS" for s in subscribers), "a notification has no topic")
    spent = float(found.get("CalculatedSpend", {}).get("ActualSpend", {}).get("Amount", 0))
    if not spent:
        raise PointSkippedError(
            "it counts nothing yet: activate the tag `stage` for cost allocation, wait a day"
        )
    return f"{spent:.2f} $ of {limit} $ are spent; it notifies the topic of costs and of forecasts"


MONITORING_POINTS: Final = (
    AwsPoint("metrics", "CloudWatch extracts the metrics from the logs", _metrics),
    AwsPoint("dashboard", "every metric of the dashboard has values", _dashboard),
    AwsPoint("budget", "the budget has its limit and its topic, and counts", _budget),
    AwsPoint("alarms", "the alarms exist, and none fires", _alarms),
    AwsPoint("alarm-notifies", "an alarm publishes to the encrypted topic", _alarm_notifies),
)
