"""cdk-nag has no finding without an acknowledged reason, and no acknowledgment is unused."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from aws_cdk import App, CfnWaitConditionHandle, Stack
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from cdk_nag import AwsSolutionsChecks, ServerlessChecks
from constructs import IConstruct

from infra.data.data_stack import DataStack
from infra.nag_rules import ACKNOWLEDGED, Acknowledged, acknowledge, hold_to_rules, places
from infra.settings import DEV
from infra.stage_settings import StageSettings
from tests.infra.conftest import AURORA_WITH_TOKENS, VARIANTS

Finding = tuple[str, str]
"""Rule and construct."""


def findings(scope: IConstruct) -> set[Finding]:
    """Return cdk-nag's findings without the acknowledged ones."""
    return {
        (violation.rule_name, str(resource.construct_path))
        for pack in (AwsSolutionsChecks(), ServerlessChecks())
        for violation in pack.validate_scope(scope).violations
        for resource in violation.violating_resources
    }


STAGES = (*VARIANTS, AURORA_WITH_TOKENS)


def stacks_of(app: App, stage: StageSettings) -> dict[str, Stack]:
    found = {}
    for name in ("Data", "App"):
        stack = app.node.find_child(f"VectorForge-{stage.stage}-{name}")
        assert isinstance(stack, Stack)
        found[name] = stack
    return found


@pytest.fixture(scope="module")
def before_and_after(cdk_app: App) -> tuple[set[Finding], set[Finding]]:
    """Return the findings of all variants without acknowledgments, and with them."""
    before = findings(cdk_app)
    for stage in STAGES:
        acknowledge(stacks_of(cdk_app, stage), stage)
    return before, findings(cdk_app)


def test_findings_are_all_acknowledged(before_and_after: tuple[set[Finding], set[Finding]]) -> None:
    before, after = before_and_after
    assert len(before) > len(ACKNOWLEDGED)
    assert sorted(after) == []


def test_acknowledgments_all_match_a_finding(
    cdk_app: App, before_and_after: tuple[set[Finding], set[Finding]]
) -> None:
    before, _ = before_and_after

    def in_vain(entry: Acknowledged, stage: StageSettings) -> Iterator[str]:
        for construct, rule in places(entry, stacks_of(cdk_app, stage), stage):
            path = construct.node.path
            if not any(rule == other and f"{where}/".startswith(f"{path}/") for other, where in before):
                yield f"{rule} at {path}"

    vain = [text for entry in ACKNOWLEDGED for stage in STAGES for text in in_vain(entry, stage)]
    assert vain == []


def test_acknowledgments_have_existing_path_and_reason(cdk_app: App) -> None:
    for entry in ACKNOWLEDGED:
        assert len(entry.reason) > 20
        for path in entry.at:
            alone = Acknowledged(entry.rule, (path,), entry.reason, entry.when)
            found = [list(places(alone, stacks_of(cdk_app, stage), stage)) for stage in STAGES]
            assert any(found), f"{entry.rule}: there is no {path}"


def open_group(stack: DataStack) -> None:
    group = ec2.SecurityGroup(stack, "Open", vpc=stack.network.vpc, description="Open to the world")
    group.add_ingress_rule(ec2.Peer.any_ipv4(), ec2.Port.tcp(22), "Everybody")


def any_action(stack: DataStack) -> None:
    role = iam.Role(stack, "Wide", assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"))
    role.add_to_policy(
        iam.PolicyStatement(actions=["s3:*"], resources=[stack.provider_keys.secret.secret_arn])
    )


@pytest.mark.parametrize(
    ("fault", "rule"),
    [(open_group, "AwsSolutions-EC23"), (any_action, "AwsSolutions-IAM5[Action::s3:*]"), (None, None)],
)
def test_synthesis_fails_on_rule_violation(
    tmp_path: Path, fault: Callable[[DataStack], None] | None, rule: str | None
) -> None:
    app = App(context={"aws:cdk:bundling-stacks": []}, outdir=str(tmp_path))
    data = DataStack(app, "VectorForge-dev-Data", stage=DEV)
    if fault is not None:
        fault(data)
    functions = Stack(app, "VectorForge-dev-App")
    CfnWaitConditionHandle(functions, "Something")  # CloudFormation rejects an empty stack
    hold_to_rules(app, {"Data": data, "App": functions}, DEV)
    if rule is None:
        app.synth()
    else:
        with pytest.raises(RuntimeError, match="ValidationFailed"):
            app.synth()
    report = json.loads((tmp_path / "validation-report.json").read_text())
    reported = {found["ruleName"] for plugin in report["pluginReports"] for found in plugin["violations"]}
    nag = {name for name in reported if "-" in name}  # CDK has rules of its own
    assert nag == ({rule} if rule else set())
