"""An agent: a model that calls VectorForge's tools over MCP as often as it needs, and then answers.

Start the server with `uv run vectorforge up`, then
`OPENAI_API_KEY=... uv run --with openai python examples/mcp_agent.py "What if the database is down?"`.
With ``ANTHROPIC_API_KEY`` (and `--with anthropic`) Anthropic's model is used instead. ``AGENT_MODEL`` sets
another model, ``VECTORFORGE_URL`` another server, ``VECTORFORGE_API_KEY`` its key.
"""

import asyncio
import json
import os
import sys
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import TextContent, Tool

BASE_URL = os.environ.get("VECTORFORGE_URL", "http://localhost:8000")
TIMEOUT_S = 120
MAX_TURNS = 8
MAX_TOKENS = 2000
INSTRUCTIONS = (
    "Answer from the user's documents, which you reach through your tools. Search again in other words "
    "before you give up. Name the sources you use, and say so when the documents have no answer."
)


@dataclass(frozen=True)
class ToolOutcome:
    """Return a tool's output or its error, as text for the model."""

    text: str
    failed: bool


CallTool = Callable[[str, Mapping[str, Any]], Awaitable[ToolOutcome]]


async def ask_openai(question: str, tools: list[Tool], call_tool: CallTool) -> str:
    """Run the agent loop with OpenAI's chat completions or a compatible server (``OPENAI_BASE_URL``)."""
    from openai import AsyncOpenAI

    offered: list[Any] = [
        {
            "type": "function",
            "function": {"name": t.name, "description": t.description, "parameters": t.input_schema},
        }
        for t in tools
    ]
    messages: list[Any] = [
        {"role": "system", "content": INSTRUCTIONS},
        {"role": "user", "content": question},
    ]
    model = os.environ.get("AGENT_MODEL", "gpt-6-luna")
    async with AsyncOpenAI() as client:
        for _ in range(MAX_TURNS):
            completion = await client.chat.completions.create(model=model, messages=messages, tools=offered)
            answer = completion.choices[0].message
            if not answer.tool_calls:
                return answer.content or ""
            messages.append(answer.model_dump(exclude_none=True))
            for call in answer.tool_calls:
                if call.type == "function":
                    outcome = await call_tool(call.function.name, json.loads(call.function.arguments))
                    messages.append({"role": "tool", "tool_call_id": call.id, "content": outcome.text})
    return f"No answer after {MAX_TURNS} turns."


async def ask_anthropic(question: str, tools: list[Tool], call_tool: CallTool) -> str:
    """Run the agent loop with Anthropic's messages."""
    from anthropic import AsyncAnthropic

    offered: list[Any] = [
        {"name": t.name, "description": t.description, "input_schema": t.input_schema} for t in tools
    ]
    messages: list[Any] = [{"role": "user", "content": question}]
    model = os.environ.get("AGENT_MODEL", "claude-haiku-5-5")
    async with AsyncAnthropic() as client:
        for _ in range(MAX_TURNS):
            answer = await client.messages.create(
                model=model, max_tokens=MAX_TOKENS, system=INSTRUCTIONS, messages=messages, tools=offered
            )
            calls = [block for block in answer.content if block.type == "tool_use"]
            if not calls:
                return "".join(block.text for block in answer.content if block.type == "text")
            used = [{"type": "tool_use", "id": c.id, "name": c.name, "input": c.input} for c in calls]
            messages.append({"role": "assistant", "content": used})
            results: list[Any] = []
            for call in calls:
                outcome = await call_tool(call.name, call.input)
                results.append(
                    {
                        "type": "tool_result",
                        "tool_use_id": call.id,
                        "content": outcome.text,
                        "is_error": outcome.failed,
                    }
                )
            messages.append({"role": "user", "content": results})
    return f"No answer after {MAX_TURNS} turns."


async def answer(question: str) -> str:
    """Connect to VectorForge and answer with its tools."""
    key = os.environ.get("VECTORFORGE_API_KEY")
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=TIMEOUT_S) as http,
        Client(streamable_http_client(f"{BASE_URL}/mcp", http_client=http)) as client,
    ):

        async def call_tool(name: str, arguments: Mapping[str, Any]) -> ToolOutcome:
            print(f"  {name}({json.dumps(arguments, ensure_ascii=False)})")
            result = await client.call_tool(name, dict(arguments))
            texts = [content.text for content in result.content if isinstance(content, TextContent)]
            return ToolOutcome("\n".join(texts), failed=result.is_error)

        tools = (await client.list_tools()).tools
        ask = ask_anthropic if "ANTHROPIC_API_KEY" in os.environ else ask_openai
        return await ask(question, tools, call_tool)


def reason_of(error: BaseException) -> str:
    """Return the first failure of the tasks that were running; the MCP client groups them."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, httpx2.ConnectError):
        return f"no server at {BASE_URL}. Start it: uv run vectorforge up"
    return str(error) or type(error).__name__


if __name__ == "__main__":
    if not {"OPENAI_API_KEY", "ANTHROPIC_API_KEY"} & os.environ.keys():
        raise SystemExit("Set OPENAI_API_KEY or ANTHROPIC_API_KEY: an agent needs a model that calls tools.")
    asked = " ".join(sys.argv[1:]) or "How are tenants isolated?"
    print(asked)
    try:
        print(asyncio.run(answer(asked)))
    except Exception as error:  # noqa: BLE001 - a refusal of the server or of the model's vendor
        raise SystemExit(f"The agent failed: {reason_of(error)}") from None
