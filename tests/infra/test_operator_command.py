"""``make operator`` against an emulated account, with stand-ins for the AWS command line and its plugin."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from infra.stage_settings import HOST_TASK_TAG
from tests.support.aws.fake_aws import REGION
from tests.support.aws.scripted_aws import ScriptedAws

ROOT = Path(__file__).parents[2]
ONLINE = json.dumps({"InstanceInformationList": [{"InstanceId": "i-0", "PingStatus": "Online"}]})


@pytest.fixture
def account() -> Iterator[ScriptedAws]:
    with ScriptedAws() as server:
        server.answer("ssm", "DescribeInstanceInformation", ONLINE)
        yield server


@pytest.fixture
def template(account: ScriptedAws) -> str:
    ec2 = account.client("ec2")
    named = [{"Name": "name", "Values": ["al2023-ami-2023*"]}]  # a list of all 1,300 takes a second
    image = ec2.describe_images(Owners=["amazon"], Filters=named)["Images"][0]["ImageId"]
    name_tag = [{"ResourceType": "instance", "Tags": [{"Key": "Name", "Value": "vectorforge-dev-operator"}]}]
    ec2.create_launch_template(
        LaunchTemplateName="vectorforge-dev-operator",
        LaunchTemplateData={"InstanceType": "t4g.small", "ImageId": image, "TagSpecifications": name_tag},
    )
    return "vectorforge-dev-operator"


def operate(
    account: ScriptedAws, folder: Path, *arguments: str, tools: bool = True, without: str = ""
) -> "subprocess.CompletedProcess[str]":
    if tools:
        for name in ("aws", "session-manager-plugin"):
            (folder / name).write_text(f'#!/bin/sh\necho "$@" >>{folder}/calls\n')
            (folder / name).chmod(0o755)
    environment = {**os.environ, **account.environment, "PATH": f"{folder}:/usr/bin:/bin"}
    environment.pop(without, None)
    return subprocess.run(
        [sys.executable, "-m", "infra.deployment.operator", *arguments],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def states(account: ScriptedAws) -> list[str]:
    found = account.client("ec2").describe_instances()["Reservations"]
    return [instance["State"]["Name"] for group in found for instance in group["Instances"]]


@pytest.mark.usefixtures("template")
def test_session_opens_on_new_host_which_is_terminated(account: ScriptedAws, tmp_path: Path) -> None:
    done = operate(account, tmp_path)
    assert done.returncode == 0, done.stderr
    called = (tmp_path / "calls").read_text()
    assert f"ssm start-session --region {REGION} --target i-" in called
    assert states(account) == ["terminated"]


@pytest.mark.usefixtures("template")
def test_kept_host_is_reused_until_end(account: ScriptedAws, tmp_path: Path) -> None:
    operate(account, tmp_path, "--keep")
    operate(account, tmp_path, "--keep")
    assert states(account) == ["running"]
    [group] = account.client("ec2").describe_instances()["Reservations"]
    tags = {tag["Key"]: tag["Value"] for tag in group["Instances"][0]["Tags"]}
    assert tags[HOST_TASK_TAG] == "session"
    assert "is terminated" in operate(account, tmp_path, "--end").stdout
    assert states(account) == ["terminated"]


def test_missing_plugin_starts_no_host(account: ScriptedAws, tmp_path: Path) -> None:
    done = operate(account, tmp_path, tools=False)
    assert done.returncode == 2
    assert "is missing: https://docs.aws.amazon.com/" in done.stderr
    assert states(account) == []


def test_stage_that_is_not_deployed_is_reported(account: ScriptedAws, tmp_path: Path) -> None:
    done = operate(account, tmp_path)
    assert done.returncode == 1
    assert "Is the stage deployed?" in done.stderr
    assert "Traceback" not in done.stderr


def test_region_is_read_from_aws_region(account: ScriptedAws, tmp_path: Path) -> None:
    done = operate(account, tmp_path, "--end", without="AWS_DEFAULT_REGION")
    assert done.returncode == 0, done.stderr


def test_help_names_tasks_and_status(account: ScriptedAws, tmp_path: Path) -> None:
    printed = " ".join(operate(account, tmp_path, "--help").stdout.split())
    for part in ("--task {index,migrate}", "--status", "--end", "--keep", "Session Manager"):
        assert part in printed
