"""Form of an answer that a request asks for: stop sequences, JSON, tools of the caller."""

import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any

from vectorforge.llm.types import LLMRequestConfig, LLMResponse, Message
from vectorforge.pipeline.run import QueryRun
from vectorforge.pipeline.types import HistoryMessage

_JSON_PROMPT = (
    "\n\nAnswer with {what} and nothing else: no text before or after it, no code fence. Labels of passages "
    "belong inside of its texts."
)


def with_output(run: QueryRun, request: LLMRequestConfig) -> LLMRequestConfig:
    """Return the settings of a call with what the query asks for."""
    config, wanted = run.config, run.config.response_format
    if config.stop and not run.preset.response_schema:  # else cut from the text in the preset's JSON
        request = replace(request, stop_sequences=tuple(config.stop))
    if wanted is not None:
        request = replace(
            request,
            response_schema=wanted.schema,
            schema_name=wanted.name,
            strict_schema=wanted.strict,
            is_callers_schema=True,
            json_object=wanted.schema is None,
        )
    if config.tools:
        request = replace(
            request,
            tools=tuple(config.tools),
            tool_choice=config.tool_choice,
            parallel_tool_calls=config.parallel_tool_calls,
        )
    return request


def logged_output(request: LLMRequestConfig) -> dict[str, Any]:
    """Return what the query log has of these settings: stop sequences and names, no schemas."""
    found = {
        "stop": list(request.stop_sequences),
        "response_format": request.is_callers_schema and request.schema_name,
        "tools": [tool.name for tool in request.tools],
    }
    return {name: value for name, value in found.items() if value}


def json_prompt(run: QueryRun) -> str:
    """Return the instruction for an answer in JSON; empty if the query asks for text."""
    wanted = run.config.response_format
    if wanted is None:
        return ""
    if wanted.schema is None:
        return _JSON_PROMPT.format(what="one JSON object")
    return _JSON_PROMPT.format(what="JSON that matches the schema below") + f"\n{json.dumps(wanted.schema)}"


def with_tool_messages(run: QueryRun, messages: list[Message]) -> list[Message]:
    """Return the messages of a prompt with tool calls and their results, and the instruction for JSON.

    Args:
        run: Its conversation is among the messages as texts.
        messages: The system prompt, the conversation if the preset sends it, and the query.
    """
    config, (system, *_, query) = run.config, messages
    system = {**system, "content": system["content"] + json_prompt(run)}
    history = [_tool_message(message) for message in config.history]
    return [system, *history, query, *map(_tool_message, config.following)]


def note_tool_calls(run: QueryRun, response: LLMResponse) -> None:
    """Set the finish reason of an answer with tool calls, and log their names; drop unrequested calls."""
    if not run.config.may_call_tools:
        run.response = replace(response, tool_calls=())
        run.finish_reason = run.finish_reason.replace("tool_calls", "stop")
        return
    if run.finish_reason != "length":  # else the last call is incomplete
        run.finish_reason = "tool_calls"
    if run.request is not None:
        run.request["tool_calls"] = [call.name for call in response.tool_calls]


def _tool_message(message: HistoryMessage) -> Message:
    called = {"tool_calls": tuple(message.tool_calls)} if message.tool_calls else {}
    answered = {} if message.tool_call_id is None else {"tool_call_id": message.tool_call_id}
    return {"role": message.role, "content": message.content, **called, **answered}


async def until_stop(run: QueryRun, texts: AsyncGenerator[str, None]) -> AsyncGenerator[str, None]:
    """Yield an answer up to the first stop sequence; closes ``texts``, so that the model stops there.

    Vendors end at the sequence themselves; some models, and quoted chunks, know none.
    """
    stops, held = run.config.stop, ""
    async with aclosing(texts):
        async for text in texts:
            held += text
            if (end := _first_stop(held, stops)) is not None:
                yield held[:end]
                run.finish_reason = "stop"
                if run.is_extractive:  # for its report; there is no model to stop
                    async for _ in texts:
                        pass
                return
            ready = len(held) - _begun(held, stops)
            yield held[:ready]
            held = held[ready:]
    yield held


def cut_at_stop(text: str, stops: Sequence[str]) -> str:
    """Return a complete text up to the first stop sequence."""
    return text[: _first_stop(text, stops)]


def _first_stop(text: str, stops: Sequence[str]) -> int | None:
    """Return the start of the sequence that ends first, as a model would stop at it."""
    found = [(place + len(stop), place) for stop in stops if (place := text.find(stop)) >= 0]
    return min(found)[1] if found else None


def _begun(text: str, stops: Sequence[str]) -> int:
    """Return the length of the longest end of a text that begins a stop sequence."""
    longest = max(map(len, stops)) - 1
    return next(
        (n for n in range(min(longest, len(text)), 0, -1) if any(s.startswith(text[-n:]) for s in stops)), 0
    )
