"""``vectorforge providers`` as a user runs it, against servers that speak the vendors' protocols."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.command_line import CommandLine, Finished
from tests.support.vendors.fake_bedrock import MODEL, FakeBedrock
from tests.support.vendors.fake_openai import FakeOpenAI
from tests.support.vendors.fake_vendor import FakeVendor

Run = Callable[..., Awaitable[Finished]]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run the command without a database, in a thread, while the servers run in this one."""
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    cli = CommandLine(tmp_path, tmp_path / "data")

    def run(*arguments: str, code: int = 0, **settings: str) -> Awaitable[Finished]:
        return asyncio.to_thread(cli, "providers", *arguments, code=code, **settings)

    return run


def openai(server: FakeVendor) -> dict[str, str]:
    return {
        "VECTORFORGE_OPENAI_API_KEY": server.api_key,
        "VECTORFORGE_OPENAI_BASE_URL": server.base_url,
        "VECTORFORGE_EXTRACTIVE_ANSWERS": "false",
    }


def bedrock(server: FakeVendor, secret: str | None = None) -> dict[str, str]:
    return {
        "VECTORFORGE_BEDROCK_MODEL": MODEL,
        "VECTORFORGE_BEDROCK_REGION": "eu-central-1",
        "VECTORFORGE_BEDROCK_BASE_URL": server.base_url,
        "AWS_ACCESS_KEY_ID": "AKIATEST",
        "AWS_SECRET_ACCESS_KEY": secret or server.api_key,
    }


async def as_json(run: Run, *arguments: str, **settings: str) -> Any:
    return json.loads((await run(*arguments, "--json", **settings)).stdout)


# A-060 A-092
async def test_list_shows_providers_and_settings_that_add_others(run: Run) -> None:
    body = await as_json(run, "list", VECTORFORGE_OPENAI_API_KEY="k", VECTORFORGE_BEDROCK_MODEL=MODEL)
    llm = {row["name"]: row for row in body["llm"]}
    assert (llm["openai"]["is_default"], llm["bedrock"]["default_model"]) == (True, MODEL)
    assert llm["openai"]["capabilities"] == ["generate", "list_models", "stream"]
    embedding = {row["name"]: row["dimension"] for row in body["embedding"]}
    assert (embedding["local"], embedding["openai"]) == (384, 1536)
    missing = {(row["for"], row["name"]): row["set"] for row in body["not_registered"]}
    assert missing["answers", "anthropic"] == "VECTORFORGE_ANTHROPIC_API_KEY"
    assert missing["embeddings", "bedrock"] == "VECTORFORGE_BEDROCK_EMBEDDING_MODEL"
    assert ("answers", "openai") not in missing
    listed = await run("list")
    assert listed.stdout.splitlines()[1].split("\t")[:4] == ["answers", "extractive", "yes", "extractive-v1"]
    assert "cohere (embeddings): set VECTORFORGE_COHERE_API_KEY" in listed.stderr


#
async def test_models_lists_models_of_the_provider(run: Run) -> None:
    async with FakeOpenAI() as one, FakeBedrock() as two:
        assert await as_json(run, "models", "openai", **openai(one)) == {
            "provider": "openai",
            "default_model": "gpt-4o",
            "models": ["gpt-4o", "gpt-6-luna"],
        }
        found = await run("models", "bedrock", **bedrock(two))
        assert found.stdout.splitlines() == ["amazon.nova-2-lite-v1:0", f"{MODEL}  (default)"]
        found = await run("models", "openai", VECTORFORGE_DEFAULT_LLM_MODEL="gone", **openai(one))
        assert "default model gone is not in this list" in found.stderr
        found = await run("models", "nobody", code=2, **openai(one))
        assert 'Unknown LLM provider "nobody"; registered: openai.\n' in found.stderr
        for command in ("models", "check"):
            found = await run(command, "cohere", code=2, **openai(one))
            assert "Set VECTORFORGE_COHERE_API_KEY to register cohere." in found.stderr


#
async def test_check_probes_providers_and_fails_on_rejected_credentials(run: Run) -> None:
    async with FakeOpenAI() as one, FakeBedrock() as two:
        body = await as_json(run, "check", "bedrock", **openai(one), **bedrock(two))
        assert body == {
            "ok": True,
            "providers": [{"kind": "answers", "name": "bedrock", "ok": True, "detail": f"{MODEL}, 2 models"}],
        }
        done = await run("check", code=1, **openai(one), **bedrock(two, secret="sk-not-the-right-one"))
        lines = [line.split("\t") for line in done.stdout.splitlines() if "answers" in line]
        rows = {line[1]: line[2:] for line in lines}
        assert rows["openai"] == ["ok", "gpt-4o, 2 models"]
        assert rows["bedrock"] == ["fail", "The credentials were rejected."]
        assert "sk-not-the-right-one" not in done.stdout + done.stderr
        await run("check", "nobody", code=2)


async def test_check_reports_unreachable_providers(run: Run) -> None:
    async with FakeOpenAI() as gone:
        settings = openai(gone)
    out = (await run("check", "openai", code=1, VECTORFORGE_EMBEDDING_MAX_RETRIES="0", **settings)).stdout
    assert "answers\topenai\tfail\tProvider openai could not be reached" in out
    assert "embeddings\topenai\tfail\tThe embedding provider cannot be reached." in out
