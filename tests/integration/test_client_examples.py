"""The examples of an agent, a LangChain retriever and curl, run as a reader runs them."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.http.live_api import (
    LiveApi,
    add_documents,
    key_of,
    live_api,
    new_collection,
    settings_for,
)
from tests.support.vendors.fake_anthropic import FakeAnthropic
from tests.support.vendors.fake_openai import FakeOpenAI
from tests.support.vendors.fake_vendor import FakeVendor, Reply
from tests.support.vendors.vendor_behaviour import ToolCall
from vectorforge.local.postgres import EmbeddedPostgres

EXAMPLES = Path(__file__).parents[2] / "examples"
QUESTION = "Who approves refunds?"
PASSAGE = "The finance team approves every refund above 500 euros."


@pytest.fixture
async def api(postgres_server: EmbeddedPostgres, tenant: str) -> AsyncIterator[LiveApi]:
    async with (
        live_api(settings_for(postgres_server.app_url, [tenant])) as running,
        running.client(tenant) as client,
    ):
        await add_documents(client, await new_collection(client), refunds=PASSAGE, bread="Bread wants flour.")
        yield running


async def run(api: LiveApi, tenant: str, command: list[str], **variables: str) -> str:
    process = await asyncio.create_subprocess_exec(
        *command,
        env={
            "PATH": os.environ["PATH"],
            "VECTORFORGE_URL": api.url,
            "VECTORFORGE_API_KEY": key_of(tenant),
            **variables,
        },
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    return out.decode()


def python(name: str, *arguments: str) -> list[str]:
    return [sys.executable, "-W", "error", str(EXAMPLES / name), *arguments]


def scripted(vendor: FakeVendor) -> None:
    """Script a model that first names a missing collection, then searches, then answers."""
    wrong = ToolCall("ask", {"query": QUESTION, "collection": "manuals"})
    search = ToolCall("semantic_search", {"query": QUESTION, "top_k": 1})
    vendor.script(
        Reply(texts=(), finish="tool", tool_calls=(wrong,)),
        Reply(texts=(), finish="tool", tool_calls=(search,)),
        Reply(texts=("The finance team ", "(refunds.md).")),
    )


@pytest.mark.parametrize(
    ("fake", "variable"), [(FakeOpenAI, "OPENAI"), (FakeAnthropic, "ANTHROPIC")], ids=["openai", "anthropic"]
)
async def test_agent_example_calls_tools_and_answers(
    api: LiveApi, tenant: str, fake: Callable[[], Any], variable: str
) -> None:
    async with fake() as vendor:
        scripted(vendor)
        keys = {f"{variable}_API_KEY": vendor.api_key, f"{variable}_BASE_URL": vendor.base_url}
        printed = await run(api, tenant, python("mcp_agent.py", QUESTION), **keys)
        first, second, third = vendor.bodies
    assert printed.splitlines()[0] == QUESTION
    assert "ask(" in printed.splitlines()[1]
    assert "semantic_search(" in printed.splitlines()[2]
    assert printed.rstrip().endswith("The finance team (refunds.md).")
    assert "semantic_search_with_context" in json.dumps(first["tools"])
    assert "one of these: default." in json.dumps(second["messages"])
    assert PASSAGE in json.dumps(third["messages"])
    assert "flour" not in json.dumps(third["messages"])


async def test_langchain_example_retrieves_and_answers(api: LiveApi, tenant: str) -> None:
    async with FakeOpenAI() as vendor:
        vendor.script(Reply(texts=("The finance team [1].",)))
        keys = {"OPENAI_API_KEY": vendor.api_key, "OPENAI_BASE_URL": vendor.base_url}
        printed = await run(api, tenant, python("langchain_retriever.py", QUESTION), **keys)
        (body,) = vendor.bodies
    lines = printed.splitlines()
    assert lines[0].endswith(" refunds.md")
    assert lines[-1] == "The finance team [1]."
    system, user = body["messages"]
    assert f"[1] refunds.md\n{PASSAGE}" in system["content"]
    assert user == {"role": "user", "content": QUESTION}
    without = await run(api, tenant, python("langchain_retriever.py", QUESTION))
    assert "Set OPENAI_API_KEY" in without


async def test_langchain_example_with_rejected_query_prints_the_reason(api: LiveApi, tenant: str) -> None:
    with pytest.raises(AssertionError, match=r"Failed: 422: .*Query cannot be empty"):
        await run(api, tenant, python("langchain_retriever.py", " "))


async def test_curl_example_uses_each_api_surface_and_cleans_up(api: LiveApi, tenant: str) -> None:
    printed = await run(api, tenant, ["bash", str(EXAMPLES / "curl.sh")])
    parts = {part.partition("\n")[0]: part.partition("\n")[2] for part in printed.split("== ")[1:]}
    assert parts["Ingest a document and wait for the job"].strip() == "succeeded"
    (passage,) = json.loads(parts["Search: chunks, best first"])["results"]
    assert passage["source"] == "refunds.md"
    assert json.loads(parts["Query: a cited answer"])["citations"]
    assert "event: done" in parts["Stream: the same as server-sent events"]
    completion = json.loads(parts["OpenAI's API"])
    assert "five days" in completion["choices"][0]["message"]["content"]
    message = json.loads(parts["A tool of the Model Context Protocol, without a session"])
    assert "five days" in message["result"]["structuredContent"]["answer"]
    assert json.loads(parts["Clean up: the certificate of the erasure"])["sha256"]
    async with api.client(tenant) as client:
        names = [c["name"] for c in (await client.get("/v1/collections")).json()["collections"]]
    assert names == ["default"]
