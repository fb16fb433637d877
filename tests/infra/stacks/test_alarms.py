"""Alarms as CloudWatch reads them: notifications, and rollback of canaries. F-005."""

import dataclasses
from typing import Any

import pytest

from infra.costs.bill import alarm_metrics as billed_alarm_metrics
from infra.monitoring.alarms import ESSENTIAL
from infra.settings import DEV, PROD
from infra.stage_settings import StageSettings
from tests.infra.stack_template import StackTemplate, text
from tests.infra.watched_metrics import alarm_metrics

TOPIC = "AlarmsTopic"
SILENT = ("new-version-faults",)
"""Alarms for CodeDeploy only: the deployment reports them."""


@pytest.fixture
def alarms(template: StackTemplate) -> dict[str, dict[str, Any]]:
    """Return the alarms by name."""
    return {alarm["AlarmName"]: alarm for alarm in template.of_kind("AWS::CloudWatch::Alarm").values()}


def test_alarms_notify_topic_on_start_and_end(
    alarms: dict[str, dict[str, Any]], stage: StageSettings
) -> None:
    assert len(alarms) >= (21 if stage.monitoring.alarms == "all" else 14)
    for name, alarm in alarms.items():
        rule = name.removeprefix(f"{stage.prefix}-")
        topics = [] if rule in SILENT else [TOPIC]
        assert [text(action) for action in alarm.get("AlarmActions", [])] == topics, name
        assert [text(action) for action in alarm.get("OKActions", [])] == topics, name
        assert alarm["AlarmDescription"].endswith(f" What to do: docs/operate/runbook.md#{rule}"), name
        assert alarm["TreatMissingData"] in ("notBreaching", "breaching", "ignore"), name
        assert alarm["DatapointsToAlarm"] <= alarm["EvaluationPeriods"], name


def test_alarm_metrics_match_billed_count(alarms: dict[str, dict[str, Any]], stage: StageSettings) -> None:
    assert sum(len(alarm_metrics(alarm)) for alarm in alarms.values()) == billed_alarm_metrics(stage)


def test_alarm_topic_is_encrypted_and_accepts_own_alarms_and_budget_only(
    template: StackTemplate, stage: StageSettings
) -> None:
    (topic,) = template.of_kind("AWS::SNS::Topic").values()
    if not stage.monitoring.topic_key:
        assert "KmsMasterKeyId" not in topic
        assert not template.of_kind("AWS::KMS::Key")
        return
    assert text(topic["KmsMasterKeyId"]) == "AlarmsTopicKey.Arn"
    statements = template.of_kind("AWS::SNS::TopicPolicy")["AlarmsTopicPolicy"]["PolicyDocument"]["Statement"]
    tls, allowed, *others = statements
    assert (tls["Effect"], tls["Condition"]) == ("Deny", {"Bool": {"aws:SecureTransport": "false"}})
    _, key_statement, *others_of_key = template.of_kind("AWS::KMS::Key")["AlarmsTopicKey"]["KeyPolicy"][
        "Statement"
    ]
    budgets = ["budgets.amazonaws.com"] if stage.monthly_budget_dollars else []
    for other in (others, others_of_key):
        assert [one["Principal"]["Service"] for one in other] == budgets
        assert all(":budgets:" in text(one["Condition"]["ArnLike"]["aws:SourceArn"]) for one in other)
    for statement in (allowed, key_statement):
        assert statement["Principal"] == {"Service": "cloudwatch.amazonaws.com"}
        condition = statement["Condition"]
        assert text(condition["StringEquals"]["aws:SourceAccount"]) == "AWS::AccountId"
        assert text(condition["ArnLike"]["aws:SourceArn"]).endswith(f":alarm:{stage.prefix}-*")
    assert allowed["Action"] == "sns:Publish"
    assert key_statement["Action"] == ["kms:Decrypt", "kms:GenerateDataKey"]
    assert template.of_kind("AWS::SNS::Subscription") == {}


def test_alarm_email_setting_subscribes_address() -> None:
    from aws_cdk import App, Stack
    from aws_cdk.assertions import Template

    from infra.monitoring.alarms import AlarmTopic

    stack = Stack(App(), "Told")
    AlarmTopic(stack, "Topic", dataclasses.replace(DEV, alarm_email="on-call@example.org"))
    (subscription,) = (
        StackTemplate(Template.from_stack(stack).to_json()).of_kind("AWS::SNS::Subscription").values()
    )
    assert (subscription["Protocol"], subscription["Endpoint"]) == ("email", "on-call@example.org")


def test_canary_rollback_alarms_fire_within_canary_window(
    template: StackTemplate, alarms: dict[str, dict[str, Any]], stage: StageSettings
) -> None:
    groups = template.of_kind("AWS::CodeDeploy::DeploymentGroup").values()
    assert len(groups) == int(stage.canary)
    for group in groups:
        names = [text(alarm["Name"]) for alarm in group["AlarmConfiguration"]["Alarms"]]
        prefixes = {"rest_api": ["api"], "function_url": ["url"], "both": ["api", "url"]}[stage.front_door]
        rules = [
            "query-faults",
            "new-version-faults",
            "query-function-errors",
            *(f"{prefix}-errors" for prefix in prefixes),
        ]
        assert names == [f"Alarms{rule.replace('-', '')}" for rule in rules]
        for name in names:
            made_before = template.all_dependencies(name)
            assert made_before <= {TOPIC, "AlarmsTopicKey"}, name
        for rule in rules:
            alarm = alarms[f"{stage.prefix}-{rule}"]
            periods = {one["MetricStat"]["Period"] for one in alarm.get("Metrics", []) if "MetricStat" in one}
            # LambdaCanary10Percent5Minutes; one period of five minutes is looked at every minute.
            assert periods | {alarm.get("Period", 60)} <= (
                {60} if alarm["EvaluationPeriods"] > 1 else {60, 300}
            )
            assert alarm["EvaluationPeriods"] * 60 < 5 * 60


def test_recursion_alarm_fires_for_any_function(
    alarms: dict[str, dict[str, Any]], template: StackTemplate, stage: StageSettings
) -> None:
    if stage.monitoring.alarms == "essential":
        assert f"{stage.prefix}-recursion-stopped" not in alarms
        return
    alarm = alarms[f"{stage.prefix}-recursion-stopped"]
    functions = {one["FunctionName"] for one in template.of_kind("AWS::Lambda::Function").values()}
    watched = alarm_metrics(alarm)
    assert {one.name for one in watched} == {"RecursiveInvocationsDropped"}
    assert {one.values["FunctionName"] for one in watched} == functions
    assert all(set(one.values) == {"FunctionName"} for one in watched)
    names = [one["Id"] for one in alarm["Metrics"] if "MetricStat" in one]
    for dropped in names:
        assert rings(alarm, **{name: float(name == dropped) for name in names})
    assert not rings(alarm, **dict.fromkeys(names, 0.0))


def rings(alarm: dict[str, Any], **values: float) -> bool:
    """Return whether one point of an alarm's expression, as CloudWatch computes it, reaches its threshold."""
    (expression,) = [one["Expression"] for one in alarm["Metrics"] if "Expression" in one]
    known = {"IF": lambda condition, yes, no: yes if condition else no, "FILL": lambda value, _: value}
    point = eval(expression, {"__builtins__": {}}, {**known, **values})  # noqa: S307 - ours
    assert alarm["ComparisonOperator"] == "GreaterThanOrEqualToThreshold"
    return bool(point >= alarm["Threshold"])


@pytest.mark.parametrize(
    ("rule", "minutes", "failed", "total", "expected"),
    [
        # all of few queries fail: query-faults, which needs two per minute, misses one in five minutes
        ("query-failing", 15, 3, 3, True),
        ("query-failing", 15, 2, 2, False),
        ("query-failing", 15, 5, 10, True),
        ("query-failing", 15, 5, 11, False),
        ("new-version-faults", 5, 3, 30, True),
        ("new-version-faults", 5, 3, 60, True),
        ("new-version-faults", 5, 3, 61, False),
        ("new-version-faults", 5, 2, 20, False),
        ("api-failing", 15, 3, 6, True),
        ("api-failing", 15, 3, 7, False),
        ("url-failing", 15, 3, 3, True),
        ("query-faults", 1, 1, 1, False),
        ("query-faults", 1, 2, 2, True),
        ("query-faults", 1, 5, 101, False),
    ],
)
def test_failure_alarm_fires_by_share_and_count(
    rule: str, minutes: int, failed: int, total: int, expected: bool, app_templates: dict[str, StackTemplate]
) -> None:
    found = app_templates["both"].of_kind("AWS::CloudWatch::Alarm").values()
    (alarm,) = [one for one in found if one["AlarmName"] == f"vectorforge-both-{rule}"]
    measured = [one["MetricStat"] for one in alarm["Metrics"] if "MetricStat" in one]
    assert {(one["Period"], one["Stat"]) for one in measured} == {(60 * minutes, "Sum")}
    assert rings(alarm, failed=failed, total=total) is expected


@pytest.mark.parametrize(
    ("instance_type", "gib"),
    [("t4g.micro", 1), ("t4g.small", 2), ("t4g.medium", 4), ("m7g.large", 8), ("r7g.large", 16),
     ("t4g.xlarge", 16), ("m7g.2xlarge", 32), ("r7g.4xlarge", 128)],
)  # fmt: skip
def test_instance_memory_follows_instance_type(instance_type: str, gib: float) -> None:
    # https://aws.amazon.com/rds/instance-types/
    assert dataclasses.replace(PROD.database, instance_type=instance_type).memory_gib == gib


@pytest.mark.parametrize(
    ("instance_type", "vcpus"),
    [("t4g.micro", 2), ("t4g.medium", 2), ("m7g.large", 2), ("m7g.xlarge", 4), ("r7g.4xlarge", 16)],
)
def test_instance_vcpus_follow_instance_type(instance_type: str, vcpus: int) -> None:
    # https://aws.amazon.com/rds/proxy/pricing/
    assert dataclasses.replace(PROD.database, instance_type=instance_type).vcpus == vcpus


def test_connection_alarm_counts_proxy_nodes_or_instance(
    alarms: dict[str, Any], stage: StageSettings
) -> None:
    # https://docs.aws.amazon.com/AmazonRDS/latest/UserGuide/rds-proxy.monitoring.html
    alarm = alarms[f"{stage.prefix}-database-connections"]
    statistics = {one["MetricStat"]["Stat"] for one in alarm["Metrics"] if "MetricStat" in one}
    if stage.database.proxy:
        assert statistics == {"Sum"}
    else:
        assert statistics == {"Maximum"}
        assert rings(alarm, opened=90.0)  # of 112
        assert not rings(alarm, opened=89.0)


def test_stage_without_proxy_has_no_alarms_of_it(alarms: dict[str, Any], stage: StageSettings) -> None:
    of_proxy = {f"{stage.prefix}-database-pinned", f"{stage.prefix}-database-borrowing-slow"}
    expected = of_proxy if stage.database.proxy and stage.monitoring.alarms == "all" else set()
    assert of_proxy & alarms.keys() == expected


def test_essential_alarms_are_a_selection_of_all(app_templates: dict[str, StackTemplate]) -> None:
    def names(stage: str) -> set[str]:
        found = app_templates[stage].of_kind("AWS::CloudWatch::Alarm").values()
        return {alarm["AlarmName"].removeprefix(f"vectorforge-{stage}-") for alarm in found}

    assert names("dev") == ESSENTIAL - {"url-failing"}
    assert names("lean") == names("dev") | {"query-throttled"}  # it bounds the queries at a time
    assert names("both") | {"database-credits", "authorizer-errors"} >= ESSENTIAL


def test_burstable_instances_alone_have_credit_alarm(alarms: dict[str, Any], stage: StageSettings) -> None:
    burstable = stage.database.instance_type.startswith("t")
    assert (f"{stage.prefix}-database-credits" in alarms) is burstable
    other = "m7g.large" if burstable else "t4g.large"
    changed = dataclasses.replace(stage, database=dataclasses.replace(stage.database, instance_type=other))
    assert billed_alarm_metrics(changed) == billed_alarm_metrics(stage) + (-1 if burstable else 1)
