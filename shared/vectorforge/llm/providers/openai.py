"""OpenAI, and every server that speaks its chat completions API (Ollama, vLLM, MAX Serve, Gemini, ...)."""

import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, aclosing
from typing import TYPE_CHECKING, Any, Self

from pydantic import SecretStr

from vectorforge.config import LLMSettings
from vectorforge.credentials import Credentials, as_credentials
from vectorforge.errors import LLMError
from vectorforge.health import HealthChecker
from vectorforge.llm import failures, response_body
from vectorforge.llm.base import BaseLLMProvider
from vectorforge.llm.refused_parameters import RefusedParameters, named_parameter
from vectorforge.llm.response_format import openai_format, refused_openai_format, refused_steps
from vectorforge.llm.types import Completion, FinishReason, ProviderCall
from vectorforge.sdk_client import SDKClient
from vectorforge.telemetry import MetricsCollector

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
    """Chat completions over the official SDK, which retries nothing here."""

    def __init__(
        self,
        credentials: SecretStr | str | Credentials,
        *,
        base_url: str | None = None,
        organization: str | None = None,
        default_model: str = "gpt-4o",
        name: str = "openai",
        metrics: MetricsCollector | None = None,
        health_checker: HealthChecker | None = None,
        retries: int = 3,
        timeout_s: float = 60.0,
        token_gap_s: float = 10.0,
    ) -> None:
        """Connects to nothing and imports no SDK yet.

        Args:
            credentials: API key, or where to ask for it.
            base_url: Address of the API, with its ``/v1``; default: OpenAI's.
            organization: OpenAI organization that pays.
            default_model: Used when a request names none.
            name: Provider name, when the server is not OpenAI's.
            metrics: Where measurements go.
            health_checker: Gets the probe ``llm.<name>``.
            retries: See ``BaseLLMProvider``.
            timeout_s: See ``BaseLLMProvider``.
            token_gap_s: See ``BaseLLMProvider``.
        """
        self._name = name
        self._base_url = base_url or DEFAULT_BASE_URL
        self._organization = organization
        self._client = SDKClient(
            as_credentials(credentials),
            self._build_client,
            lambda client: client.close(),
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
            **options,
        )

    def provider_name(self) -> str:
        """The name given, "openai" by default."""
        return self._name

    async def preload(self) -> None:
        """Import the SDK and build its client."""
        await self._client.preload()

    async def aclose(self) -> None:
        """Close connections. The provider may be used again; it connects anew."""
        await self._client.aclose()

    async def _call_api(self, call: ProviderCall) -> Completion:
        async with AsyncExitStack() as stack:
            response, dropped = await self._send(stack, call, stream=False)
            answer = await response_body.read_json(response)
        choice = (answer.get("choices") or [{}])[0]
        text, reason = self._text_and_reason(choice, "message")
        return _completion(answer, answer.get("model"), reason, call, dropped, text)

    async def _call_api_stream(self, call: ProviderCall) -> AsyncGenerator[str | Completion, None]:
        model = reason = None
        last: dict[str, Any] = {}
        async with AsyncExitStack() as stack:
            response, dropped = await self._send(stack, call, stream=True)
            events = await stack.enter_async_context(aclosing(response_body.events(response)))
            async for data in events:
                if data == "[DONE]":
                    await response_body.drain(events)
                    yield _completion(last, model, reason, call, dropped)
                    return
                chunk = json.loads(data)
                if chunk.get("error"):
                    raise _error_in_stream(self.name, chunk["error"])
                model = chunk.get("model") or model
                if chunk.get("usage"):
                    last = chunk
                for choice in (chunk.get("choices") or ())[:1]:
                    text, said = self._text_and_reason(choice, "delta")
                    reason = reason or said  # the last chunk of a refusal says "stop"
                    if text:
                        yield text

    async def _list_models(self) -> list[str]:
        async with AsyncExitStack() as stack:
            page = await self._client.send(stack, lambda client, _: client.models.list())
            return [model.id for model in page.data]

    def _body(self, call: ProviderCall, *, stream: bool) -> Mapping[str, Any]:
        return self._request_body(call, self._refused.of(call.config.model), stream=stream)

    async def _send(
        self, stack: AsyncExitStack, call: ProviderCall, *, stream: bool
    ) -> tuple[Any, list[str]]:
        """Send the request; the response (closed by ``stack``) and the sampling parameters left out."""

        async def request(client: "AsyncOpenAI", contexts: AsyncExitStack) -> tuple[Any, frozenset[str]]:
            import openai

            # Silence is limited by the base class, which also counts pings as silence.
            timeout = openai.Timeout(None, connect=min(5.0, call.timeout_s))

            asks_for_json = call.config.response_schema is not None
            without: frozenset[str] = frozenset()

            async def attempt(refused: frozenset[str]) -> Any:
                nonlocal without
                without = refused
                sent = self._request(client, call, refused, stream=stream, timeout=timeout)
                return await contexts.enter_async_context(sent)

            def refused_name(exc: Exception) -> str | None:
                name = self._refused_name(exc)
                if name is None and asks_for_json and isinstance(exc, openai.APIStatusError):
                    name = refused_openai_format(f"{exc.param} {exc.message}", without)
                return name

            return await self._refused.send(call.config.model, attempt, refused_name)

        response, refused = await self._client.send(stack, request)
        dropped = [n for n in _SAMPLING if n in refused and getattr(call.config, n) is not None]
        return response, dropped + refused_steps(call.config, refused)

    def _request(
        self,
        client: "AsyncOpenAI",
        call: ProviderCall,
        refused: frozenset[str],
        *,
        stream: bool,
        timeout: Any,
    ) -> AbstractAsyncContextManager[Any]:
        """The request, sent when the context is entered; ``refused`` parameters are left out."""
        body = self._request_body(call, refused, stream=stream)
        # As arguments the SDK would look through all of it.
        return client.chat.completions.with_streaming_response.create(
            model=call.config.model, messages=[], extra_body=body, timeout=timeout
        )

    def _request_body(self, call: ProviderCall, refused: frozenset[str], *, stream: bool) -> dict[str, Any]:
        config = call.config
        # Newer models know only the second spelling, most OpenAI-shaped servers only the first.
        limit = "max_completion_tokens" if "max_tokens" in refused else "max_tokens"
        body = {
            "model": config.model,
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
        import openai

        if not isinstance(exc, openai.BadRequestError):
            return None
        if "max_completion_tokens" in exc.message and exc.param in ("max_tokens", None):
            return "max_tokens"
        candidates = (*_SAMPLING, "stream_options")
        return named_parameter(candidates, message=exc.message, param=exc.param, code=exc.code)

    def _is_refusal(self, exc: Exception) -> bool:
        """Whether the vendor says that the key is not, or no longer, a good one."""
        import openai

        return isinstance(exc, openai.AuthenticationError | openai.PermissionDeniedError)

    def _build_client(self, key: SecretStr) -> "AsyncOpenAI":
        from openai import AsyncOpenAI

        client = AsyncOpenAI(api_key=key.get_secret_value(), base_url=self._base_url, max_retries=0)
        # The SDK reads both from OPENAI_* variables; only VECTORFORGE_* ones count here.
        client.organization = self._organization
        client.project = None
        _ = client.chat.completions  # imports its modules here, in the thread, not in the first request
        return client

    def _map_error(self, exc: Exception) -> LLMError:
        import openai

        if self._is_refusal(exc):
            return failures.error_for_status(self.name, 401)
        return failures.error_for_sdk_exception(openai, self.name, exc)

    def _safe_cause(self, exc: Exception) -> Exception:
        return self._client.without_key(exc)


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
    return failures.error_for_status(provider, status)
