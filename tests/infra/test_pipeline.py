"""Deployment from GitHub: workflows, the sandbox script, and the role that AWS gives an environment."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from cfnlint.decode.cfn_yaml import loads

from infra.bundling.bundle import ROOT

WORKFLOWS = ROOT / ".github" / "workflows"
ROLE = ROOT / "infra" / "deployment" / "github_role.yaml"
BIN = Path(sys.executable).parent
STAND_IN = """#!/bin/sh
echo "${0##*/} $*" >> "$CALLS"
case "$*" in
    *describe-db-snapshots*) echo vectorforge-dev-final ;;
    *describe-db-cluster-snapshots*) echo vectorforge-dev-cluster-final ;;
esac
[ "${0##*/} $1" != "make $FAILS" ]
"""


def run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_workflows_match_github_schema() -> None:
    files = [str(file) for file in WORKFLOWS.glob("*.yml")]
    done = run(str(BIN / "check-jsonschema"), "--builtin-schema", "vendor.github-workflows", *files)
    assert done.returncode == 0, done.stdout + done.stderr


def test_workflows_have_no_errors() -> None:
    done = run(str(BIN / "actionlint"), *map(str, WORKFLOWS.glob("*.yml")))
    assert done.returncode == 0, done.stdout + done.stderr


def test_workflows_have_no_security_findings() -> None:
    done = run(str(BIN / "zizmor"), "--offline", "--quiet", str(WORKFLOWS))
    assert done.returncode == 0, done.stdout + done.stderr


def test_role_template_is_valid() -> None:
    done = run(str(BIN / "cfn-lint"), str(ROLE))
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def jobs() -> dict[str, dict[str, Any]]:
    workflow: dict[str, Any] = yaml.safe_load((WORKFLOWS / "deploy.yml").read_text())
    assert workflow["permissions"] == {}
    assert workflow["concurrency"]["cancel-in-progress"] is False
    jobs: dict[str, dict[str, Any]] = workflow["jobs"]
    return jobs


def test_prod_waits_for_sandbox_and_approval(jobs: dict[str, dict[str, Any]]) -> None:
    assert list(jobs) == ["sandbox", "prod"]
    assert jobs["prod"]["needs"] == "sandbox"
    for name, job in jobs.items():
        assert job["environment"] == name  # its rules are the approval, and the role trusts it alone
        assert job["permissions"] == {"contents": "read", "id-token": "write"}
    destroys = [step for step in jobs["sandbox"]["steps"] if "--destroy-only" in step.get("run", "")]
    assert [step["if"] for step in destroys] == ["always()"]
    assert not any("destroy" in step.get("run", "") for step in jobs["prod"]["steps"])


class Sandbox:
    """The script with a ``make`` and an ``aws`` that only record their calls."""

    def __init__(self, folder: Path) -> None:
        self.calls = folder / "calls"
        self.folder = folder
        for name in ("make", "aws"):
            (folder / name).write_text(STAND_IN)
            (folder / name).chmod(0o755)

    def run(self, *arguments: str, fails: str = "") -> tuple[int, list[str]]:
        environment = {
            "PATH": f"{self.folder}:{os.environ['PATH']}",
            "CALLS": str(self.calls),
            "FAILS": fails,
            "AWS_REGION": "eu-central-1",
        }
        script = str(ROOT / ".ci" / "sandbox")
        done = subprocess.run([script, *arguments], env=environment, capture_output=True, check=False)
        calls = self.calls.read_text().splitlines() if self.calls.exists() else []
        return done.returncode, [" ".join(call.split()[:2]) for call in calls if call.startswith("make")]


@pytest.fixture
def sandbox(tmp_path: Path) -> Sandbox:
    return Sandbox(tmp_path)


@pytest.mark.parametrize(
    ("fails", "code", "calls"),
    [
        ("", 0, ["make deploy", "make verify", "make destroy"]),
        ("deploy", 1, ["make deploy", "make destroy"]),
        ("verify", 1, ["make deploy", "make verify", "make destroy"]),
        ("destroy", 1, ["make deploy", "make verify", "make destroy"]),
    ],
)
def test_sandbox_is_destroyed_after_any_failure(
    sandbox: Sandbox, fails: str, code: int, calls: list[str]
) -> None:
    assert sandbox.run("dev", fails=fails) == (code, calls)
    recorded = sandbox.calls.read_text()
    assert "aws rds delete-db-snapshot --db-snapshot-identifier vectorforge-dev-final\n" in recorded
    name = "vectorforge-dev-cluster-final"
    assert f"aws rds delete-db-cluster-snapshot --db-cluster-snapshot-identifier {name}\n" in recorded


def test_sandbox_script_only_destroys_on_request_and_refuses_prod(sandbox: Sandbox) -> None:
    assert sandbox.run("dev", "--destroy-only") == (0, ["make destroy"])
    sandbox.calls.unlink()
    assert sandbox.run("prod") == (2, [])
    assert sandbox.run("prod", "--destroy-only") == (2, [])


@pytest.fixture(scope="module")
def role() -> dict[str, Any]:
    # cfn-lint's reader knows the tags of CloudFormation
    resources: dict[str, Any] = json.loads(json.dumps(loads(ROLE.read_text())))["Resources"]
    return resources


def statements(role: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for resource in role.values():
        if resource["Type"] == "AWS::IAM::Policy":
            yield from resource["Properties"]["PolicyDocument"]["Statement"]


def test_role_trusts_one_environment_of_one_repository(role: dict[str, Any]) -> None:
    [statement] = role["Role"]["Properties"]["AssumeRolePolicyDocument"]["Statement"]
    host = "token.actions.githubusercontent.com"
    assert statement["Action"] == "sts:AssumeRoleWithWebIdentity"
    assert statement["Condition"] == {
        "StringEquals": {
            f"{host}:aud": "sts.amazonaws.com",
            f"{host}:sub": {"Fn::Sub": "repo:${Repository}:environment:${Environment}"},
        }
    }


def test_role_changes_only_through_bootstrap_roles_and_in_its_stage(role: dict[str, Any]) -> None:
    reading = ("Describe", "Get", "List", "Filter")
    for statement in statements(role):
        actions = statement["Action"] if isinstance(statement["Action"], list) else [statement["Action"]]
        assert not any("*" in action for action in actions), statement["Sid"]
        changing = [
            action
            for action in actions
            if not action.partition(":")[2].startswith(reading) and action != "apigateway:GET"
        ]
        resources = json.dumps(statement["Resource"])
        if changing == ["sts:AssumeRole"]:
            assert resources.count(":role/cdk-${Qualifier}-") == 3
            assert "cfn-exec" not in resources
        elif changing:
            limits = resources + json.dumps(statement.get("Condition"))
            assert "vectorforge-${Stage}" in limits, statement["Sid"]
