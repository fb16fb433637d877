"""Output of a deployment can be pasted into a shell unchanged."""

import hashlib
import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.infra.stack_template import StackTemplate, text
from vectorforge.api.native.rag import RAGQueryRequest

PROGRAMS = {
    "aws": '#!/bin/sh\nprintf \'%s\\n\' "$@" > "$0.arguments"; echo key-of-the-tenant\n',
    "curl": '#!/bin/sh\nprintf \'%s\\n\' "$@" > "$0.arguments"\n',
}
"""Unavailable programs, replaced by ones that record their arguments, one per line."""
URL = "https://RestApi.execute-api.AWS::Region.AWS::URLSuffix/RestApiDeploymentStage"
JSON = ["-H", "content-type: application/json"]

Paste = Callable[..., dict[str, list[str]]]


@pytest.fixture
def paste(tmp_path: Path) -> Paste:
    """Run lines in a shell; return the arguments of each program."""
    for name, program in PROGRAMS.items():
        (tmp_path / name).write_text(program)
        (tmp_path / name).chmod(0o755)

    def pasted(*lines: str, **variables: str) -> dict[str, list[str]]:
        path = f"{tmp_path}:{os.environ['PATH']}"
        subprocess.run(["bash", "-ec", "\n".join(lines)], env={"PATH": path, **variables}, check=True)
        written = tmp_path.glob("*.arguments")
        return {file.stem: file.read_text().splitlines() for file in written}

    return pasted


def outputs(template: StackTemplate) -> dict[str, str]:
    return {name: text(output["Value"]) for name, output in template.outputs.items()}


@pytest.mark.parametrize(("stage", "tenant"), [("dev", "demo"), ("both", "acme"), ("both", "beta2")])
def test_key_command_output_fetches_key_for_api_example(
    app_templates: dict[str, StackTemplate], stage: str, tenant: str, paste: Paste
) -> None:
    printed = outputs(app_templates[stage])
    given = paste(printed[f"KeyCommand{tenant}"], printed["ApiExample"])
    assert given["aws"] == [
        *("apigateway", "get-api-key", "--region", "AWS::Region", "--api-key", f"TenantKeysKey{tenant}"),
        *("--include-value", "--query", "value", "--output", "text"),
    ]
    assert given["curl"][:-1] == [
        *("-N", f"{URL}{stage}/v1/rag/query", "-H", "x-api-key: key-of-the-tenant", *JSON, "-d")
    ]
    assert RAGQueryRequest.model_validate_json(given["curl"][-1]).stream is True
    assert printed["ApiUrl"] == f"{URL}{stage}"


def test_provider_key_command_reads_key_from_stdin(assembly: Path, paste: Paste, tmp_path: Path) -> None:
    template = json.loads((assembly / "VectorForge-dev-Data.template.json").read_text())
    line = text(template["Outputs"]["ProviderKeyCommand"]["Value"])
    (tmp_path / "aws").write_text('#!/bin/sh\n(printf "%s\\n" "$@"; cat) > "$0.arguments"\n')
    given = paste(f"{{ {line}; }} <<< sk-typed")["aws"]
    assert given[:-1] == [
        *("secretsmanager", "put-secret-value", "--region", "AWS::Region"),
        *("--secret-id", "vectorforge-dev/providers", "--secret-string", "file:///dev/stdin"),
    ]
    assert json.loads(given[-1]) == {"openai_api_key": "sk-typed"}


def test_upload_example_targets_tenant_collection(
    app_templates: dict[str, StackTemplate], paste: Paste
) -> None:
    given = paste(outputs(app_templates["both"])["UploadExample"])["aws"]
    place = "s3://IngestionUploads/acme/handbook/README.md"
    assert given == ["s3", "cp", "--region", "AWS::Region", "README.md", place]


def test_cloudfront_example_sends_body_hash(app_templates: dict[str, StackTemplate], paste: Paste) -> None:
    for stage, url in (
        ("both", "https://ask.example.org"),
        ("url", "https://QueryUrlDistribution.DomainName"),
    ):
        printed = outputs(app_templates[stage])
        assert printed["CloudFrontUrl"] == url
        given = paste(printed["CloudFrontExample"], KEY="key-of-ours")["curl"]
        body = given[-1]
        assert RAGQueryRequest.model_validate_json(body).stream is True
        digest = hashlib.sha256(body.encode()).hexdigest()
        assert given[:-1] == [
            *("-N", f"{url}/v1/rag/query", "-H", "x-api-key: key-of-ours", *JSON),
            *("-H", f"x-amz-content-sha256: {digest}", "-d"),
        ]


@pytest.mark.parametrize("session", [{"AWS_SESSION_TOKEN": "t/o="}, {}], ids=["role", "user"])
def test_function_url_example_is_signed(
    app_templates: dict[str, StackTemplate], paste: Paste, session: dict[str, str]
) -> None:
    printed = outputs(app_templates["url"])
    keys = {"AWS_ACCESS_KEY_ID": "AKIDEXAMPLE", "AWS_SECRET_ACCESS_KEY": "s/e+c"}
    given = paste(printed["FunctionUrlExample"], **keys, **session)["curl"]
    token = [f"-Hx-amz-security-token: {value}" for value in session.values()]
    assert given[:-1] == [
        *("-N", "QueryUrl.FunctionUrlv1/rag/query", "--aws-sigv4", "aws:amz:AWS::Region:lambda"),
        *("--user", "AKIDEXAMPLE:s/e+c", *token, *JSON, "-d"),
    ]
    assert RAGQueryRequest.model_validate_json(given[-1]).stream is True
