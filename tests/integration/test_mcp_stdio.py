"""``vectorforge mcp`` as a host starts it: a process with MCP over stdin and stdout."""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from mcp import Client, StdioServerParameters
from mcp_types import CallToolResult, TextContent

from tests.support.http.mcp_client import MODES
from tests.support.vendors.fake_openai import FakeOpenAI
from tests.support.vendors.fake_vendor import Reply
from vectorforge.local.postgres import EmbeddedPostgres

VECTORFORGE = Path(sys.executable).with_name("vectorforge")
HANDBOOK = "# Handbook\n\n## Refunds\n\nThe finance team approves every refund above 500 euros.\n"
QUESTION = {"query": "Who approves refunds?"}
PING = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "ping"}) + "\n"


@pytest.fixture(scope="module")
def environment(private_dir: Callable[[str], Path]) -> Iterator[dict[str, str]]:
    """Return the environment of a machine with one collection, ``handbook``, of one document."""
    folder = private_dir("mcp")
    (folder / "handbook.md").write_text(HANDBOOK)
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("VECTORFORGE_")}
    variables = {**inherited, "VECTORFORGE_DATA_DIR": str(folder / "data")}
    command = [str(VECTORFORGE), "ingest", "handbook.md", "-c", "handbook", "-m", "team=hr"]
    subprocess.run(command, cwd=folder, env=variables, check=True, capture_output=True, timeout=120)
    yield variables
    EmbeddedPostgres(folder / "data" / "postgres").stop(force=True)


def server(environment: dict[str, str], *arguments: str) -> StdioServerParameters:
    return StdioServerParameters(command=str(VECTORFORGE), args=["mcp", *arguments], env=environment)


async def call(client: Client, name: str, **arguments: Any) -> CallToolResult:
    result = await client.call_tool(name, arguments)
    assert isinstance(result, CallToolResult)
    return result


def text_of(result: CallToolResult) -> str:
    (content,) = result.content
    assert isinstance(content, TextContent)
    return content.text


@pytest.mark.parametrize("mode", MODES)
async def test_official_client_calls_every_tool(environment: dict[str, str], mode: str) -> None:
    async with Client(server(environment, "--collection", "handbook"), mode=mode) as client:
        assert client.protocol_version == MODES[mode]
        tools = (await client.list_tools()).tools
        assert {"semantic_search", "ask", "read_document"} <= {tool.name for tool in tools}
        read = await call(client, "list_documents", filters={"team": "hr"})
        assert read.structured_content["total"] == 1
        for tool in [tool for tool in tools if "query" in tool.input_schema["properties"]]:
            result = await call(client, tool.name, **QUESTION, filters={"team": "hr"})
            assert "The finance team approves" in text_of(result)
            assert tool.output_schema is not None
            jsonschema.validate(result.structured_content, tool.output_schema)
            assert result.structured_content["collection"] == "handbook"
            nothing = await call(client, tool.name, **QUESTION, filters={"team": "sales"})
            assert not nothing.is_error
            assert "finance" not in str(nothing)
        refused = await call(client, "ask", **QUESTION, collection="manuals")
        assert "one of these: handbook." in text_of(refused)


async def test_cancelled_call_stops_the_model(environment: dict[str, str]) -> None:
    async with FakeOpenAI() as openai, asyncio.timeout(60):
        keys = {"VECTORFORGE_OPENAI_BASE_URL": openai.base_url, "VECTORFORGE_OPENAI_API_KEY": openai.api_key}
        openai.script(Reply(pause_s=60))
        async with Client(server({**environment, **keys}, "-c", "handbook")) as client:
            call_task = asyncio.create_task(client.call_tool("ask", QUESTION))
            while not openai.requests:  # noqa: ASYNC110 - the fake has no event for it
                await asyncio.sleep(0.01)
            call_task.cancel()
            await openai.requests[-1].client_closed.wait()
            with pytest.raises(asyncio.CancelledError):
                await call_task
            answer = await call(client, "ask", **QUESTION)
            assert text_of(answer).startswith("The answer is 42 [Source 1].")


@pytest.mark.parametrize("mode", MODES)
async def test_call_reports_progress_and_cancellation_stops_the_model(
    environment: dict[str, str], mode: str
) -> None:  # issue 21
    seen, written = list[str | None](), asyncio.Event()

    async def show(progress: float, total: float | None, message: str | None) -> None:
        assert (progress > len(seen), total) == (True, None)
        seen.append(message)
        if message and message.startswith("Tokens"):
            written.set()

    async with FakeOpenAI() as openai, asyncio.timeout(60):
        keys = {"VECTORFORGE_OPENAI_BASE_URL": openai.base_url, "VECTORFORGE_OPENAI_API_KEY": openai.api_key}
        openai.script(Reply(texts=("The finance", " team."), gate=lambda number: asyncio.sleep(60 * number)))
        parameters = server({**environment, **keys}, "-c", "handbook")
        async with Client(parameters, mode=mode) as client:
            call_task = asyncio.create_task(client.call_tool("ask", QUESTION, progress_callback=show))
            await written.wait()
            call_task.cancel()  # as a notification
            await openai.requests[-1].client_closed.wait()
            with pytest.raises(asyncio.CancelledError):
                await call_task
    assert seen == ["Searching", "Passages found: 1", "Tokens written: about 2"]


def started(environment: dict[str, str], *arguments: str) -> "subprocess.Popen[str]":
    pipe = subprocess.PIPE
    command = [str(VECTORFORGE), "mcp", *arguments]
    process = subprocess.Popen(command, env=environment, text=True, stdin=pipe, stdout=pipe, stderr=pipe)
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(PING)
    process.stdin.flush()
    assert json.loads(process.stdout.readline()) == {"jsonrpc": "2.0", "id": 1, "result": {}}
    return process


def test_stdout_holds_messages_only_and_server_exits_at_stdin_end(environment: dict[str, str]) -> None:
    process = started(environment, "--debug")
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("no message\n" + PING)
    process.stdin.flush()
    while json.loads(process.stdout.readline()).get("id") != 1:
        pass
    out, err = process.communicate(timeout=60)
    assert out == ""
    assert "INFO" in err
    assert process.returncode == 0


@pytest.mark.usefixtures("ctrl_c")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_ends_an_idle_server(environment: dict[str, str], number: int) -> None:
    process = started(environment)
    process.send_signal(number)
    assert process.wait(timeout=60) == 130
    assert process.stderr is not None
    assert "Traceback" not in process.stderr.read()
    process.communicate()


def test_invalid_settings_are_reported_on_stderr(environment: dict[str, str]) -> None:
    wrong = {**environment, "VECTORFORGE_DATABASE_URL": "postgresql://vectorforge_app@127.0.0.1:1/x"}
    done = subprocess.run(
        [VECTORFORGE, "mcp"], env=wrong, input="", capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode != 0, done.stdout) == (True, "")
    assert done.stderr.startswith("error: ")


def test_unknown_collection_ends_the_server_with_a_remedy(environment: dict[str, str]) -> None:
    misspelled = {**environment, "VECTORFORGE_DEFAULT_COLECTION": "handbook"}
    done = subprocess.run(
        [VECTORFORGE, "mcp", "-c", "manuals"],
        env=misspelled, input="", capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (2, "")
    warning, error = done.stderr.splitlines()
    assert "VECTORFORGE_DEFAULT_COLECTION is not a setting and is ignored." in warning
    assert error.startswith(
        'error: There is no collection "manuals". `vectorforge collections list` shows all'
    )


def test_help_shows_host_configuration(environment: dict[str, str]) -> None:
    shown = subprocess.run(
        [VECTORFORGE, "mcp", "--help"], env=environment, capture_output=True, text=True, check=True
    ).stdout
    (snippet,) = re.findall(r"\{.*\}\}\}", shown, re.DOTALL)
    entry = json.loads(snippet)["mcpServers"]["vectorforge"]
    assert entry["command"] == "uv"
    assert entry["args"][-4:] == ["vectorforge", "mcp", "--collection", "default"]
