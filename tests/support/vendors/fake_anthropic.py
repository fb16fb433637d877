"""The Messages API, as Anthropic's SDK 2.12 types it, and with the sampling parameters of older versions."""

import json
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from aiohttp import web
from pydantic import TypeAdapter

from tests.support.vendors.fake_vendor import FakeVendor, Reply, sse
from tests.support.vendors.vendor_behaviour import FinishWord, Refusal

_FINISH: Mapping[FinishWord, str] = {
    "stop": "end_turn",
    "length": "max_tokens",
    "refusal": "refusal",
    "tool": "tool_use",
}
_ERROR_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    429: "rate_limit_error",
    529: "overloaded_error",
}
_EXTRA = frozenset({"temperature", "top_p", "top_k"})
"""No longer in the SDK's types; the API accepts them for older models except those in ``refused``."""


class FakeAnthropic(FakeVendor):
    """``POST /v1/messages`` and ``GET /v1/models``."""

    base_path = ""
    generation_paths: tuple[str, ...] = ("/v1/messages",)
    ping = sse({"type": "ping"}, "ping")

    def check(self, request: web.Request, body: Any) -> None:
        """Reject a request without version header, or with fields that the SDK's types lack."""
        if "anthropic-version" not in request.headers:
            raise ValueError("anthropic-version: header is required")
        self.check_message(body)

    def check_message(self, body: Any) -> None:
        """Reject a body with fields that the SDK's types lack."""
        parameters, messages, tools, names = _types()
        if unknown := set(body) - names - _EXTRA:
            raise ValueError(f"{sorted(unknown)}: Extra inputs are not permitted")
        if None in body.values():
            raise ValueError("null is not a value")
        if not 0 <= body.get("temperature", 0) <= 1:
            raise ValueError("temperature: range: 0..1")
        parameters.validate_python({k: v for k, v in body.items() if k not in _EXTRA})
        messages.validate_python(body["messages"])
        tools.validate_python(body.get("tools", []))
        _check_tool_results(body["messages"])
        if not body["messages"] or any(m["role"] == "system" for m in body["messages"]):
            raise ValueError("messages: at least one message is required, of user or assistant")

    def answer(self, reply: Reply, body: Any) -> Mapping[str, Any]:
        """A ``message``."""
        content = [{"type": "text", "text": "".join(reply.texts), "citations": None}]
        blocks = [] if reply.without_choices else [*content, *_tool_uses(reply)]
        return self._message(body, reply.usage, blocks, _FINISH[reply.finish])

    def before_texts(self, reply: Reply, body: Any) -> Iterator[bytes]:
        """Start of the message and of its text."""
        usage = None if reply.usage is None else (reply.usage[0], 1)
        yield sse({"type": "message_start", "message": self._message(body, usage, [], None)}, "message_start")
        block = {"type": "text", "text": ""}
        start = {"type": "content_block_start", "index": 0, "content_block": block}
        yield sse(start, "content_block_start")
        yield self.ping

    def text_event(self, text: str, reply: Reply, body: Any) -> bytes:
        """A delta."""
        delta = {"type": "text_delta", "text": text}
        return sse({"type": "content_block_delta", "index": 0, "delta": delta}, "content_block_delta")

    def after_texts(self, reply: Reply, body: Any) -> Iterator[bytes]:
        """End of the text, stop reason with the final usage, end of the message."""
        yield sse({"type": "content_block_stop", "index": 0}, "content_block_stop")
        for index, block in enumerate(_tool_uses(reply), start=1):
            yield from _streamed_tool_use(index, block)
        delta = {"stop_reason": _FINISH[reply.finish], "stop_sequence": None}
        usage = {} if reply.usage is None else {"usage": {"output_tokens": reply.usage[1]}}
        yield sse({"type": "message_delta", "delta": delta, **usage}, "message_delta")
        yield sse({"type": "message_stop"}, "message_stop")

    def error_event(self) -> bytes:
        """Overloaded."""
        return sse(self.error_body(529, "Overloaded"), "error")

    def error_body(
        self, status: int, message: str, param: str | None = None, code: str | None = None
    ) -> Mapping[str, Any]:
        """``{"type": "error", "error": ...}``."""
        error = {"type": _ERROR_TYPES.get(status, "api_error"), "message": message}
        return {"type": "error", "error": error, "request_id": "req_1"}

    def overflow(self, prompt: int, completion: int, limit: int) -> Refusal:
        """Return the error for a prompt that is too long, alone or with the answer."""
        if prompt > limit:
            return Refusal(f"prompt is too long: {prompt} tokens > {limit} maximum")
        return Refusal(
            f"input length and `max_tokens` exceed context limit: {prompt} + {completion} > {limit}, "
            "decrease input length or `max_tokens` and try again"
        )

    def models_body(self, path: str) -> Mapping[str, Any]:
        """Two models."""
        names = ("claude-haiku-5-5", "claude-sonnet-5-5")
        data = [
            {"id": n, "type": "model", "display_name": n, "created_at": "2026-01-01T00:00:00Z"} for n in names
        ]
        return {"data": data, "has_more": False, "first_id": names[0], "last_id": names[1]}

    def _message(
        self, body: Any, usage: tuple[int, int] | None, content: list[Any], stop_reason: str | None
    ) -> dict[str, Any]:
        return {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "model": f"{body.get('model', 'claude')}-20260101",
            "content": content,
            "stop_reason": stop_reason,
            "stop_sequence": None,
            **({"usage": {"input_tokens": usage[0], "output_tokens": usage[1]}} if usage else {}),
        }


def _tool_uses(reply: Reply) -> list[dict[str, Any]]:
    return [
        {"type": "tool_use", "id": f"toolu_{number}", "name": call.name, "input": dict(call.arguments)}
        for number, call in enumerate(reply.tool_calls)
    ]


def _streamed_tool_use(index: int, block: Mapping[str, Any]) -> Iterator[bytes]:
    start = {"type": "content_block_start", "index": index, "content_block": {**block, "input": {}}}
    yield sse(start, "content_block_start")
    arguments = json.dumps(block["input"])
    for piece in (arguments[:7], arguments[7:]):
        delta = {"type": "input_json_delta", "partial_json": piece}
        yield sse({"type": "content_block_delta", "index": index, "delta": delta}, "content_block_delta")
    yield sse({"type": "content_block_stop", "index": index}, "content_block_stop")


def _check_tool_results(messages: list[Any]) -> None:
    """Check that the message after tool calls begins with all their results."""
    waiting: set[str] = set()
    for message in messages:
        blocks = message["content"] if isinstance(message["content"], list) else []
        results = {block["tool_use_id"] for block in blocks if block["type"] == "tool_result"}
        if results != waiting:
            break
        waiting = {block["id"] for block in blocks if block["type"] == "tool_use"}
    if waiting:
        raise ValueError("`tool_use` ids were found without `tool_result` blocks immediately after")


@cache
def _types() -> tuple[TypeAdapter[Any], TypeAdapter[Any], TypeAdapter[Any], frozenset[str]]:
    from anthropic.types import MessageParam, ToolUnionParam
    from anthropic.types.message_create_params import (
        MessageCreateParamsNonStreaming,
        MessageCreateParamsStreaming,
    )

    parameters: TypeAdapter[Any] = TypeAdapter(MessageCreateParamsNonStreaming | MessageCreateParamsStreaming)
    # Fields typed as Iterable are checked only when they are iterated, hence messages on their own.
    messages: TypeAdapter[Any] = TypeAdapter(list[MessageParam])
    tools: TypeAdapter[Any] = TypeAdapter(list[ToolUnionParam])
    names = MessageCreateParamsStreaming.__required_keys__ | MessageCreateParamsStreaming.__optional_keys__
    return parameters, messages, tools, frozenset(names)
