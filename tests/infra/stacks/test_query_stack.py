"""The query function as CloudFormation reads it, and the references between the stacks. F-001, C34."""

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from infra.bundling.bundle import ROOT
from infra.settings import PROD
from infra.stage_settings import FREE_ENVIRONMENT_BYTES, MAX_GATEWAY_TENANTS, StageSettings
from tests.infra.conftest import AURORA_WITH_TOKENS, VARIANTS
from tests.infra.front_door_templates import methods
from tests.infra.stack_template import StackTemplate, text
from vectorforge.config import known_variables

FUNCTION, ALIAS, ROLE = "QueryFunction", "QueryFunctionAlias", "QueryFunctionRole"
SECRET = "TenantKeysTenants"
NOT_ERRORS = (
    "W3005",  # a dependency that also follows from a reference: CDK writes many
    "W3691",  # has minor versions of PostgreSQL only; RDS also accepts a major one
)
AS_CONFIGURED = """\
from vectorforge.api.identity.authenticator import Authenticator
from vectorforge.config import VectorForgeConfig

config = VectorForgeConfig.from_environment()
Authenticator(config.server)
print(config.aws.response_mode, config.aws.gateway_key_secret_id, config.server.iam_tenants)
"""


def variables(template: StackTemplate) -> dict[str, Any]:
    found: dict[str, Any] = template.of_kind("AWS::Lambda::Function")[FUNCTION]["Environment"]["Variables"]
    return found


def test_api_explorer_is_off_in_production(app_templates: dict[str, StackTemplate]) -> None:  # issue 21
    for name, is_on in (("dev", "true"), ("prod", "false")):
        assert variables(app_templates[name])["VECTORFORGE_API_EXPLORER"] == is_on
        assert ("/docs" in methods(app_templates[name])) is (is_on == "true")


def test_function_streams_through_bundled_runtime(template: StackTemplate) -> None:
    function = template.of_kind("AWS::Lambda::Function")[FUNCTION]
    assert function["Handler"] == "functions.query.handler.handler"
    assert variables(template)["AWS_LAMBDA_EXEC_WRAPPER"] == "/var/task/vectorforge/runtime/exec_wrapper"
    assert "VECTORFORGE_RESPONSE_MODE" not in variables(template)  # the runtime decides
    assert function["Timeout"] > 120  # VECTORFORGE_QUERY_TIMEOUT_S


def test_runtime_updates_wait_for_deployment_with_exec_wrapper(template: StackTemplate) -> None:
    """AWS's automatic updates would also change published versions, which start through our wrapper."""
    updates = {
        name: function.get("RuntimeManagementConfig", {}).get("UpdateRuntimeOn", "Auto")
        for name, function in template.of_kind("AWS::Lambda::Function").items()
    }
    wrapped = {
        name
        for name, function in template.of_kind("AWS::Lambda::Function").items()
        if "AWS_LAMBDA_EXEC_WRAPPER" in function["Environment"]["Variables"]
    }
    assert wrapped == {FUNCTION}
    assert updates == {name: "FunctionUpdate" if name in wrapped else "Auto" for name in updates}


def test_settings_are_known_variables_and_map_callers(template: StackTemplate, stage: StageSettings) -> None:
    ours = {name: text(value) for name, value in variables(template).items() if name.startswith("VECTORF")}
    assert set(ours) <= known_variables()
    done = subprocess.run(
        [sys.executable, "-c", AS_CONFIGURED],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": os.pathsep.join(sys.path), **ours},
        capture_output=True,
        text=True,
        check=False,
    )
    secret = None if stage.front_door == "function_url" else SECRET
    assert done.stdout.strip() == f"None {secret} {dict(stage.iam_tenants)}", done.stderr


def test_gateway_key_secret_maps_keys_to_tenants(template: StackTemplate, stage: StageSettings) -> None:
    secrets = template.of_kind("AWS::SecretsManager::Secret")
    if stage.front_door == "function_url":
        assert not secrets
        return
    keys = {f"TenantKeysKey{tenant.replace('-', '')}": tenant for tenant in stage.tenants}
    [(name, secret)] = secrets.items()
    assert (name, secret["Name"]) == (SECRET, f"{stage.prefix}/gateway-keys")
    assert json.loads(text(secret["SecretString"])) == keys
    policies = template.of_kind("AWS::IAM::Policy")
    granted = [policy for key, policy in policies.items() if SECRET in template.dependencies(key)]
    assert [text(role) for policy in granted for role in policy["Roles"]] == [ROLE]


@pytest.mark.slow
def test_maximum_tenants_fit_in_function_environment() -> None:
    """Lambda's limit is 4 KB: https://docs.aws.amazon.com/lambda/latest/dg/gettingstarted-limits.html."""
    from aws_cdk import App
    from aws_cdk.assertions import Template

    from infra.app import build

    tenants = tuple(f"{number:02d}{'n' * 62}" for number in range(MAX_GATEWAY_TENANTS))
    stage = dataclasses.replace(PROD, tenants=tenants)
    _, stack = build(App(context={"aws:cdk:bundling-stacks": []}), stage)
    template = StackTemplate(Template.from_stack(stack).to_json())
    for name, function in template.of_kind("AWS::Lambda::Function").items():
        # A reference is shorter here than an ARN or a URL there: 100 more bytes for each.
        variables = function.get("Environment", {}).get("Variables", {})
        size = sum(
            len(key) + len(text(value)) + 100 * (value != text(value)) for key, value in variables.items()
        )
        assert size + FREE_ENVIRONMENT_BYTES < 4096, name
        assert not any(tenant in json.dumps(variables) for tenant in tenants), name
    [secret] = template.of_kind("AWS::SecretsManager::Secret").values()
    assert len(json.loads(text(secret["SecretString"]))) == MAX_GATEWAY_TENANTS
    assert len(text(secret["SecretString"])) < 65_536


# C34
def test_role_permissions_are_exactly_those_needed(template: StackTemplate, stage: StageSettings) -> None:
    interfaces = {"CreateNetworkInterface", "DeleteNetworkInterface", "DescribeNetworkInterfaces"}
    interfaces |= {"DescribeSubnets", "AssignPrivateIpAddresses", "UnassignPrivateIpAddresses"}
    allowed = template.permissions(ROLE)
    [login] = [resource for action, resource in allowed if action == "rds-db:connect"]
    assert login.endswith("/vectorforge_app")
    secrets = {resource for action, resource in allowed if action == "secretsmanager:GetSecretValue"}
    [secret] = secrets - {SECRET}
    assert "ProviderKeysSecret" in secret
    assert (SECRET in secrets) == (stage.front_door != "function_url")
    assert allowed == {
        ("logs:CreateLogStream", "QueryFunctionLogs.Arn"),
        ("logs:PutLogEvents", "QueryFunctionLogs.Arn"),
        ("xray:PutTraceSegments", "*"),
        ("xray:PutTelemetryRecords", "*"),
        ("rds-db:connect", login),
        *(("secretsmanager:GetSecretValue", each) for each in secrets),
        ("sqs:SendMessage", "QueryLogRecordsQueue.Arn"),
        ("s3:PutObject", "QueryLogOverflow.Arn/query-logs/*"),
        ("sqs:SendMessage", "IngestionJobsQueue.Arn"),
        ("s3:PutObject", "IngestionUploads.Arn/*"),
        ("s3:GetObject", "IngestionOriginals.Arn/*"),
        ("s3:ListBucket", "IngestionOriginals.Arn"),
        *((f"ec2:{action}", "*") for action in interfaces),
    }


def test_callers_invoke_the_alias_only(template: StackTemplate) -> None:
    of_the_function = {
        name: resource["Type"]
        for name, resource in template.resources.items()
        if FUNCTION in template.dependencies(name)
    }
    url = of_the_function.pop("QueryUrl", None)
    assert sorted(of_the_function.values()) == ["AWS::Lambda::Alias", "AWS::Lambda::Version"]
    if url is not None:
        assert template.of_kind("AWS::Lambda::Url")["QueryUrl"]["Qualifier"] == "live"


def test_start_mode_follows_stage(template: StackTemplate, stage: StageSettings) -> None:
    snapshot = template.of_kind("AWS::Lambda::Function")[FUNCTION].get("SnapStart")
    provisioned = template.of_kind("AWS::Lambda::Alias")[ALIAS].get("ProvisionedConcurrencyConfig")
    expected = {
        "on_demand": (None, None),
        "snap_start": ({"ApplyOn": "PublishedVersions"}, None),  # Lambda rejects both together
        "provisioned": (None, {"ProvisionedConcurrentExecutions": stage.provisioned_concurrency}),
    }
    assert (snapshot, provisioned) == expected[stage.start]


def test_reserved_concurrency_follows_stage(template: StackTemplate, stage: StageSettings) -> None:
    function = template.of_kind("AWS::Lambda::Function")[FUNCTION]
    assert function.get("ReservedConcurrentExecutions") == stage.query.max_concurrency


def test_alias_depends_on_schema_migration(template: StackTemplate) -> None:
    assert "MigrationSchema" in template.all_dependencies(ALIAS)


def test_canary_is_configured_by_stage(template: StackTemplate, stage: StageSettings) -> None:
    policy = template.resources[ALIAS].get("UpdatePolicy")
    groups = template.of_kind("AWS::CodeDeploy::DeploymentGroup")
    if not stage.canary:
        assert policy is None
        assert not groups
        return
    assert policy is not None
    assert text(policy["CodeDeployLambdaAliasUpdate"]["DeploymentGroupName"]) == "QueryCanaryGroup"
    group = groups["QueryCanaryGroup"]
    assert group["DeploymentConfigName"] == "CodeDeployDefault.LambdaCanary10Percent5Minutes"
    assert set(group["AutoRollbackConfiguration"]["Events"]) == {
        "DEPLOYMENT_FAILURE",
        "DEPLOYMENT_STOP_ON_ALARM",
        "DEPLOYMENT_STOP_ON_REQUEST",
    }
    assert group["AlarmConfiguration"]["Enabled"] is True
    assert "QueryCanaryRoleDefaultPolicy" in template.dependencies("QueryCanaryGroup")


def synthesized(folder: Path, **context: object) -> subprocess.CompletedProcess[str]:
    """Run the app like the CDK command line, without bundles."""
    granted = {"CDK_CONTEXT_JSON": json.dumps({**context, "aws:cdk:bundling-stacks": []})}
    environment = {**os.environ, **granted, "CDK_OUTDIR": str(folder)}
    command = [sys.executable, "-m", "infra.app"]
    return subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300, check=False
    )


@pytest.mark.slow
def test_disabled_canary_moves_alias_immediately(tmp_path: Path) -> None:
    """CodeDeploy rejects every version while an alarm of the canary fires, even a fix."""
    done = synthesized(tmp_path, stage="prod", canary="off")
    assert done.returncode == 0, done.stderr
    template = StackTemplate(json.loads((tmp_path / "VectorForge-prod-App.template.json").read_text()))
    kinds = {resource["Type"] for resource in template.resources.values()}
    assert not {kind for kind in kinds if "CodeDeploy" in kind}
    assert "UpdatePolicy" not in template.resources[ALIAS]


@pytest.mark.slow
def test_invalid_canary_context_is_rejected(tmp_path: Path) -> None:
    done = synthesized(tmp_path, stage="prod", canary="on")
    assert (done.returncode, done.stderr) == (1, "The context canary must be \"off\" or absent, not 'on'.\n")


def test_codedeploy_role_moves_this_alias_and_reads_its_alarms(
    app_templates: dict[str, StackTemplate],
) -> None:
    arn = f"arn:AWS::Partition:lambda:AWS::Region:AWS::AccountId:function:{PROD.prefix}-query"
    moves = {"lambda:GetAlias", "lambda:UpdateAlias", "lambda:GetProvisionedConcurrencyConfig"}
    [group] = app_templates["prod"].of_kind("AWS::CodeDeploy::DeploymentGroup").values()
    alarms = [text(alarm["Name"]) for alarm in group["AlarmConfiguration"]["Alarms"]]
    assert alarms
    assert set(alarms) <= set(app_templates["prod"].of_kind("AWS::CloudWatch::Alarm"))  # no composite alarms:
    # they can only be described with permission for all alarms of the account.
    assert app_templates["prod"].permissions("QueryCanaryRole") == {
        *((action, resource) for action in moves for resource in (arn, f"{arn}:live")),
        *(("cloudwatch:DescribeAlarms", f"{alarm}.Arn") for alarm in alarms),
        ("lambda:InvokeFunction", arn.replace("-query", "-probe")),
    }


def test_additional_alarms_roll_canary_back() -> None:
    from aws_cdk import App
    from aws_cdk import aws_cloudwatch as cloudwatch
    from aws_cdk.assertions import Template

    from infra.app import build

    _, stack = build(App(context={"aws:cdk:bundling-stacks": []}), PROD)
    metric = stack.query.function.alias.metric_errors()
    alarm = cloudwatch.Alarm(stack, "Bell", metric=metric, threshold=1, evaluation_periods=1)
    assert stack.query.canary is not None
    stack.query.canary.watch([alarm])
    template = StackTemplate(Template.from_stack(stack).to_json())
    group = template.of_kind("AWS::CodeDeploy::DeploymentGroup")["QueryCanaryGroup"]
    assert "Bell" in [text(watched["Name"]) for watched in group["AlarmConfiguration"]["Alarms"]]
    assert group["AlarmConfiguration"]["Enabled"] is True
    assert "DEPLOYMENT_STOP_ON_ALARM" in group["AutoRollbackConfiguration"]["Events"]
    assert ("cloudwatch:DescribeAlarms", "Bell.Arn") in template.permissions("QueryCanaryRole")
    assert not _circle(template)


def test_resources_have_no_circular_dependency(template: StackTemplate) -> None:
    assert not _circle(template)


def test_data_stack_imports_nothing_from_functions(assembly: Path, stage: StageSettings) -> None:
    data = (assembly / f"VectorForge-{stage.stage}-Data.template.json").read_text()
    assert "Fn::ImportValue" not in data


@pytest.mark.slow
def test_templates_pass_cfn_lint(assembly: Path) -> None:
    linter = Path(sys.executable).parent / "cfn-lint"
    templates = sorted(assembly.glob("*.template.json"))
    assert len(templates) == 2 * len((*VARIANTS, AURORA_WITH_TOKENS))
    done = subprocess.run(
        [linter, "--ignore-checks", *NOT_ERRORS, "--format", "json", "--", *templates],
        capture_output=True,
        text=True,
        check=False,
    )
    found = [(f["Rule"]["Id"], f["Filename"], f["Message"]) for f in json.loads(done.stdout)]
    assert not found, done.stderr


def _circle(template: StackTemplate) -> set[str]:
    """Return the resources in circular dependencies, update policies included, which linters ignore."""
    return {name for name in template.resources if name in template.all_dependencies(name)}
