"""The probe, the alarms of outages and objectives, and the budget, as CloudFormation reads them. F-005."""

import dataclasses
import json

import pytest

from infra.monitoring.alarm_rules import LOW_TRAFFIC_FAULTS
from infra.monitoring.objective_alarm_rules import FEWEST_ANSWERS
from infra.setting_types import ServiceObjective, SettingsError
from infra.settings import DEV, PROD
from infra.stage_settings import PROBE_KEY_ID, PROBE_TENANT
from tests.infra.stack_template import StackTemplate, text
from tests.infra.stacks.test_alarms import rings

PREFIX = "vectorforge-prod"
FUNCTIONS = "arn:AWS::Partition:lambda:AWS::Region:AWS::AccountId:function:"


@pytest.fixture
def template(app_templates: dict[str, StackTemplate]) -> StackTemplate:
    return app_templates["prod"]


def test_probe_queries_alias_every_five_minutes(template: StackTemplate) -> None:
    rule = template.of_kind("AWS::Events::Rule")["ProbeSchedule"]
    assert (rule["ScheduleExpression"], rule["State"]) == ("rate(5 minutes)", "ENABLED")
    [target] = rule["Targets"]
    assert text(target["Arn"]) == "ProbeFunctionAlias"
    assert json.loads(text(target["Input"])) == {"function": f"{FUNCTIONS}{PREFIX}-query:live"}
    assert "QueryFunctionAlias" in template.all_dependencies("ProbeSchedule")


def test_probe_may_invoke_alias_and_new_version_and_report_only(template: StackTemplate) -> None:
    allowed = {
        entry for entry in template.permissions("ProbeFunctionRole") if not entry[0].startswith("logs")
    }
    variables = template.of_kind("AWS::Lambda::Function")["ProbeFunction"]["Environment"]["Variables"]
    version = text(variables["PROBED_VERSION"])
    assert version.startswith("QueryFunctionCurrentVersion")
    [deployments] = [on for action, on in allowed if action.startswith("codedeploy:")]
    assert deployments.endswith(":deploymentgroup:QueryCanaryApplication/QueryCanaryGroup")
    assert allowed == {
        ("xray:PutTraceSegments", "*"),
        ("xray:PutTelemetryRecords", "*"),
        ("lambda:InvokeFunction", version),
        ("lambda:InvokeFunction", f"{FUNCTIONS}{PREFIX}-query:live"),
        ("codedeploy:PutLifecycleEventHookExecutionStatus", deployments),
    }


def test_new_version_is_probed_before_it_gets_traffic(template: StackTemplate) -> None:
    update = template.resources["QueryFunctionAlias"]["UpdatePolicy"]["CodeDeployLambdaAliasUpdate"]
    assert text(update["BeforeAllowTrafficHook"]) == "ProbeFunction"
    assert "ProbeFunction" in template.all_dependencies("QueryFunctionAlias")  # with its new variables


def test_key_id_of_probe_leads_to_its_tenant(app_templates: dict[str, StackTemplate]) -> None:
    for stage, template in app_templates.items():
        functions = template.of_kind("AWS::Lambda::Function")
        keys = functions["QueryFunction"]["Environment"]["Variables"].get("VECTORFORGE_API_GATEWAY_KEYS")
        if "ProbeFunction" not in functions:
            assert keys is None, stage
            continue
        assert json.loads(keys) == {PROBE_KEY_ID: PROBE_TENANT}
        assert functions["ProbeFunction"]["Environment"]["Variables"]["PROBE_KEY_ID"] == PROBE_KEY_ID


def test_tenant_of_probe_cannot_be_another_callers() -> None:
    with pytest.raises(SettingsError, match="is the probe's"):
        dataclasses.replace(PROD, tenants=("demo", PROBE_TENANT))


def test_probe_alarm_fires_on_failures_and_on_silence(template: StackTemplate) -> None:
    alarms = {alarm["AlarmName"]: alarm for alarm in template.of_kind("AWS::CloudWatch::Alarm").values()}
    alarm = alarms[f"{PREFIX}-probe-failed"]
    assert {one["Name"]: one["Value"] for one in alarm["Dimensions"]} == {
        "FunctionName": f"{PREFIX}-probe",
        "Resource": f"{PREFIX}-probe:live",
    }
    assert (alarm["MetricName"], alarm["Threshold"], alarm["TreatMissingData"]) == ("Errors", 1, "breaching")
    assert (alarm["DatapointsToAlarm"], alarm["EvaluationPeriods"]) == (2, 3)


def test_service_down_combines_alarms_of_outages(app_templates: dict[str, StackTemplate]) -> None:
    doors = {"prod": ["api"], "large": ["api"], "both": ["api", "url"]}
    for stage, template in app_templates.items():
        composite = template.of_kind("AWS::CloudWatch::CompositeAlarm")
        assert len(composite) == int(stage in doors), stage
        for alarm in composite.values():
            assert alarm["AlarmName"] == f"vectorforge-{stage}-service-down"
            assert [text(action) for action in alarm["AlarmActions"]] == ["AlarmsTopic"]
            named = ["queryfailing", *(f"{door}failing" for door in doors[stage]), "probefailed"]
            rule = " OR ".join(f'ALARM("Alarms{name}.Arn")' for name in named)
            assert text(alarm["AlarmRule"]) == f"({rule})"


@pytest.mark.parametrize(
    ("rule", "values", "fires"),
    [
        ("error-budget-fast", {"failed": 15.0, "total": 1000.0}, True),
        ("error-budget-fast", {"failed": 14.0, "total": 1000.0}, False),
        ("error-budget-fast", {"failed": LOW_TRAFFIC_FAULTS - 1.0, "total": 2.0}, False),
        ("error-budget-slow", {"failed": 6.0, "total": 1000.0}, True),
        ("error-budget-slow", {"failed": 5.0, "total": 1000.0}, False),
        ("latency-budget-fast", {"slow": 72.0, "total": 100.0}, True),
        ("latency-budget-fast", {"slow": 71.0, "total": 100.0}, False),
        ("latency-budget-slow", {"slow": 30.0, "total": 100.0}, True),
        ("latency-budget-slow", {"slow": 100.0, "total": FEWEST_ANSWERS - 1.0}, False),
    ],
)
def test_objective_alarm_fires_at_its_burn_rate(
    template: StackTemplate, rule: str, values: dict[str, float], fires: bool
) -> None:
    alarms = {alarm["AlarmName"]: alarm for alarm in template.of_kind("AWS::CloudWatch::Alarm").values()}
    alarm = alarms[f"{PREFIX}-{rule}"]
    assert rings(alarm, **values) == fires
    periods = {one["MetricStat"]["Period"] for one in alarm["Metrics"] if "MetricStat" in one}
    assert periods == {3600 if rule.endswith("fast") else 21_600}


def test_slow_answers_are_counted_above_five_seconds(template: StackTemplate) -> None:
    alarms = {alarm["AlarmName"]: alarm for alarm in template.of_kind("AWS::CloudWatch::Alarm").values()}
    statistics = {
        one["Id"]: one["MetricStat"]["Stat"]
        for one in alarms[f"{PREFIX}-latency-budget-fast"]["Metrics"]
        if "MetricStat" in one
    }
    assert statistics == {"slow": "PR(5000:)", "total": "SampleCount"}


@pytest.mark.parametrize("percent", [49.9, 100.0])
def test_objective_out_of_range_is_rejected(percent: float) -> None:
    with pytest.raises(SettingsError, match=r"answered_percent must be (at least 50|less than 100)"):
        dataclasses.replace(PROD, objective=ServiceObjective(answered_percent=percent))


def test_budget_counts_stage_and_notifies_topic(app_templates: dict[str, StackTemplate]) -> None:
    [budget] = app_templates["prod"].of_kind("AWS::Budgets::Budget").values()
    assert budget["Budget"]["BudgetLimit"] == {"Amount": PROD.monthly_budget_dollars, "Unit": "USD"}
    assert budget["Budget"]["CostFilters"] == {"TagKeyValue": ["user:stage$prod"]}
    told = {
        (one["Notification"]["NotificationType"], one["Notification"]["Threshold"])
        for one in budget["NotificationsWithSubscribers"]
        if [text(subscriber["Address"]) for subscriber in one["Subscribers"]] == ["AlarmsTopic"]
    }
    assert told == {("ACTUAL", 80), ("FORECASTED", 100)}
    assert "AlarmsTopicPolicy" in app_templates["prod"].all_dependencies("Budget")
    assert not app_templates["dev"].of_kind("AWS::Budgets::Budget")
    with pytest.raises(SettingsError, match="monthly_budget_dollars must be at least 1"):
        dataclasses.replace(DEV, monthly_budget_dollars=0)
