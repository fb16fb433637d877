"""OpenAI, and every server with its chat completions API (Ollama, vLLM, MAX Serve, Gemini, ...)."""

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, ClassVar, Self, TypeAlias, Unpack

import orjson
from pydantic import SecretStr

from vectorforge.config import LLMSettings
from vectorforge.errors import LLMError
from vectorforge.llm import failures
from vectorforge.llm.failures import find_overflow, named_parameter
from vectorforge.llm.http import HttpLLMProvider, StreamAccumulator
from vectorforge.llm.tools import NamedTool, ToolCallDelta
from vectorforge.llm.types import FinishReason, LLMRequestConfig, Message, ProviderCall, ProviderOptions
from vectorforge.vendors.accounts import (
    OPENAI_BASE_URL,
    AzureOpenAI,
    ClientKind,
    OpenAIClient,
    azure_of,
    openai_transport,
)
from vectorforge.vendors.credentials import Credentials, as_credentials
from vectorforge.vendors.http import refuses_key
from vectorforge.vendors.response import VendorStatusError

_SAMPLING = ("temperature", "top_p", "frequency_penalty", "presence_penalty", "parallel_tool_calls")
_FORMAT_STEPS = ("response_format.json_schema", "response_format")
"""Parts of a request for JSON that a model may refuse, in this order: the schema, then JSON at all."""
_ABOUT_THE_FORMAT = re.compile(r"response_?format|json_schema|json_object", re.IGNORECASE)
"""Servers word the complaint differently, but name the field, e.g.
https://github.com/ikawrakow/ik_llama.cpp/issues/778."""

_ChoiceReader: TypeAlias = Callable[[Mapping[str, Any], str], tuple[str, str | None]]


class OpenAIProvider(HttpLLMProvider[OpenAIClient]):
    """Chat completions.

    Args:
        credentials: API key, or a source of one.
        base_url: Address of the API, with its ``/v1``; default: the vendor's.
        organization: OpenAI organization that is billed.
        default_model: Model of requests that name none.
        name: Provider name; default: the class's.
        client: Transport of requests: our HTTP client or the package openai.
        azure: Resource of Azure OpenAI, called through the package openai instead of ``base_url``.
        **options: See ``BaseLLMProvider``.
    """

    vendor: ClassVar[str] = "openai"
    address: ClassVar[str] = OPENAI_BASE_URL
    usage_fields: ClassVar[tuple[str, str]] = ("prompt_tokens", "completion_tokens")
    finish_reasons: ClassVar[Mapping[str | None, FinishReason]] = {
        "stop": "stop",
        "length": "length",
        "content_filter": "content_filter",
        "tool_calls": "tool_calls",
    }

    def __init__(
        self,
        credentials: SecretStr | str | Credentials,
        *,
        base_url: str | None = None,
        organization: str | None = None,
        default_model: str = "gpt-4o",
        name: str | None = None,
        client: ClientKind = "http",
        azure: AzureOpenAI | None = None,
        **options: Unpack[ProviderOptions],
    ) -> None:
        self._name = name or self.vendor
        self._base_url = base_url or self.address
        self._azure = azure
        connection = openai_transport(
            as_credentials(credentials),
            lambda: self._base_url,
            organization=organization,
            client=client,
            azure=azure,
            is_refusal=self._is_refusal,
        )
        super().__init__(connection, default_model=default_model, **options)

    @classmethod
    def from_settings(cls, settings: LLMSettings, credentials: Credentials, **options: Any) -> Self:
        """Return the provider that the settings describe."""
        return cls(
            credentials,
            base_url=settings.openai_base_url,
            organization=settings.openai_org_id,
            default_model=settings.default_model,
            client=settings.openai_client,
            azure=azure_of(settings),
            **options,
        )

    def provider_name(self) -> str:
        """Return the configured name, "openai" by default."""
        return self._name

    async def _list_models(self) -> list[str]:
        page = await self._transport.get_json(self._url("models"))
        return [model["id"] for model in page["data"]]

    @property
    def _path(self) -> str:
        return "chat/completions"

    def _url(self, path: str) -> str:
        return f"/{path}" if self._azure else f"{self._base_url.rstrip('/')}/{path}"

    def _request_body(self, call: ProviderCall, refused: frozenset[str], *, stream: bool) -> dict[str, Any]:
        config = call.config
        # Newer models accept only the first name, most OpenAI-compatible servers only the second.
        limit = "max_completion_tokens" if "max_tokens" in refused else "max_tokens"
        body = {
            "model": self._azure.deployment(config.model) if self._azure else config.model,
            "messages": [_message(message) for message in call.messages],
            limit: config.max_tokens,
            "stop": None if "stop" in refused else list(config.stop_sequences) or None,
            "response_format": _response_format(config, refused),
            **(_tools(config) if config.tools else {}),
            **{name: getattr(config, name) for name in _SAMPLING if name not in refused},
        }
        if stream:
            body["stream"] = True
            body["stream_options"] = None if "stream_options" in refused else {"include_usage": True}
        return {name: value for name, value in body.items() if value is not None}

    def _text_and_reason(self, choice: Mapping[str, Any], part: str) -> tuple[str, str | None]:
        """Return text and finish reason of a choice; ``part`` is "message", or "delta" in a stream."""
        message = choice.get(part) or {}
        reason = "content_filter" if message.get("refusal") else choice.get("finish_reason")
        return message.get("content") or message.get("refusal") or "", reason

    def _refused_name(
        self, exc: VendorStatusError, config: LLMRequestConfig, refused: frozenset[str]
    ) -> str | None:
        if exc.status == 400 and find_overflow(exc.text) is None:  # which may mention max_tokens, too
            if "max_completion_tokens" in exc.text and exc.param in ("max_tokens", None):
                return "max_tokens"
            candidates = (*_SAMPLING, "stop", "stream_options")
            if name := named_parameter(candidates, message=exc.text, param=exc.param, code=exc.code):
                return name
        steps = _FORMAT_STEPS if config.response_schema is not None else _FORMAT_STEPS[1:]
        is_json = config.response_schema is not None or config.json_object
        if not is_json or not _ABOUT_THE_FORMAT.search(f"{exc.param} {exc.text}"):
            return None
        return next((step for step in steps if step not in refused), None)

    def _is_refusal(self, exc: VendorStatusError) -> bool:
        """Return True for a status that rejects the key."""
        return refuses_key(exc)

    def _map_error(self, exc: Exception) -> LLMError:
        if isinstance(exc, VendorStatusError) and self._is_refusal(exc):
            return failures.error_for_status(self.name, 401)
        return super()._map_error(exc)

    def _accumulator(self) -> StreamAccumulator:
        return _OpenAIStream(self.name, self._text_and_reason)


class _OpenAIStream(StreamAccumulator):
    """Reader of a chat completion and its chunks."""

    def __init__(self, provider: str, text_and_reason: _ChoiceReader) -> None:
        super().__init__(provider)
        self._text_and_reason = text_and_reason
        self._begun: set[int] = set()
        """Tool calls whose first piece was read."""

    def read_whole(self, answer: Any) -> str:
        self.model, self.usage = answer.get("model"), answer.get("usage") or {}
        choice = (answer.get("choices") or [{}])[0]
        text, self.reason = self._text_and_reason(choice, "message")
        self._read_calls(choice.get("message"))
        return text

    def _read(self, data: bytes) -> str:
        if data == b"[DONE]":
            self.is_complete = True
            return ""
        chunk = orjson.loads(data)
        if chunk.get("error"):
            self.error = _error_in_stream(self.provider, chunk["error"])
            return ""
        self.model = chunk.get("model") or self.model
        self.usage = chunk.get("usage") or self.usage
        choices = chunk.get("choices")
        if not choices:
            return ""
        text, reason = self._text_and_reason(choices[0], "delta")
        self._read_calls(choices[0].get("delta"))
        self.reason = self.reason or reason  # the last chunk of a refusal says "stop"
        return text

    def _read_calls(self, message: Mapping[str, Any] | None) -> None:
        if not message or not message.get("tool_calls"):
            return
        for place, call in enumerate(message["tool_calls"]):
            function, number = call.get("function") or {}, call.get("index")
            index = place if number is None else number  # some servers, and whole answers, have none
            piece = ToolCallDelta(index, function.get("arguments") or "")
            if index not in self._begun:
                self._begun.add(index)
                piece = replace(piece, id=call.get("id") or f"call_{index}", name=function.get("name"))
            self.calls.append(piece)


def _message(message: Message) -> dict[str, Any]:
    sent = dict(message)
    if calls := sent.get("tool_calls"):
        sent["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in calls
        ]
        if not sent["content"]:
            del sent["content"]
    return sent


def _tools(config: LLMRequestConfig) -> dict[str, Any]:
    """Return the tools and their choice. https://developers.openai.com/api/docs/guides/function-calling."""
    choice: Any = config.tool_choice
    if isinstance(choice, NamedTool):
        choice = {"type": "function", "function": {"name": choice.name}}
    return {"tools": [tool.for_openai() for tool in config.tools], "tool_choice": choice}


def _response_format(config: LLMRequestConfig, refused: frozenset[str]) -> dict[str, Any] | None:
    """Return ``response_format``: structured outputs, else any JSON object, else None.

    https://developers.openai.com/api/docs/guides/structured-outputs
    """
    is_json = config.response_schema is not None or config.json_object
    if not is_json or "response_format" in refused:
        return None
    if config.response_schema is None or "response_format.json_schema" in refused:
        return {"type": "json_object"}
    schema = {
        "name": config.schema_name,
        "schema": dict(config.response_schema),
        "strict": config.strict_schema,
    }
    return {"type": "json_schema", "json_schema": schema}


def _error_in_stream(provider: str, error: Any) -> LLMError:
    """Return the error for ``data: {"error": ...}`` inside a stream that began with status 200."""
    details = error if isinstance(error, Mapping) else {}
    code, kind = details.get("code"), str(details.get("type"))
    if isinstance(code, int) and 400 <= code < 600:
        status = code
    elif "rate_limit" in f"{kind} {code}" or "insufficient_quota" in f"{kind} {code}":
        status = 429
    elif kind == "invalid_request_error":
        status = 400
    else:
        status = 500
    return failures.error_for_status(provider, status, text=str(error))
