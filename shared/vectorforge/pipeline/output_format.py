"""Form of an answer that a request asks for: stop sequences, JSON, tools of the caller."""

import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any

from vectorforge.llm.tools import ToolCallDelta
from vectorforge.llm.types import LLMRequestConfig, LLMResponse, Message
from vectorforge.pipeline.run import QueryRun
from vectorforge.pipeline.types import HistoryMessage, SearchTool

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
    if config.offered_tools:
        choice = config.tool_choice
        if config.search_tool is not None:
            is_met = choice == "none" or (choice == "required" and run.tool_messages)
            choice = "none" if not run.may_search else "auto" if is_met else choice
        request = replace(
            request,
            tools=config.offered_tools,
            tool_choice=choice,
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
    return [system, *history, query, *map(_tool_message, config.following), *run.tool_messages]


def note_tool_calls(run: QueryRun, response: LLMResponse) -> None:
    """Set the finish reason of an answer with tool calls, and log their names; drop unrequested calls."""
    if run.config.search_tool is not None:
        response = run.response = take_searches(run, run.config.search_tool, response)
    if not (run.config.may_call_tools and response.tool_calls):
        run.response = replace(response, tool_calls=())
        run.finish_reason = run.finish_reason.replace("tool_calls", "stop")
        return
    if run.finish_reason != "length":  # else the last call is incomplete
        run.finish_reason = "tool_calls"
    if run.request is not None:
        run.request["tool_calls"] = [call.name for call in response.tool_calls]


def take_searches(run: QueryRun, tool: SearchTool, response: LLMResponse) -> LLMResponse:
    """Set the searches that a response calls for, and return it with calls of the caller's tools only.

    If it has both, the caller's come first: the model may search again when it has their results.
    """
    others = tuple(call for call in response.tool_calls if call.name != tool.definition.name)
    is_cut_off = response.metadata.get("finish_reason") == "length"
    if run.may_search and not is_cut_off and not (others and run.config.may_call_tools):
        run.search_calls = tuple(call for call in response.tool_calls if call.name == tool.definition.name)
    return replace(response, tool_calls=others)


class CallerPieces:
    """Passes on the pieces of streamed calls that are of the caller's tools, numbered from 0."""

    def __init__(self, tool: SearchTool) -> None:
        self._own = tool.definition.name
        self._places: dict[int, int | None] = {}

    def passed(self, piece: ToolCallDelta) -> ToolCallDelta | None:
        """Return the piece for the caller; None for one of a search."""
        if piece.index not in self._places:
            count = sum(place is not None for place in self._places.values())
            self._places[piece.index] = None if piece.name == self._own else count
        place = self._places[piece.index]
        return None if place is None else replace(piece, index=place)


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
