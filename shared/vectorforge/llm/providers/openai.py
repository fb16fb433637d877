"""OpenAI, and every server that speaks its chat completions API (Ollama, vLLM, MAX Serve, Gemini, ...)."""

from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Self

import orjson
from pydantic import SecretStr

from vectorforge.config import LLMSettings
from vectorforge.errors import LLMError
from vectorforge.health import HealthChecker
from vectorforge.llm import failures, response_body
from vectorforge.llm.base import BaseLLMProvider
from vectorforge.llm.failures import find_overflow
from vectorforge.llm.request_shaping import (
    RefusedParameters,
    named_parameter,
    openai_format,
    refused_openai_format,
    refused_steps,
)
from vectorforge.llm.types import Completion, FinishReason, ProviderCall
from vectorforge.telemetry import MetricsCollector
from vectorforge.vendors.accounts import azure_of
from vectorforge.vendors.credentials import Credentials, as_credentials
from vectorforge.vendors.errors import VendorStatusError
from vectorforge.vendors.http import CONNECT_TIMEOUT_S, VendorResponse, refuses_key
from vectorforge.vendors.sdk_clients import AzureOpenAI, ClientKind, openai_transport

if TYPE_CHECKING:
    from openai import AsyncOpenAI

DEFAULT_BASE_URL = "https://api.openai.com/v1"

_SAMPLING = ("temperature", "top_p", "frequency_penalty", "presence_penalty")
_FINISH_REASONS: Mapping[str | None, FinishReason] = {
    "stop": "stop",
    "length": "length",
    "content_filter": "content_filter",
}


class OpenAIProvider(BaseLLMProvider):
    """Chat completions."""

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
        metrics: MetricsCollector | None = None,
        health_checker: HealthChecker | None = None,
        retries: int = 3,
        timeout_s: float = 60.0,
        token_gap_s: float = 10.0,
    ) -> None:
        """Connects to nothing and imports no HTTP client yet.

        Args:
            credentials: API key, or where to ask for it.
            base_url: Address of the API, with its ``/v1``; default: OpenAI's.
            organization: OpenAI organization that pays.
            default_model: Used when a request names none.
            name: Provider name, when the server is not OpenAI's.
            client: Whether requests go over our HTTP client or the package openai.
            azure: A resource of Azure OpenAI, asked over the package openai instead of ``base_url``.
            metrics: Where measurements go.
            health_checker: Gets the probe ``llm.<name>``.
            retries: See ``BaseLLMProvider``.
            timeout_s: See ``BaseLLMProvider``.
            token_gap_s: See ``BaseLLMProvider``.
        """
        self._name = name
        self._base_url = base_url or DEFAULT_BASE_URL
        self._azure = azure
        self._sdk, self._transport = openai_transport(
            as_credentials(credentials),
            lambda: self._base_url,
            organization=organization,
            client=client,
            azure=azure,
            is_refusal=self._is_refusal,
        )
        self._refused = RefusedParameters()
        super().__init__(
            default_model=default_model,
            metrics=metrics,
            health_checker=health_checker,
            retries=retries,
            timeout_s=timeout_s,
            token_gap_s=token_gap_s,
        )

    @classmethod
    def from_settings(
        cls, settings: LLMSettings, credentials: SecretStr | Credentials, **options: Any
    ) -> Self:
        """The provider that the settings describe."""
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
        """The name given, "openai" by default."""
        return self._name

    @property
    def _client(self) -> "AsyncOpenAI":
        """The official SDK's client for the same server and key, imported when first touched."""
        return self._sdk.get()

    async def preload(self) -> None:
        """Import what requests go over."""
        await self._transport.preload()

    async def aclose(self) -> None:
        """Close connections. The provider may be used again; it connects anew."""
        await self._transport.aclose()
        await self._sdk.aclose()

    async def _call_api(self, call: ProviderCall) -> Completion:
        response, dropped = await self._send(call, stream=False)
        async with aclosing(response):
            answer = await response_body.read_json(response)
        choice = (answer.get("choices") or [{}])[0]
        text, reason = self._text_and_reason(choice, "message")
        return _completion(answer, answer.get("model"), reason, call, dropped, text)

    async def _call_api_stream(self, call: ProviderCall) -> AsyncGenerator[str | Completion, None]:
        response, dropped = await self._send(call, stream=True)
        written = StreamAccumulator(self.name, self._text_and_reason)
        async with aclosing(response), aclosing(response_body.events(response)) as events:
            async for arrived in events:
                if text := written.read(arrived):
                    yield text
                if written.error is not None:
                    raise written.error
                if written.is_complete:
                    await response_body.finish(response)
                    yield _completion(written.last, written.model, written.reason, call, dropped)
                    return

    async def _list_models(self) -> list[str]:
        page = await self._transport.get_json(self._url("models"))
        return [model["id"] for model in page["data"]]

    def _body(self, call: ProviderCall, *, stream: bool) -> Mapping[str, Any]:
        return self._request_body(call, self._refused.of(call.config.model), stream=stream)

    async def _send(self, call: ProviderCall, *, stream: bool) -> tuple[VendorResponse, list[str]]:
        """Send the request; the response, to be closed, and the sampling parameters left out."""
        asks_for_json = call.config.response_schema is not None
        without: frozenset[str] = frozenset()

        async def attempt(refused: frozenset[str]) -> VendorResponse:
            nonlocal without
            without = refused
            body = self._request_body(call, refused, stream=stream)
            # Silence is limited by the base class, which also counts pings as silence.
            connect_s = min(CONNECT_TIMEOUT_S, call.timeout_s)
            return await self._transport.post(self._url(self._path), body, connect_timeout_s=connect_s)

        def refused_name(exc: Exception) -> str | None:
            name = self._refused_name(exc)
            if name is None and asks_for_json and isinstance(exc, VendorStatusError):
                name = refused_openai_format(f"{exc.param} {exc.text}", without)
            return name

        response, refused = await self._refused.send(call.config.model, attempt, refused_name)
        dropped = [n for n in _SAMPLING if n in refused and getattr(call.config, n) is not None]
        return response, dropped + refused_steps(call.config, refused)

    @property
    def _path(self) -> str:
        """Where requests for an answer go."""
        return "chat/completions"

    def _url(self, path: str) -> str:
        return f"/{path}" if self._azure else f"{self._base_url.rstrip('/')}/{path}"

    def _request_body(self, call: ProviderCall, refused: frozenset[str], *, stream: bool) -> dict[str, Any]:
        config = call.config
        # Newer models know only the second spelling, most OpenAI-shaped servers only the first.
        limit = "max_completion_tokens" if "max_tokens" in refused else "max_tokens"
        body = {
            "model": self._azure.deployment(config.model) if self._azure else config.model,
            "messages": [dict(message) for message in call.messages],
            limit: config.max_tokens,
            "stop": list(config.stop_sequences) or None,
            "response_format": openai_format(config, refused),
            **{name: getattr(config, name) for name in _SAMPLING if name not in refused},
        }
        if stream:
            body["stream"] = True
            body["stream_options"] = None if "stream_options" in refused else {"include_usage": True}
        return {name: value for name, value in body.items() if value is not None}

    def _text_and_reason(self, choice: Mapping[str, Any], part: str) -> tuple[str, str | None]:
        """Text and finish reason of a choice; ``part`` is "message", or "delta" in a stream."""
        said = choice.get(part) or {}
        reason = "content_filter" if said.get("refusal") else choice.get("finish_reason")
        return said.get("content") or said.get("refusal") or "", reason

    def _refused_name(self, exc: Exception) -> str | None:
        if not isinstance(exc, VendorStatusError) or exc.status != 400:
            return None
        if find_overflow(exc.text) is not None:  # may speak of max_tokens, too
            return None
        if "max_completion_tokens" in exc.text and exc.param in ("max_tokens", None):
            return "max_tokens"
        candidates = (*_SAMPLING, "stream_options")
        return named_parameter(candidates, message=exc.text, param=exc.param, code=exc.code)

    def _is_refusal(self, exc: VendorStatusError) -> bool:
        """Whether the vendor says that the key is not, or no longer, a good one."""
        return refuses_key(exc)

    def _map_error(self, exc: Exception) -> LLMError:
        if isinstance(exc, VendorStatusError) and self._is_refusal(exc):
            return failures.error_for_status(self.name, 401)
        return failures.error_for_exception(self.name, exc)

    def _safe_cause(self, exc: Exception) -> Exception:
        return self._transport.without_key(exc)


class StreamAccumulator:
    """What a stream has said so far, besides the text.

    Args:
        provider: Its name, for an error.
        text_and_reason: Text and finish reason of a choice and the name of its part.
    """

    def __init__(
        self, provider: str, text_and_reason: Callable[[Mapping[str, Any], str], tuple[str, str | None]]
    ) -> None:
        self._provider = provider
        self._text_and_reason = text_and_reason
        self.model: str | None = None
        self.reason: str | None = None
        self.last: dict[str, Any] = {}
        """The chunk with the usage."""
        self.error: Exception | None = None
        """What went wrong after the text: what the stream says, or that something in it cannot be read."""
        self.is_complete = False

    def read(self, arrived: Iterable[bytes]) -> str:
        """The text of chunks that arrived together, as one: each costs its readers more than us."""
        texts: list[str] = []
        try:
            for data in arrived:
                if data == b"[DONE]":
                    self.is_complete = True
                    break
                chunk = orjson.loads(data)
                if chunk.get("error"):
                    self.error = _error_in_stream(self._provider, chunk["error"])
                    break
                self.model = chunk.get("model") or self.model
                if chunk.get("usage"):
                    self.last = chunk
                if choices := chunk.get("choices"):
                    text, reason = self._text_and_reason(choices[0], "delta")
                    self.reason = self.reason or reason  # the last chunk of a refusal says "stop"
                    texts.append(text)
        except Exception as exc:  # noqa: BLE001 - whatever it is, the text before it was said; it is raised later
            self.error = exc
        return "".join(texts)


def _completion(
    answer: Mapping[str, Any],
    model: str | None,
    reason: str | None,
    call: ProviderCall,
    dropped: list[str],
    text: str = "",
) -> Completion:
    usage = answer.get("usage") or {}
    return Completion(
        model=model or call.config.model,
        finish_reason=_FINISH_REASONS.get(reason, "other"),
        content=text,
        prompt_tokens=usage.get("prompt_tokens"),
        completion_tokens=usage.get("completion_tokens"),
        metadata={"dropped_parameters": dropped} if dropped else {},
    )


def _error_in_stream(provider: str, error: Any) -> LLMError:
    """The error for ``data: {"error": ...}`` inside a stream that began with status 200."""
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
    return failures.error_for_status(provider, status, said=str(error))
