"""The state machine that reads a restored cluster of Aurora, executed by moto's interpreter. F-005."""

import dataclasses
import io
import json
import zipfile
from collections.abc import Iterator
from typing import Any

import boto3
import pytest
from moto import mock_aws

from infra.costs.bill import idle_bill
from infra.monitoring.restored_cluster import OPERATIONS, definition, sdk_arn
from infra.setting_types import BackupSettings
from infra.settings import DEV
from tests.infra.stack_template import StackTemplate, text
from tests.infra.synthesized import synthesize
from tests.support.aws.fake_aws import REGION

NAME = "awsbackup-restore-test-1a2b"
FAILING = "arn:aws:states:::aws-sdk:rds:startDBCluster"
"""In place of the function, which moto's Lambda never fails: a task that has other parameters."""
BACKUP = BackupSettings(restore_test=True)
AURORA = dataclasses.replace(
    DEV, stage="drill", database=dataclasses.replace(DEV.database, engine="aurora"), backup=BACKUP
)


@pytest.fixture
def region(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A region of moto in this process, whose state machines run."""
    for variable in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(variable, "testing")
    monkeypatch.setenv("AWS_DEFAULT_REGION", REGION)
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)
    executes: Any = {"stepfunctions": {"execute_state_machine": True}, "lambda": {"use_docker": False}}
    with mock_aws(config=executes):
        yield REGION


def restored_cluster() -> str:
    made = boto3.client("rds").create_db_cluster(
        DBClusterIdentifier=NAME,
        Engine="aurora-postgresql",
        MasterUsername="vectorforge_owner",
        MasterUserPassword="of-a-test",
    )
    arn: str = made["DBCluster"]["DBClusterArn"]
    return arn


def function() -> str:
    role = boto3.client("iam").create_role(RoleName="r", AssumeRolePolicyDocument="{}")["Role"]["Arn"]
    code = io.BytesIO()
    with zipfile.ZipFile(code, "w") as archive:
        archive.writestr("handler.py", "")
    made = boto3.client("lambda").create_function(
        FunctionName="migrate", Runtime="python3.14", Role=role, Handler="h.h",
        Code={"ZipFile": code.getvalue()},
    )  # fmt: skip
    arn: str = made["FunctionArn"]
    return arn


def execute(cluster: str, migrate: str) -> tuple[str, list[str]]:
    """Run the machine without its waits; return its status and the names of its states in order."""
    machine = definition()
    machine["States"]["Wait"]["Seconds"] = 0
    for state in machine["States"].values():
        for retry in state.get("Retry", ()):
            retry["IntervalSeconds"] = retry["MaxAttempts"] = 1
    body = json.dumps(machine).replace("${MigrateFunction}", migrate)
    for operation in OPERATIONS:
        body = body.replace(f"${{{operation}}}", sdk_arn(operation, "aws"))
    for ours in ("DbInstance", "DbCluster"):  # Step Functions spells the SDK for Java's names, moto the API's
        body = body.replace(ours, ours.replace("Db", "DB"))
    client = boto3.client("stepfunctions")
    role = "arn:aws:iam::123456789012:role/r"
    made = client.create_state_machine(name="m", definition=body, roleArn=role)["stateMachineArn"]
    run = client.start_execution(stateMachineArn=made, input=json.dumps({"cluster": cluster}))["executionArn"]
    while (status := client.describe_execution(executionArn=run)["status"]) == "RUNNING":
        pass
    entered = (
        event["stateEnteredEventDetails"]["name"]
        for event in client.get_execution_history(executionArn=run)["events"]
        if "stateEnteredEventDetails" in event
    )
    return status, list(entered)


def test_instance_is_added_until_the_cluster_was_read(region: str) -> None:
    status, states = execute(restored_cluster(), function())
    assert status == "SUCCEEDED"
    assert states == [
        "Begin", "SetCapacity", "AddInstance", "Wait", "Count", "Look", "IsAvailable", "Read",
        "DeleteInstance", "WasRead", "Done",
    ]  # fmt: skip
    assert boto3.client("rds").describe_db_instances()["DBInstances"] == []


def test_failed_reading_fails_after_the_instance_is_deleted(region: str) -> None:
    status, states = execute(restored_cluster(), FAILING)
    assert (status, states[-4:]) == ("FAILED", ["Read", "DeleteInstance", "WasRead", "NotRead"])
    assert boto3.client("rds").describe_db_instances()["DBInstances"] == []


def test_cluster_that_is_gone_fails(region: str) -> None:
    missing = f"arn:aws:rds:{region}:123456789012:cluster:{NAME}"
    assert execute(missing, function()) == ("FAILED", ["Begin", "SetCapacity", "NotRead"])


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> StackTemplate:
    return synthesize(AURORA, tmp_path_factory.mktemp("drill"))["App"]


def test_restored_cluster_starts_the_machine_and_its_failure_is_published(app: StackTemplate) -> None:
    rules = {
        rule["Name"].removeprefix("vectorforge-drill-"): rule
        for rule in app.of_kind("AWS::Events::Rule").values()
        if rule.get("EventPattern")
    }
    [target] = rules["restored"]["Targets"]
    assert text(target["Arn"]) == "BackupNoticesClusterStateMachine"
    assert "detail-createdResourceArn" in target["InputTransformer"]["InputTemplate"]
    failed = rules["restored-not-read"]
    assert failed["EventPattern"]["source"] == ["aws.states"]
    [machine] = failed["EventPattern"]["detail"]["stateMachineArn"]
    assert text(machine) == "BackupNoticesClusterStateMachine"
    [target] = failed["Targets"]
    assert "runbook.md#restore-test-failed" in target["InputTransformer"]["InputTemplate"]


def test_machine_may_change_restored_databases_only(app: StackTemplate) -> None:
    allowed = app.permissions("BackupNoticesClusterRole")
    changed = {
        resource
        for action, resource in allowed
        if action.startswith("rds:") and not resource.endswith(("og:*", "pg:*", "subgrp:*"))
    }
    assert {resource.rpartition(":")[2] for resource in changed} == {"awsbackup-restore-*"}
    assert ("lambda:InvokeFunction", "MigrationMigrateAlias") in allowed


def test_bill_has_the_added_instance() -> None:
    lines = {line.what: line.dollars for line in idle_bill(AURORA)}
    assert lines["restored instance"] == pytest.approx(0.12)
