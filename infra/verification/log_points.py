"""Points that logs show: retention, starts and exits, slow statements, the runbook's queries."""

import json
import re
import textwrap
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from infra.bundling.bundle import ROOT
from infra.monitoring.alarms import RUNBOOK
from infra.verification.points import AwsPoint, PointSkippedError, require, wait_for
from infra.verification.stage import DeployedStage

_LONGEST_INIT_MS = 2000
"""With bytecode; compiling the sources at the start takes longer."""
_RUNNING = ("Scheduled", "Running", "Unknown")


def _of_last_day(stage: DeployedStage, group: str, pattern: str) -> list[dict[str, Any]]:
    """Return the events of the last day that match a filter pattern of CloudWatch."""
    return list(_looked_up(stage, group, pattern))


def _looked_up(stage: DeployedStage, group: str, pattern: str) -> Iterator[dict[str, Any]]:
    began = datetime.now(UTC) - timedelta(days=1)
    pages = (
        stage.aws("logs")
        .get_paginator("filter_log_events")
        .paginate(logGroupName=group, startTime=int(began.timestamp() * 1000), filterPattern=pattern)
    )
    yield from pages.search("events[]")


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


def _started(stage: DeployedStage) -> str:
    """Read Lambda's own lines on starts of the query function."""
    kind = "platform.restoreReport" if stage.settings.start == "snap_start" else "platform.initReport"
    events = _of_last_day(stage, f"/aws/lambda/{stage.name('query')}", f'{{ $.type = "{kind}" }}')
    records = [json.loads(event["message"])["record"] for event in events]
    if not records:
        raise PointSkippedError(f"no {kind} in the last day")
    failed = [record for record in records if record.get("status") not in (None, "success")]
    require(not failed, f"{len(failed)} of {len(records)} starts failed")
    longest_ms = max(record.get("metrics", {}).get("durationMs", 0.0) for record in records)
    is_short = kind != "platform.initReport" or longest_ms < _LONGEST_INIT_MS
    require(is_short, f"{len(records)} × {kind}, up to {longest_ms:.0f} ms: is the bytecode used?")
    return f"{len(records)} × {kind}, at most {longest_ms:.0f} ms"


def _exits(stage: DeployedStage) -> str:
    """Look for processes of the query function that ended, and responses that Lambda did not take."""
    group = f"/aws/lambda/{stage.name('query')}"
    reports = len(_of_last_day(stage, group, '"platform.report"'))
    if not reports:
        raise PointSkippedError("no invocation in the last day")
    ended = len(_of_last_day(stage, group, '"Runtime.ExitError"'))
    require(not ended, f"{ended} × Runtime.ExitError at {reports} invocations of the last day")
    untaken = len(_of_last_day(stage, group, '"The response was not taken"'))
    return f"{reports} invocations in the last day, no Runtime.ExitError; {untaken} responses not taken"


def _slow_statements(stage: DeployedStage) -> str:
    """Read what PostgreSQL logs of statements above ``log_min_duration_statement``."""
    kind = "cluster" if stage.settings.database.engine == "aurora" else "instance"
    group = f"/aws/rds/{kind}/{stage.settings.prefix}/postgresql"
    values = len(_of_last_day(stage, group, '"arameters: $1"'))  # "Parameters:", or "parameters:" before 17
    require(not values, f"{values} lines have the values of statements")
    slow = len(_of_last_day(stage, group, '"duration:"'))
    if not slow:
        raise PointSkippedError("no slow statement in the last day")
    return f"{slow} slow statements in the last day, none with its values"


def _spans(stage: DeployedStage) -> str:
    """Read the log writer's counts of exported traces, and look for the spans at CloudWatch."""
    if stage.settings.otel is None:
        raise PointSkippedError("the stage has no `otel`")
    writer = f"/aws/lambda/{stage.name('log_writer')}"
    exported, dropped = (
        len(_of_last_day(stage, writer, f'"traces.{what}"')) for what in ("exported", "dropped")
    )
    require(not dropped, f"traces were dropped {dropped} times in the last day, exported {exported} times")
    if not exported:
        raise PointSkippedError("no trace in the last day: query, wait, and repeat")
    described = f"traces were exported {exported} times in the last day, none was dropped"
    if stage.settings.otel.endpoint is not None:
        return described
    spans = _looked_up(stage, "aws/spans", '"vectorforge"')
    arrived = any(f'"{stage.settings.stage}"' in span["message"] for span in spans)
    require(arrived, f"{described}, and the log group aws/spans has none of them")
    return f"{described}; spans are in the log group aws/spans"


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


LOG_POINTS: Final = (
    AwsPoint("log-retention", "every log group has a retention", _log_retention),
    AwsPoint("starts", "processes of the query function start or are restored", _started),
    AwsPoint("exits", "no process of the query function ends early", _exits),
    AwsPoint("slow-statements", "slow statements are logged, without their values", _slow_statements),
    AwsPoint("spans", "queries' spans arrive at CloudWatch, none is dropped", _spans),
    AwsPoint("runbook-queries", "the runbook's queries complete", _runbook_queries),
)
