"""Points of the monitoring: metrics, alarms, logs, and the runbook's queries."""

import re
import textwrap
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final

from infra.bundling.bundle import ROOT
from infra.monitoring.alarms import RUNBOOK
from infra.verification.points import AwsPoint, require, wait_for
from infra.verification.stage import DeployedStage

_TEST_ALARM = "recursion-stopped"
"""An alarm that rolls nothing back."""
_QUERY_METRICS = 12
_RUNNING = ("Scheduled", "Running", "Unknown")


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


def _log_retention(stage: DeployedStage) -> str:
    name, paginator = stage.settings.prefix, stage.aws("logs").get_paginator("describe_log_groups")
    prefixes = [
        f"/aws/{service.format(name)}"
        for service in ("lambda/{}-", "apigateway/{}", "rds/instance/{}/", "rds/cluster/{}/", "rds/proxy/{}")
    ]
    prefixes += [f"API-Gateway-Execution-Logs_{api}/" for api in stage.resources("AWS::ApiGateway::RestApi")]
    groups = [
        group
        for prefix in prefixes
        for group in paginator.paginate(logGroupNamePrefix=prefix).search("logGroups[]")
    ]
    endless = [group["logGroupName"] for group in groups if "retentionInDays" not in group]
    require(groups, "there are no log groups")
    require(not endless, f"kept for ever: {', '.join(endless)}")
    return f"{len(groups)} log groups, each with a retention"


def _runbook_queries(stage: DeployedStage) -> str:
    """Run each query over the last quarter of an hour; the fields of lines that it has not are not shown."""
    logs, now = stage.aws("logs"), int(time.time())
    begun, absent = [], set()
    for group, query in runbook_queries((ROOT / RUNBOOK).read_text(encoding="utf-8")):
        name = group.replace("$P", stage.settings.prefix)
        span = {"startTime": now - 900, "endTime": now}
        try:
            started = logs.start_query(logGroupName=name, queryString=query, **span)
        except logs.exceptions.ResourceNotFoundException:
            absent.add(name)
        else:
            begun.append((query, started["queryId"]))
    require(begun, "none of the runbook's log groups exists")
    for query, query_id in begun:

        def ended(query_id: str = query_id) -> str | None:
            status: str = logs.get_query_results(queryId=query_id)["status"]
            return status if status not in _RUNNING else None

        status = wait_for(ended, what=f"the end of: {query}")
        require(status == "Complete", f"{status}: {query}")
    return f"{len(begun)} queries complete; log groups that the stage has not: {sorted(absent) or 'none'}"


def runbook_queries(text: str) -> Iterator[tuple[str, str]]:
    """Yield the log group, named before it, and the text of each query of Logs Insights."""
    group = ""
    for block in text.split("\n\n"):
        if block.startswith(("    filter ", "    stats ")):
            yield group, textwrap.dedent(block)
        elif named := re.findall(r"/aws/[\w/-]*\$P[\w/-]*", block):
            group = named[-1]


MONITORING_POINTS: Final = (
    AwsPoint("metrics", "CloudWatch extracts the metrics from the logs", _metrics),
    AwsPoint("log-retention", "every log group has a retention", _log_retention),
    AwsPoint("runbook-queries", "the runbook's queries complete", _runbook_queries),
    AwsPoint("alarms", "the alarms exist, and none fires", _alarms),
    AwsPoint("alarm-notifies", "an alarm publishes to the encrypted topic", _alarm_notifies),
)
