"""The chat completions API, as OpenAI's SDK 3.54 types it."""

import json
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from aiohttp import web
from pydantic import TypeAdapter

from tests.support.vendors.fake_vendor import FakeVendor, Reply, sse
from tests.support.vendors.vendor_behaviour import FinishWord, Refusal

_FINISH: Mapping[FinishWord, str] = {
    "stop": "stop",
    "length": "length",
    "refusal": "stop",
    "tool": "tool_calls",
}


class FakeOpenAI(FakeVendor):
    """``POST /v1/chat/completions`` and ``GET /v1/models``.

    A refusal has its texts in ``refusal`` instead of ``content``, as OpenAI's.
    """

    base_path = "/v1"
    generation_paths = ("/v1/chat/completions",)
    ping = b": ping\n\n"

    def check(self, request: web.Request, body: Any) -> None:
        """Reject nulls, and fields that the SDK's types lack."""
        parameters, messages, tools, names = _types()
        if unknown := set(body) - names:
            raise ValueError(f"Unrecognized request arguments: {sorted(unknown)}")
        if None in body.values():
            raise ValueError("null is not a value")
        parameters.validate_python(body)
        messages.validate_python(body["messages"])
        tools.validate_python(body.get("tools", []))
        _check_tool_results(body["messages"])

    def answer(self, reply: Reply, body: Any) -> Mapping[str, Any]:
        """A ``chat.completion``."""
        text, refused = "".join(reply.texts), reply.finish == "refusal"
        message = {
            "role": "assistant",
            "content": None if refused else text,
            "refusal": text if refused else None,
            **({"tool_calls": _tool_calls(reply)} if reply.tool_calls else {}),
        }
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": _FINISH[reply.finish]}
        return {
            "id": "chatcmpl-1",
            "object": "chat.completion",
            "created": 1_764_000_000,
            "model": _version(body),
            "choices": [] if reply.without_choices else [choice],
            **({"usage": _usage(reply.usage)} if reply.usage else {}),
        }

    def before_texts(self, reply: Reply, body: Any) -> Iterator[bytes]:
        """Return the role, after Azure's first chunk without choices if the reply has none."""
        if reply.without_choices:
            yield self._chunk(body, [])
        yield self._chunk(body, [_delta({"role": "assistant", "content": ""})])

    def text_event(self, text: str, reply: Reply, body: Any) -> bytes:
        """A delta."""
        return self._chunk(body, [_delta({"refusal" if reply.finish == "refusal" else "content": text})])

    def after_texts(self, reply: Reply, body: Any) -> Iterator[bytes]:
        """Return tool calls, the finish reason, the usage if requested, and ``[DONE]``."""
        for number, call in enumerate(_tool_calls(reply)):
            arguments = call["function"]["arguments"]
            begun = {**call, "index": number, "function": {**call["function"], "arguments": ""}}
            yield self._chunk(body, [_delta({"tool_calls": [begun]})])
            for piece in (arguments[:7], arguments[7:]):
                going_on = {"index": number, "function": {"arguments": piece}}
                yield self._chunk(body, [_delta({"tool_calls": [going_on]})])
        yield self._chunk(body, [{**_delta({}), "finish_reason": _FINISH[reply.finish]}])
        if reply.usage and body.get("stream_options", {}).get("include_usage"):
            yield self._chunk(body, [], usage=_usage(reply.usage))
        yield sse("[DONE]")

    def error_event(self) -> bytes:
        """A server error."""
        return sse(self.error_body(500, "The server had an error while processing your request."))

    def error_body(
        self, status: int, message: str, param: str | None = None, code: str | None = None
    ) -> Mapping[str, Any]:
        """``{"error": ...}``."""
        kind = "server_error" if status >= 500 else "invalid_request_error"
        code = code or ("unsupported_parameter" if param else None)
        return {"error": {"message": message, "type": kind, "param": param, "code": code}}

    def overflow(self, prompt: int, completion: int, limit: int) -> Refusal:
        """Return the error for messages that are too long, alone or with the answer."""
        had = f"your messages resulted in {prompt} tokens. Please reduce the length of the messages."
        if prompt <= limit:
            had = (
                f"you requested {prompt + completion} tokens ({prompt} in the messages, {completion} in the "
                "completion). Please reduce the length of the messages or completion."
            )
        message = f"This model's maximum context length is {limit} tokens. However, {had}"
        return Refusal(message, "messages", "context_length_exceeded")

    def models_body(self, path: str) -> Mapping[str, Any]:
        """Two models."""
        names = ("gpt-4o", "gpt-6-luna")
        data = [{"id": n, "object": "model", "created": 1, "owned_by": "openai"} for n in names]
        return {"object": "list", "data": data}

    def _chunk(self, body: Any, choices: list[Any], **more: Any) -> bytes:
        head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1_764_000_000}
        return sse({**head, "model": _version(body), "choices": choices, **more})


def _tool_calls(reply: Reply) -> list[dict[str, Any]]:
    return [
        {
            "id": f"call_{number}",
            "type": "function",
            "function": {"name": call.name, "arguments": json.dumps(call.arguments)},
        }
        for number, call in enumerate(reply.tool_calls)
    ]


def _check_tool_results(messages: list[Any]) -> None:
    """Check that every tool call has its result before the conversation continues."""
    waiting: set[str] = set()
    for message in messages:
        if message["role"] == "tool":
            waiting.remove(message["tool_call_id"])
        elif waiting:
            break
        waiting |= {call["id"] for call in message.get("tool_calls") or ()}
    if waiting:
        raise ValueError(f"tool_call_ids did not have response messages: {sorted(waiting)}")


def _version(body: Any) -> str:
    return f"{body['model']}-2026-01-01"


def _delta(delta: Mapping[str, Any]) -> dict[str, Any]:
    return {"index": 0, "delta": delta, "logprobs": None, "finish_reason": None}


def _usage(usage: tuple[int, int]) -> Mapping[str, int]:
    return {"prompt_tokens": usage[0], "completion_tokens": usage[1], "total_tokens": sum(usage)}


@cache
def _types() -> tuple[TypeAdapter[Any], TypeAdapter[Any], TypeAdapter[Any], frozenset[str]]:
    from openai.types.chat import ChatCompletionMessageParam, ChatCompletionToolUnionParam
    from openai.types.chat.completion_create_params import (
        CompletionCreateParamsNonStreaming,
        CompletionCreateParamsStreaming,
    )

    parameters: TypeAdapter[Any] = TypeAdapter(
        CompletionCreateParamsNonStreaming | CompletionCreateParamsStreaming
    )
    # Fields typed as Iterable are checked only when they are iterated, hence messages on their own.
    messages: TypeAdapter[Any] = TypeAdapter(list[ChatCompletionMessageParam])
    tools: TypeAdapter[Any] = TypeAdapter(list[ChatCompletionToolUnionParam])
    names = (
        CompletionCreateParamsStreaming.__required_keys__ | CompletionCreateParamsStreaming.__optional_keys__
    )
    return parameters, messages, tools, frozenset(names)
