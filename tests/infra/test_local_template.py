"""The SAM template for one machine is valid, and agrees with the library and AWS."""

import json
import os
import re
import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from cfnlint.decode import cfn_yaml

from infra.bundling.bundle import Bundle
from tests.support.aws.fake_aws import FakeAws
from vectorforge.config import known_variables

ROOT = Path(__file__).parents[2]
TEMPLATE = ROOT / "template-local.yaml"
SAM = "aws-sam-cli==1.170.0"
START = """\
import importlib, sys
from vectorforge.config import VectorForgeConfig

VectorForgeConfig.from_environment()
handler = importlib.import_module(sys.argv[1]).handler
getattr(handler, "startup", lambda: None)()
"""
RECEIVE = {"sqs:ReceiveMessage", "sqs:DeleteMessage", "sqs:GetQueueAttributes", "sqs:ChangeMessageVisibility"}


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
    """Run AWS's SAM command line on the template; return its output."""
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


@pytest.mark.slow
def test_local_template_passes_sam_and_cfn_lint(sam: Callable[..., str]) -> None:
    assert "is a valid SAM Template" in sam("validate", "--lint")


@pytest.mark.slow
def test_sam_builds_a_function_without_docker(sam: Callable[..., str], tmp_path: Path) -> None:
    sam("build", "MigrateFunction", "--build-dir", str(tmp_path / "build"))
    built = tmp_path / "build" / "MigrateFunction"
    assert (built / "functions" / "migrate" / "handler.py").is_file()
    assert (built / "vectorforge" / "aws" / "handlers" / "migrate.py").is_file()


def test_local_template_lists_every_function_with_its_handler(functions: dict[str, dict[str, Any]]) -> None:
    named = {properties["Handler"] for properties in functions.values()}
    folders = {path.parent.name for path in (ROOT / "functions").glob("*/handler.py")}
    assert named == {f"functions.{folder}.handler.handler" for folder in folders}
    for properties in functions.values():
        assert (ROOT / properties["CodeUri"] / "handler.py").is_file()


def test_local_template_settings_are_known_variables(functions: dict[str, dict[str, Any]]) -> None:
    names = {name for f in functions.values() for name in f.get("Environment", {}).get("Variables", {})}
    assert {name for name in names if name.startswith("VECTORFORGE_")} <= known_variables()


@pytest.fixture(scope="module")
def aws(template: dict[str, Any]) -> Iterator[FakeAws]:
    """Start AWS with the secret as defined in the template."""
    with FakeAws() as server:
        secret = template["Resources"]["ProviderSecret"]["Properties"]
        server.client("secretsmanager").create_secret(
            Name=secret["Name"], SecretString=secret["SecretString"]
        )
        yield server


@pytest.mark.parametrize("name", ["QueryFunction", "LogWriterFunction", "IngestFunction", "MigrateFunction"])
def test_functions_start_with_bundle_and_template_settings(
    template: dict[str, Any],
    functions: dict[str, dict[str, Any]],
    aws: FakeAws,
    bundle: Callable[[str], tuple[Path, Bundle]],
    bare_python: tuple[str, ...],
    bare_environment: Callable[..., dict[str, str]],
    name: str,
) -> None:
    properties = functions[name]
    folder, _ = bundle(Path(properties["CodeUri"]).name)
    parameters = {key: str(parameter["Default"]) for key, parameter in template["Parameters"].items()}
    parameters["AwsEndpointUrl"] = aws.environment["AWS_ENDPOINT_URL"]
    shared = template["Globals"]["Function"]["Environment"]["Variables"]
    variables = {
        key: _resolved(value, parameters)
        for key, value in {**shared, **properties["Environment"]["Variables"]}.items()
    }
    environment = bare_environment(folder, {**aws.environment, **variables})
    command = [*bare_python, "-c", START, properties["Handler"].rpartition(".")[0]]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_function_permissions_are_exactly_those_needed(functions: dict[str, dict[str, Any]]) -> None:
    allowed = {name: _permissions(properties) for name, properties in functions.items()}
    queries, ingestion = "QueryLogQueue.Arn", "IngestionQueue.Arn"
    secret = ("secretsmanager:GetSecretValue", "ProviderSecret")
    overflow, uploads = "arn:aws:s3:::${QueryLogOverflowBucket}/*", "arn:aws:s3:::${UploadsBucket}/*"
    assert allowed == {
        "QueryFunction": {
            ("sqs:SendMessage", queries),
            ("sqs:SendMessage", ingestion),
            ("s3:PutObject", overflow),
            ("s3:PutObject", uploads),
            secret,
        },
        "LogWriterFunction": {
            *((action, queries) for action in RECEIVE),
            ("s3:GetObject", overflow),
            ("s3:PutObject", overflow),
        },
        "IngestFunction": {
            *((action, ingestion) for action in RECEIVE),
            ("sqs:SendMessage", ingestion),
            ("s3:GetObject", uploads),
            ("s3:DeleteObject", uploads),
            ("s3:ListBucket", "UploadsBucket.Arn"),
            secret,
        },
        "MigrateFunction": set(),
        "AuthorizerFunction": set(),
        "ProbeFunction": set(),
    }


@pytest.mark.parametrize(
    ("name", "guides"),
    [("IngestFunction", ["ingestion-on-aws", "secrets"]), ("QueryFunction", ["query-log", "secrets"]),
     ("LogWriterFunction", ["query-log"])],
)  # fmt: skip
def test_guides_list_function_permissions(
    functions: dict[str, dict[str, Any]], name: str, guides: list[str]
) -> None:
    text = "".join((ROOT / "docs" / "operate" / f"{guide}.md").read_text() for guide in guides)
    listed = set(re.findall(r"`((?:sqs|s3|secretsmanager):\w+)`", text))
    assert {action for action, _ in _permissions(functions[name])} <= listed | {"sqs:SendMessage"}


def test_uploads_reach_ingest_function_through_queue(
    template: dict[str, Any], functions: dict[str, dict[str, Any]]
) -> None:
    resources = template["Resources"]
    bucket = resources["UploadsBucket"]["Properties"]
    [notification] = bucket["NotificationConfiguration"]["QueueConfigurations"]
    assert notification == {"Event": "s3:ObjectCreated:*", "Queue": {"Fn::GetAtt": ["IngestionQueue", "Arn"]}}
    [statement] = resources["IngestionQueuePolicy"]["Properties"]["PolicyDocument"]["Statement"]
    assert statement["Principal"] == {"Service": "s3.amazonaws.com"}
    source = statement["Condition"]["ArnEquals"]["aws:SourceArn"]["Fn::Sub"]
    assert source == "arn:aws:s3:::${UploadsBucketName}"
    assert bucket["BucketName"] == {"Ref": "UploadsBucketName"}
    assert {source["Type"] for source in functions["IngestFunction"]["Events"].values()} == {
        "SQS",
        "Schedule",
    }


def test_ingest_function_runs_every_five_minutes(functions: dict[str, dict[str, Any]]) -> None:
    [look] = [e for e in functions["IngestFunction"]["Events"].values() if e["Type"] == "Schedule"]
    assert look["Properties"]["Schedule"] == "rate(5 minutes)"
    sent = json.loads((ROOT / "events" / "ingest_scheduled.json").read_text())
    assert sent["source"] == "aws.events"


def test_tracing_setting_is_enabled_with_xray(template: dict[str, Any]) -> None:
    shared = template["Globals"]["Function"]
    assert (shared["Tracing"], shared["Environment"]["Variables"]["VECTORFORGE_TRACING"]) == (
        "Active",
        "xray",
    )


def test_visibility_timeout_is_six_times_function_timeout(
    template: dict[str, Any], functions: dict[str, dict[str, Any]]
) -> None:  # six times the timeout: docs.aws.amazon.com/lambda/latest/dg/services-sqs-configure.html
    sources = list(_queue_sources(functions))
    assert len(sources) == 2
    for function, source in sources:
        assert source["FunctionResponseTypes"] == ["ReportBatchItemFailures"]
        assert 2 <= source["ScalingConfig"]["MaximumConcurrency"] <= 10
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


def _permissions(function: dict[str, Any]) -> set[tuple[str, str]]:
    """Return each action with the resource that it is allowed on."""
    found = set()
    for policy in function.get("Policies", []):
        for statement in policy["Statement"]:
            actions, resources = _listed(statement["Action"]), _listed(statement["Resource"])
            found |= {(action, _named(resource)) for action in actions for resource in resources}
    return found


def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list) else [value]


def _named(resource: dict[str, Any]) -> str:
    [name] = resource.values()
    return ".".join(name) if isinstance(name, list) else str(name)


def _resolved(value: Any, parameters: Mapping[str, str]) -> str:
    """Resolve a variable like CloudFormation, for the functions that this template uses in variables."""
    match value:
        case {"Ref": name}:
            return parameters[name]
        case {"Fn::If": ["Streams", yes, no]}:
            return str(yes if parameters["InvokeMode"] == "RESPONSE_STREAM" else no)
        case {"Fn::Sub": [text, more]}:
            inner = {key: _resolved(part, parameters) for key, part in more.items()}
            return _resolved({"Fn::Sub": text}, {**parameters, **inner})
        case {"Fn::Sub": text}:
            return re.sub(r"\$\{(\w+)\}", lambda found: parameters[found[1]], text)
        case _:
            return str(value)
