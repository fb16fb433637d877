"""Bundles have a vendor's SDK only if a stage's settings need it."""

import dataclasses
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from aws_cdk import App

from infra.app import build
from infra.bundling.bundle import BUDGET_BYTES, LAMBDA_LIMIT_BYTES, SDK_BYTES, make_bundle
from infra.constructs.function_code import VENDOR_SDKS, needed_sdks
from infra.setting_types import SettingsError
from infra.settings import DEV
from infra.stage_settings import StageSettings
from tests.infra.conftest import PLATFORM
from tests.infra.stack_template import StackTemplate

AZURE = {"VECTORFORGE_AZURE_OPENAI_ENDPOINT": "https://example.openai.azure.com"}
PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
Environment = Callable[..., dict[str, str]]


@pytest.mark.parametrize(
    ("environment", "query", "ingest"),
    [
        ({}, (), ()),
        ({"VECTORFORGE_OPENAI_CLIENT": "http", "VECTORFORGE_ANTHROPIC_CLIENT": "http"}, (), ()),
        ({"VECTORFORGE_OPENAI_CLIENT": "sdk"}, ("openai",), ("openai",)),
        (AZURE, ("openai",), ("openai",)),
        ({"VECTORFORGE_ANTHROPIC_CLIENT": "sdk"}, ("anthropic",), ()),
        ({"VECTORFORGE_VERTEX_PROJECT": "example"}, ("vertex",), ()),
    ],
)
def test_sdk_setting_bundles_sdk_in_query_and_ingest_functions(
    environment: dict[str, str], query: tuple[str, ...], ingest: tuple[str, ...]
) -> None:
    assert needed_sdks("query", environment) == query
    assert needed_sdks("ingest", environment) == ingest
    assert needed_sdks("log_writer", environment) == needed_sdks("migrate", environment) == ()


def code(stage: StageSettings, folder: Path) -> dict[str, str]:
    """Return the key of each function's code in the template."""
    app = App(context={"aws:cdk:bundling-stacks": []}, outdir=str(folder))
    build(app, stage)
    file = Path(app.synth().directory) / "VectorForge-dev-App.template.json"
    found = StackTemplate(json.loads(file.read_text())).of_kind("AWS::Lambda::Function")
    return {name: function["Code"]["S3Key"] for name, function in found.items()}


@pytest.mark.slow
def test_azure_stage_changes_code_of_query_and_ingest_functions(tmp_path: Path) -> None:
    without = code(DEV, tmp_path / "without")
    on_azure = code(dataclasses.replace(DEV, environment=AZURE), tmp_path / "azure")
    changed = {name for name, key in on_azure.items() if without[name] != key}
    assert len(changed) == 2
    assert any("Query" in name for name in changed)
    assert any("Ingest" in name for name in changed)


def test_token_in_stage_environment_is_rejected() -> None:
    with pytest.raises(SettingsError, match="use the secret vectorforge-dev/providers"):
        dataclasses.replace(DEV, environment={"VECTORFORGE_AZURE_OPENAI_AD_TOKEN": "x"})


PROGRAM = """
import asyncio
from vectorforge.llm.providers.anthropic import AnthropicProvider
from vectorforge.llm.providers.openai import OpenAIProvider
from vectorforge.vendors.accounts import AzureOpenAI, VertexAI
import google.auth
asyncio.run(OpenAIProvider("key", azure=AzureOpenAI("https://localhost", "2024-10-21")).preload())
asyncio.run(AnthropicProvider("", vertex=VertexAI("example", "global")).preload())
"""


@pytest.mark.slow
def test_bundle_with_every_sdk_imports_them_within_budget(
    tmp_path: Path, bare_python: tuple[str, ...], bare_environment: Environment
) -> None:
    folder = tmp_path / "bundle"
    bundle = make_bundle("query", folder, python_version=PYTHON, platform=PLATFORM, sdks=VENDOR_SDKS)
    assert BUDGET_BYTES["query"] < bundle.budget_bytes <= LAMBDA_LIMIT_BYTES
    assert set(SDK_BYTES) == set(VENDOR_SDKS)
    subprocess.run([*bare_python, "-c", PROGRAM], env=bare_environment(folder), check=True, timeout=120)
