"""The older completions API (text in, text out), as OpenAI's SDK 3.54 types it and MAX Serve serves it."""

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from aiohttp import web
from pydantic import TypeAdapter

from tests.support.vendors.fake_openai import FakeOpenAI
from tests.support.vendors.fake_vendor import Reply, sse
from tests.support.vendors.vendor_behaviour import FinishWord

_FINISH: Mapping[FinishWord, str] = {
    "stop": "stop",
    "length": "length",
    "refusal": "content_filter",
    "tool": "tool_calls",
}


class FakeCompletions(FakeOpenAI):
    """``POST /v1/completions`` and ``GET /v1/models``."""

    generation_paths = ("/v1/completions",)

    def check(self, request: web.Request, body: Any) -> None:
        """Reject nulls, and fields that the SDK's types lack."""
        parameters, names = _types()
        if unknown := set(body) - names:
            raise ValueError(f"Unrecognized request arguments: {sorted(unknown)}")
        if None in body.values():
            raise ValueError("null is not a value")
        parameters.validate_python(body)

    def answer(self, reply: Reply, body: Any) -> Mapping[str, Any]:
        """A ``text_completion``."""
        choice = _choice("".join(reply.texts), _FINISH[reply.finish])
        usage = {"usage": _usage(reply.usage)} if reply.usage else {}
        return {**_head(body), "choices": [] if reply.without_choices else [choice], **usage}

    def before_texts(self, reply: Reply, body: Any) -> Iterator[bytes]:
        """Return nothing, or a chunk without choices if the reply has none."""
        if reply.without_choices:
            yield sse({**_head(body), "choices": []})

    def text_event(self, text: str, reply: Reply, body: Any) -> bytes:
        """A piece of text."""
        return sse({**_head(body), "choices": [_choice(text, None)]})

    def after_texts(self, reply: Reply, body: Any) -> Iterator[bytes]:
        """Return the finish reason, the usage if requested, and ``[DONE]``."""
        yield sse({**_head(body), "choices": [_choice("", _FINISH[reply.finish])]})
        if reply.usage and body.get("stream_options", {}).get("include_usage"):
            yield sse({**_head(body), "choices": [], "usage": _usage(reply.usage)})
        yield sse("[DONE]")


def _head(body: Any) -> dict[str, Any]:
    return {
        "id": "cmpl-1",
        "object": "text_completion",
        "created": 1_764_000_000,
        "model": f"{body['model']}-2026-01-01",
    }


def _choice(text: str, finish_reason: str | None) -> Mapping[str, Any]:
    return {"index": 0, "text": text, "logprobs": None, "finish_reason": finish_reason}


def _usage(usage: tuple[int, int]) -> Mapping[str, int]:
    return {"prompt_tokens": usage[0], "completion_tokens": usage[1], "total_tokens": sum(usage)}


@cache
def _types() -> tuple[TypeAdapter[Any], frozenset[str]]:
    from openai.types.completion_create_params import (
        CompletionCreateParamsNonStreaming,
        CompletionCreateParamsStreaming,
    )

    parameters: TypeAdapter[Any] = TypeAdapter(
        CompletionCreateParamsNonStreaming | CompletionCreateParamsStreaming
    )
    names = (
        CompletionCreateParamsStreaming.__required_keys__ | CompletionCreateParamsStreaming.__optional_keys__
    )
    return parameters, frozenset(names)
