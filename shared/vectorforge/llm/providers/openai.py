"""OpenAI, and every server with its chat completions API (Ollama, vLLM, MAX Serve, Gemini, ...)."""

import re
from collections.abc import Callable, Mapping
from contextlib import aclosing
from typing import Any, Self, TypeAlias, Unpack

import orjson
from pydantic import SecretStr

from vectorforge.config import LLMSettings
from vectorforge.errors import LLMError
from vectorforge.llm import failures
from vectorforge.llm.base import ProviderOptions
from vectorforge.llm.failures import find_overflow, named_parameter
from vectorforge.llm.http import HttpLLMProvider, StreamAccumulator, read_json
from vectorforge.llm.types import Completion, FinishReason, LLMRequestConfig, ProviderCall
from vectorforge.vendors.accounts import OPENAI_BASE_URL, azure_of
from vectorforge.vendors.credentials import Credentials, as_credentials
from vectorforge.vendors.failures import VendorStatusError
from vectorforge.vendors.http import CONNECT_TIMEOUT_S, refuses_key
from vectorforge.vendors.response import VendorResponse
from vectorforge.vendors.sdk_clients import AzureOpenAI, ClientKind, OpenAIClient, openai_transport

_SAMPLING = ("temperature", "top_p", "frequency_penalty", "presence_penalty")
_FINISH_REASONS: Mapping[str | None, FinishReason] = {
    "stop": "stop",
    "length": "length",
    "content_filter": "content_filter",
}
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
        base_url: Address of the API, with its ``/v1``; default: OpenAI's.
        organization: OpenAI organization that is billed.
        default_model: Model of requests that name none.
        name: Provider name, when the server is not OpenAI's.
        client: Transport of requests: our HTTP client or the package openai.
        azure: Resource of Azure OpenAI, called through the package openai instead of ``base_url``.
        **options: See ``BaseLLMProvider``.
    """

    def __init__(
        self,
        credentials: SecretStr | str | Credentials,
        *,
        base_url: str | None = None,
        organization: str | None = None,
        default_model: str = "gpt-4o",
        name: str = "openai",
        client: ClientKind = "http",
        azure: AzureOpenAI | None = None,
        **options: Unpack[ProviderOptions],
    ) -> None:
        self._name = name
        self._base_url = base_url or OPENAI_BASE_URL
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
    def from_settings(
        cls, settings: LLMSettings, credentials: SecretStr | Credentials, **options: Any
    ) -> Self:
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

    async def _call_api(self, call: ProviderCall) -> Completion:
        response, dropped = await self._send(call, stream=False)
        async with aclosing(response):
            answer = await read_json(response)
        text, reason = self._text_and_reason((answer.get("choices") or [{}])[0], "message")
        return self._completion(call, answer.get("model"), reason, answer.get("usage") or {}, dropped, text)

    async def _list_models(self) -> list[str]:
        page = await self._transport.get_json(self._url("models"))
        return [model["id"] for model in page["data"]]

    def _body(self, call: ProviderCall, *, stream: bool) -> Mapping[str, Any]:
        return self._request_body(call, self._refused.of(call.config.model), stream=stream)

    async def _send(self, call: ProviderCall, *, stream: bool) -> tuple[VendorResponse, list[str]]:
        wants_json = call.config.response_schema is not None
        without: frozenset[str] = frozenset()

        async def attempt(refused: frozenset[str]) -> VendorResponse:
            nonlocal without
            without = refused
            body = self._request_body(call, refused, stream=stream)
            # The base class limits silence, and counts pings as silence.
            connect_s = min(CONNECT_TIMEOUT_S, call.timeout_s)
            return await self._transport.post(self._url(self._path), body, connect_timeout_s=connect_s)

        def refused_name(exc: Exception) -> str | None:
            name = self._refused_name(exc)
            if name is None and wants_json and isinstance(exc, VendorStatusError):
                name = _refused_format(f"{exc.param} {exc.text}", without)
            return name

        response, refused = await self._refused.send(call.config.model, attempt, refused_name)
        dropped = [n for n in _SAMPLING if n in refused and getattr(call.config, n) is not None]
        return response, dropped + [step for step in _FORMAT_STEPS if wants_json and step in refused]

    @property
    def _path(self) -> str:
        """Endpoint path for completions."""
        return "chat/completions"

    def _url(self, path: str) -> str:
        return f"/{path}" if self._azure else f"{self._base_url.rstrip('/')}/{path}"

    def _request_body(self, call: ProviderCall, refused: frozenset[str], *, stream: bool) -> dict[str, Any]:
        config = call.config
        # Newer models accept only the first name, most OpenAI-compatible servers only the second.
        limit = "max_completion_tokens" if "max_tokens" in refused else "max_tokens"
        body = {
            "model": self._azure.deployment(config.model) if self._azure else config.model,
            "messages": [dict(message) for message in call.messages],
            limit: config.max_tokens,
            "stop": list(config.stop_sequences) or None,
            "response_format": _response_format(config, refused),
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

    def _refused_name(self, exc: Exception) -> str | None:
        if not isinstance(exc, VendorStatusError) or exc.status != 400:
            return None
        if find_overflow(exc.text) is not None:  # may mention max_tokens, too
            return None
        if "max_completion_tokens" in exc.text and exc.param in ("max_tokens", None):
            return "max_tokens"
        candidates = (*_SAMPLING, "stream_options")
        return named_parameter(candidates, message=exc.text, param=exc.param, code=exc.code)

    def _is_refusal(self, exc: VendorStatusError) -> bool:
        """Return True for a status that rejects the key."""
        return refuses_key(exc)

    def _map_error(self, exc: Exception) -> LLMError:
        if isinstance(exc, VendorStatusError) and self._is_refusal(exc):
            return failures.error_for_status(self.name, 401)
        return super()._map_error(exc)

    def _accumulator(self) -> StreamAccumulator:
        return _OpenAIStream(self.name, self._text_and_reason)

    def _completion(
        self,
        call: ProviderCall,
        model: str | None,
        reason: str | None,
        usage: Mapping[str, Any],
        dropped: list[str],
        text: str = "",
    ) -> Completion:
        return Completion(
            model=model or call.config.model,
            finish_reason=_FINISH_REASONS.get(reason, "other"),
            content=text,
            prompt_tokens=usage.get("prompt_tokens"),
            completion_tokens=usage.get("completion_tokens"),
            metadata={"dropped_parameters": dropped} if dropped else {},
        )


class _OpenAIStream(StreamAccumulator):
    """Reader of the chunks of a chat completion."""

    def __init__(self, provider: str, text_and_reason: _ChoiceReader) -> None:
        super().__init__()
        self._provider = provider
        self._text_and_reason = text_and_reason

    def _read(self, data: bytes) -> str:
        if data == b"[DONE]":
            self.is_complete = True
            return ""
        chunk = orjson.loads(data)
        if chunk.get("error"):
            self.error = _error_in_stream(self._provider, chunk["error"])
            return ""
        self.model = chunk.get("model") or self.model
        self.usage = chunk.get("usage") or self.usage
        choices = chunk.get("choices")
        if not choices:
            return ""
        text, reason = self._text_and_reason(choices[0], "delta")
        self.reason = self.reason or reason  # the last chunk of a refusal says "stop"
        return text


def _response_format(config: LLMRequestConfig, refused: frozenset[str]) -> dict[str, Any] | None:
    """Return ``response_format``: structured outputs, else any JSON object, else None.

    https://developers.openai.com/api/docs/guides/structured-outputs
    """
    if config.response_schema is None or "response_format" in refused:
        return None
    if "response_format.json_schema" in refused:
        return {"type": "json_object"}
    schema = {"name": "answer", "schema": dict(config.response_schema), "strict": True}
    return {"type": "json_schema", "json_schema": schema}


def _refused_format(complaint: str, refused: frozenset[str]) -> str | None:
    """Return the next part to leave out when a server complains about the format, else None."""
    if not _ABOUT_THE_FORMAT.search(complaint):
        return None
    return next((step for step in _FORMAT_STEPS if step not in refused), None)


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
