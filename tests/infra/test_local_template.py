"""The SAM template for one machine is valid, and says what the library and AWS need."""

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from cfnlint.decode import cfn_yaml

from vectorforge.config import known_variables

ROOT = Path(__file__).parents[2]
TEMPLATE = ROOT / "template-local.yaml"
SAM = "aws-sam-cli==1.170.0"


@pytest.fixture(scope="module")
def template() -> dict[str, Any]:
    loaded: dict[str, Any] = cfn_yaml.load(str(TEMPLATE))
    return loaded


@pytest.fixture(scope="module")
def functions(template: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {
        name: {"Timeout": template["Globals"]["Function"]["Timeout"], **resource["Properties"]}
        for name, resource in template["Resources"].items()
        if resource["Type"] == "AWS::Serverless::Function"
    }


@pytest.fixture
def sam(uv: str, tmp_path: Path) -> Callable[..., str]:
    """Runs AWS's SAM command line on the template; what it wrote."""
    keys = {"AWS_DEFAULT_REGION": "us-east-1", "AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}
    environment = {**os.environ, **keys, "UV": uv, "SAM_CLI_TELEMETRY": "0"}

    def run(*arguments: str) -> str:
        command = [uv, "tool", "run", "--from", SAM, "sam", *arguments, "--template", str(TEMPLATE)]
        done = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    return run


def test_sam_and_cfn_lint_have_nothing_to_say(sam: Callable[..., str]) -> None:
    assert "is a valid SAM Template" in sam("validate", "--lint")


def test_sam_builds_a_function_without_docker(sam: Callable[..., str], tmp_path: Path) -> None:
    sam("build", "MigrateFunction", "--build-dir", str(tmp_path / "build"))
    built = tmp_path / "build" / "MigrateFunction"
    assert (built / "functions" / "migrate" / "handler.py").is_file()
    assert (built / "vectorforge" / "serverless" / "migrate.py").is_file()


def test_every_function_is_there_with_its_handler(functions: dict[str, dict[str, Any]]) -> None:
    named = {properties["Handler"] for properties in functions.values()}
    folders = {path.parent.name for path in (ROOT / "functions").glob("*/handler.py")}
    assert named == {f"functions.{folder}.handler.handler" for folder in folders}
    for properties in functions.values():
        assert (ROOT / properties["CodeUri"] / "handler.py").is_file()


def test_every_setting_is_one_that_the_library_reads(functions: dict[str, dict[str, Any]]) -> None:
    names = {name for f in functions.values() for name in f["Environment"]["Variables"]}
    assert {name for name in names if name.startswith("VECTORFORGE_")} <= known_variables()


def test_no_message_comes_back_while_it_is_being_worked_on(
    template: dict[str, Any], functions: dict[str, dict[str, Any]]
) -> None:  # six times the timeout: docs.aws.amazon.com/lambda/latest/dg/services-sqs-configure.html
    sources = list(_queue_sources(functions))
    assert len(sources) == 2
    for function, source in sources:
        assert source["FunctionResponseTypes"] == ["ReportBatchItemFailures"]
        queue = template["Resources"][source["Queue"]["Fn::GetAtt"][0]]["Properties"]
        assert queue["VisibilityTimeout"] >= 6 * function["Timeout"]
        assert queue["RedrivePolicy"]["maxReceiveCount"] == 5
        dead = queue["RedrivePolicy"]["deadLetterTargetArn"]["Fn::GetAtt"][0]
        assert template["Resources"][dead]["Type"] == "AWS::SQS::Queue"


def _queue_sources(
    functions: dict[str, dict[str, Any]],
) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    for function in functions.values():
        for source in function.get("Events", {}).values():
            if source["Type"] == "SQS":
                yield function, source["Properties"]
