"""Alarms and dashboard use only metrics that are sent, and cover three questions. F-005."""

import re
from typing import Any, cast

import pytest

from infra.costs.bill import CUSTOM_METRICS
from infra.monitoring.metrics import KEYS_UNREADABLE, RECORDS_PRINTED
from infra.settings import DEV
from infra.stage_settings import StageSettings
from tests.infra.conftest import VARIANTS
from tests.infra.stack_template import StackTemplate, text
from tests.infra.watched_metrics import (
    WatchedMetric,
    alarm_metrics,
    dashboard_body,
    dashboard_metrics,
    metric,
    sent_metrics,
)

UNWATCHED = {
    "retriever.search.calls",
    "retriever.search.errors",
    "retriever.results_returned",
    "retriever.empty_results",
    "context.build.duration_ms",
    "context.tokens_used",
    "context.chunks_included",
    "context.chunks_truncated",
    "llm.generate.calls",
    "llm.generate.retries",
    "llm.streaming.chunks",
    "pipeline.query.errors",
}
"""Metrics of design A that are sent but not watched; see docs/operate/costs.md for their price."""


WITH_DASHBOARD = [stage for stage in VARIANTS if stage.monitoring.dashboard]


@pytest.fixture(params=WITH_DASHBOARD, ids=lambda stage: stage.stage)
def stage(request: pytest.FixtureRequest) -> StageSettings:
    return cast("StageSettings", request.param)


@pytest.fixture
def alarms(template: StackTemplate) -> dict[str, dict[str, Any]]:
    """Return the alarms by name."""
    return {alarm["AlarmName"]: alarm for alarm in template.of_kind("AWS::CloudWatch::Alarm").values()}


@pytest.fixture
def watched(template: StackTemplate, alarms: dict[str, dict[str, Any]]) -> set[WatchedMetric]:
    """Return all metrics of alarms and the dashboard."""
    of_alarms = {watched for alarm in alarms.values() for watched in alarm_metrics(alarm)}
    return of_alarms | dashboard_metrics(dashboard_body(template))


def test_watched_metrics_are_emitted_with_their_dimensions(
    watched: set[WatchedMetric], template: StackTemplate, stage: StageSettings
) -> None:
    own = {one for one in watched if one.namespace == stage.metrics_namespace}
    counted = {
        metric(change["MetricNamespace"], change["MetricName"])
        for found in template.of_kind("AWS::Logs::MetricFilter").values()
        for change in found["MetricTransformations"]
    }
    assert counted == {metric(stage.metrics_namespace, name) for name in (RECORDS_PRINTED, KEYS_UNREADABLE)}
    sent = sent_metrics(stage.metrics_namespace, stage.prefix)
    names = {(one.name, frozenset(one.values)): one for one in sent | counted}
    for one in own:
        found = names.pop((one.name, frozenset(one.values)), None) or next(
            other for other in sent if other.name == one.name and other.values.keys() == one.values.keys()
        )
        for dimension, value in one.values.items():
            if dimension != "provider":  # only the metrics have the vendors' names
                assert value == found.values[dimension], one
    assert {name for name, _ in names} <= UNWATCHED


def test_functions_emit_metrics_to_stage_namespace(template: StackTemplate, stage: StageSettings) -> None:
    for name, function in template.of_kind("AWS::Lambda::Function").items():
        variables = function["Environment"]["Variables"]
        assert variables["POWERTOOLS_METRICS_NAMESPACE"] == stage.metrics_namespace, name
        assert "VECTORFORGE_CLOUDWATCH_METRICS" not in variables, name  # they watch the default


def test_metrics_bill_counts_emitted_metrics() -> None:
    filters = 2
    for selection, count in CUSTOM_METRICS.items():
        sent = sent_metrics("VectorForge/dev", DEV.prefix, cast("Any", selection))
        assert len(sent) + filters == count, selection


def names_in(app: StackTemplate, data: StackTemplate, stage: StageSettings) -> dict[str, set[str]]:
    """Return the values of each dimension in the templates' resources."""

    def values(template: StackTemplate, kind: str, name: str) -> set[str]:
        return {text(found[name]) for found in template.of_kind(kind).values() if name in found}

    functions = values(app, "AWS::Lambda::Function", "FunctionName")
    aliases = values(app, "AWS::Lambda::Alias", "Name")
    return {
        "FunctionName": functions,
        "Resource": {f"{function}:{alias}" for function in functions for alias in aliases},
        "ApiName": values(app, "AWS::ApiGateway::RestApi", "Name"),
        "Stage": values(app, "AWS::ApiGateway::Stage", "StageName"),
        "QueueName": values(app, "AWS::SQS::Queue", "QueueName"),
        "LogGroupName": values(app, "AWS::Logs::LogGroup", "LogGroupName"),
        "StateMachineArn": set(app.of_kind("AWS::StepFunctions::StateMachine")),
        "DBInstanceIdentifier": values(data, "AWS::RDS::DBInstance", "DBInstanceIdentifier"),
        "RuleName": values(app, "AWS::Events::Rule", "Name"),
        "ProxyName": values(data, "AWS::RDS::DBProxy", "DBProxyName"),
    }


OF_AWS = {
    # https://docs.aws.amazon.com/lambda/latest/dg/monitoring-metrics-types.html and .../urls-monitoring.html
    "AWS/Lambda": "ConcurrentExecutions Duration Errors Invocations RecursiveInvocationsDropped Throttles "
    "Url5xxCount UrlRequestCount",
    # https://docs.aws.amazon.com/apigateway/latest/developerguide/api-gateway-metrics-and-dimensions.html
    "AWS/ApiGateway": "5XXError Count",
    # https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-available-cloudwatch-metrics.html
    "AWS/SQS": "ApproximateAgeOfOldestMessage ApproximateNumberOfMessagesVisible",
    # https://docs.aws.amazon.com/AmazonRDS/latest/UserGuide/rds-metrics.html, rds-proxy.monitoring.html
    "AWS/RDS": "CPUSurplusCreditsCharged CPUUtilization DatabaseConnections FreeableMemory FreeStorageSpace "
    "ReadLatency WriteLatency "
    "DatabaseConnectionsBorrowLatency DatabaseConnectionsCurrentlyBorrowed MaxDatabaseConnectionsAllowed "
    "DatabaseConnectionsCurrentlySessionPinned QueryDatabaseResponseLatency",
    # https://docs.aws.amazon.com/eventbridge/latest/userguide/eb-monitoring.html
    "AWS/Events": "FailedInvocations",
    # https://docs.aws.amazon.com/step-functions/latest/dg/procedure-cw-metrics.html
    "AWS/States": "ExecutionsFailed",
    # https://docs.aws.amazon.com/AmazonCloudWatch/latest/logs/CloudWatch-Logs-Monitoring-CloudWatch-Metrics.html
    "AWS/Logs": "IncomingBytes",
}


def test_watched_aws_metrics_reference_existing_resources(
    watched: set[WatchedMetric],
    template: StackTemplate,
    data_templates: dict[str, StackTemplate],
    stage: StageSettings,
) -> None:
    there = names_in(template, data_templates[stage.stage], stage)
    for one in watched:
        if one.namespace == stage.metrics_namespace:
            continue
        assert one.name in OF_AWS[one.namespace].split(), one
        assert one.values, one
        for dimension, value in one.values.items():
            assert value in there[dimension], one


def test_dashboard_shows_health_latency_and_cost_in_this_order(template: StackTemplate) -> None:
    widgets = dashboard_body(template)["widgets"]
    headings = [
        widget["properties"]["markdown"].splitlines()[0]
        for widget in widgets
        if widget["type"] == "text" and widget["properties"]["markdown"].startswith("# ")
    ]
    assert headings == ["# Health", "# Latency", "# Cost"]
    places = set[tuple[int, int]]()
    for widget in widgets:
        area = {
            (x, y)
            for x in range(widget["x"], widget["x"] + widget["width"])
            for y in range(widget["y"], widget["y"] + widget["height"])
        }
        assert not places & area  # no overlaps
        assert max(x for x, _ in area) < 24
        places |= area
    rows = {y for _, y in places}
    assert {(x, y) for x in range(24) for y in rows} == places  # and no holes


def test_graphs_label_their_lines(template: StackTemplate, alarms: dict[str, Any]) -> None:
    for widget in dashboard_body(template)["widgets"]:
        properties = widget["properties"]
        if widget["type"] == "metric":
            assert properties["title"]
            lines = [entry[-1] for entry in properties["metrics"] if entry[-1].get("visible", True)]
            labels = [line["label"] for line in lines]
            assert len(set(labels)) == len(labels), properties["title"]
            ids = {entry[-1]["id"] for entry in properties["metrics"] if "id" in entry[-1]}
            for line in lines:
                expression = line.get("expression", "SEARCH(")
                if "SEARCH(" not in expression:
                    assert set(re.findall(r"\b[a-z]\w*", expression)) <= ids, expression
        if widget["type"] == "alarm":
            assert len(properties["alarms"]) == len(alarms)
