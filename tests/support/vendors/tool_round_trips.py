"""Conversations with tool calls over each vendor's SDK: query, run the calls, send the results.

Tools are described in the vendor's format, with any schema. Each function returns the model's last text, and
raises the SDK's errors.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeAlias

RunTool: TypeAlias = Callable[[str, str | Mapping[str, Any]], Awaitable[str]]
"""(name, arguments as the vendor sends them) -> the result's text."""
Tools: TypeAlias = Sequence[Mapping[str, Any]]

_TOKENS = 500


async def openai_round_trip(client: Any, tools: Tools, question: str, run: RunTool, *, stream: bool) -> str:
    """Over chat completions.

    Args:
        client: ``openai.AsyncOpenAI``.
        tools: ``[{"type": "function", "function": {...}}]``.
        question: Question to the model.
        run: Runs a tool.
        stream: Whether to stream the answers.
    """
    messages: list[Any] = [{"role": "user", "content": question}]
    while True:
        request = {"model": "gpt-4o", "messages": messages, "tools": list(tools)}
        ask = _openai_streamed if stream else _openai_whole
        text, calls = await ask(client, request)
        if not calls:
            return text
        messages.append({"role": "assistant", "tool_calls": calls})
        for call in calls:
            result = await run(call["function"]["name"], call["function"]["arguments"])
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": result})


async def _openai_whole(client: Any, request: Mapping[str, Any]) -> tuple[str, list[dict[str, Any]]]:
    answer = (await client.chat.completions.create(**request)).choices[0].message
    return answer.content or "", [
        {
            "id": call.id,
            "type": "function",
            "function": {"name": call.function.name, "arguments": call.function.arguments},
        }
        for call in answer.tool_calls or ()
    ]


async def _openai_streamed(client: Any, request: Mapping[str, Any]) -> tuple[str, list[dict[str, Any]]]:
    """Join the pieces; the SDK's helper requires strict schemas, which not every tool has."""
    text, calls = "", dict[int, dict[str, Any]]()
    async for chunk in await client.chat.completions.create(**request, stream=True):
        for choice in chunk.choices:
            text += choice.delta.content or ""
            for piece in choice.delta.tool_calls or ():
                if piece.id:
                    function = {"name": piece.function.name, "arguments": ""}
                    calls[piece.index] = {"id": piece.id, "type": "function", "function": function}
                calls[piece.index]["function"]["arguments"] += piece.function.arguments or ""
    return text, [call for _, call in sorted(calls.items())]


async def anthropic_round_trip(
    client: Any, tools: Tools, question: str, run: RunTool, *, stream: bool
) -> str:
    """Over messages.

    Args:
        client: ``anthropic.AsyncAnthropic``.
        tools: ``[{"name": ..., "description": ..., "input_schema": {...}}]``.
        question: Question to the model.
        run: Runs a tool.
        stream: Whether to stream the answers.
    """
    messages: list[Any] = [{"role": "user", "content": question}]
    while True:
        request = {
            "model": "claude-haiku-5-5",
            "max_tokens": _TOKENS,
            "messages": messages,
            "tools": list(tools),
        }
        if stream:
            async with client.messages.stream(**request) as events:
                answer = await events.get_final_message()
        else:
            answer = await client.messages.create(**request)
        uses = [block for block in answer.content if block.type == "tool_use"]
        if not uses:
            return "".join(block.text for block in answer.content if block.type == "text")
        called = [{"type": "tool_use", "id": u.id, "name": u.name, "input": u.input} for u in uses]
        results = [
            {"type": "tool_result", "tool_use_id": u.id, "content": await run(u.name, u.input)} for u in uses
        ]
        messages += [{"role": "assistant", "content": called}, {"role": "user", "content": results}]


async def bedrock_round_trip(client: Any, tools: Tools, question: str, run: RunTool, *, stream: bool) -> str:
    """Over Converse and ConverseStream.

    Args:
        client: boto3's client of "bedrock-runtime"; it is called in threads.
        tools: ``[{"toolSpec": {"name": ..., "description": ..., "inputSchema": {"json": {...}}}}]``.
        question: Question to the model.
        run: Runs a tool.
        stream: Whether to stream the answers.
    """
    messages: list[Any] = [{"role": "user", "content": [{"text": question}]}]
    ask = _streamed_blocks if stream else _whole_blocks
    while True:
        request = {"modelId": "m", "messages": messages, "toolConfig": {"tools": list(tools)}}
        blocks = await asyncio.to_thread(ask, client, request)
        uses = [block["toolUse"] for block in blocks if "toolUse" in block]
        if not uses:
            return "".join(block.get("text", "") for block in blocks)
        results = [
            {
                "toolResult": {
                    "toolUseId": use["toolUseId"],
                    "content": [{"text": await run(use["name"], use["input"])}],
                }
            }
            for use in uses
        ]
        messages += [
            {"role": "assistant", "content": [{"toolUse": use} for use in uses]},
            {"role": "user", "content": results},
        ]


def _whole_blocks(client: Any, request: Mapping[str, Any]) -> list[Any]:
    found: list[Any] = client.converse(**request)["output"]["message"]["content"]
    return found


def _streamed_blocks(client: Any, request: Mapping[str, Any]) -> list[Any]:
    """Return the blocks of a streamed message; arguments arrive in pieces of JSON."""
    texts: dict[int, str] = {}
    uses: dict[int, dict[str, Any]] = {}
    for event in client.converse_stream(**request)["stream"]:
        if start := event.get("contentBlockStart"):
            uses[start["contentBlockIndex"]] = dict(start["start"]["toolUse"])
        if piece := event.get("contentBlockDelta"):
            index, delta = piece["contentBlockIndex"], piece["delta"]
            text = delta["text"] if "text" in delta else delta["toolUse"]["input"]
            texts[index] = texts.get(index, "") + text
    return [
        {"toolUse": {**uses[index], "input": json.loads(text)}} if index in uses else {"text": text}
        for index, text in sorted(texts.items())
    ]
