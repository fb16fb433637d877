"""``vectorforge providers`` as a user runs it, against servers that speak the vendors' protocols."""

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

from tests.support.vendors.fake_bedrock import MODEL, FakeBedrock
from tests.support.vendors.fake_openai import FakeOpenAI
from tests.support.vendors.fake_vendor import FakeVendor

VECTORFORGE = Path(sys.executable).with_name("vectorforge")


async def run(*arguments: str, **settings: str) -> tuple[int, str, str]:
    """Run the command without a database; return exit code, stdout and stderr."""
    inherited = {
        name: value for name, value in os.environ.items() if not name.startswith(("VECTORFORGE_", "AWS_"))
    }
    process = await asyncio.create_subprocess_exec(
        VECTORFORGE, "providers", *arguments,
        env={**inherited, "AWS_EC2_METADATA_DISABLED": "true", **settings},
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    out, err = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode is not None
    assert "Traceback" not in err.decode()
    return process.returncode, out.decode(), err.decode()


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


async def as_json(*arguments: str, **settings: str) -> Any:
    found, out, err = await run(*arguments, "--json", **settings)
    assert found == 0, err
    return json.loads(out)


# A-060 A-092
async def test_list_shows_providers_and_settings_that_add_others() -> None:
    body = await as_json("list", VECTORFORGE_OPENAI_API_KEY="k", VECTORFORGE_BEDROCK_MODEL=MODEL)
    llm = {row["name"]: row for row in body["llm"]}
    assert (llm["openai"]["is_default"], llm["bedrock"]["default_model"]) == (True, MODEL)
    assert llm["openai"]["capabilities"] == ["generate", "list_models", "stream"]
    embedding = {row["name"]: row["dimension"] for row in body["embedding"]}
    assert (embedding["local"], embedding["openai"]) == (384, 1536)
    missing = {(row["for"], row["name"]): row["set"] for row in body["not_registered"]}
    assert missing["answers", "anthropic"] == "VECTORFORGE_ANTHROPIC_API_KEY"
    assert missing["embeddings", "bedrock"] == "VECTORFORGE_BEDROCK_EMBEDDING_MODEL"
    assert ("answers", "openai") not in missing
    _, out, err = await run("list")
    assert out.splitlines()[1].split("\t")[:4] == ["answers", "extractive", "yes", "extractive-v1"]
    assert "cohere (embeddings): set VECTORFORGE_COHERE_API_KEY" in err


#
async def test_models_lists_models_of_the_provider() -> None:
    async with FakeOpenAI() as one, FakeBedrock() as two:
        assert await as_json("models", "openai", **openai(one)) == {
            "provider": "openai",
            "default_model": "gpt-4o",
            "models": ["gpt-4o", "gpt-6-luna"],
        }
        code, out, _ = await run("models", "bedrock", **bedrock(two))
        assert (code, out.splitlines()) == (0, ["amazon.nova-2-lite-v1:0", f"{MODEL}  (default)"])
        code, _, err = await run("models", "openai", VECTORFORGE_DEFAULT_LLM_MODEL="gone", **openai(one))
        assert (code, "default model gone is not in this list" in err) == (0, True)
        code, _, err = await run("models", "nobody", **openai(one))
        assert (code, "Registered: openai." in err) == (2, True)


#
async def test_check_probes_providers_and_fails_on_rejected_credentials() -> None:
    async with FakeOpenAI() as one, FakeBedrock() as two:
        body = await as_json("check", "bedrock", **openai(one), **bedrock(two))
        assert body == {
            "ok": True,
            "providers": [{"kind": "answers", "name": "bedrock", "ok": True, "detail": f"{MODEL}, 2 models"}],
        }
        code, out, err = await run("check", **openai(one), **bedrock(two, secret="sk-not-the-right-one"))
        rows = {row.split("\t")[1]: row.split("\t")[2:] for row in out.splitlines() if "answers" in row}
        assert code == 1
        assert rows["openai"] == ["ok", "gpt-4o, 2 models"]
        assert rows["bedrock"] == ["fail", "The credentials were rejected."]
        assert "sk-not-the-right-one" not in out + err
        assert (await run("check", "nobody"))[0] == 2


async def test_check_reports_unreachable_providers() -> None:
    async with FakeOpenAI() as gone:
        settings = openai(gone)
    code, out, _ = await run("check", "openai", VECTORFORGE_EMBEDDING_MAX_RETRIES="0", **settings)
    assert code == 1
    assert "answers\topenai\tfail\tProvider openai could not be reached" in out
    assert "embeddings\topenai\tfail\tThe embedding provider cannot be reached." in out
