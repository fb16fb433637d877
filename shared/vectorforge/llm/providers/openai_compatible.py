"""Providers with an API in OpenAI's format: Cohere, Google's Gemini, Ollama and MAX Serve.

Sources: https://docs.cohere.com/docs/compatibility-api, https://ai.google.dev/gemini-api/docs/openai,
https://github.com/ollama/ollama/blob/main/docs/openai.md, https://docs.modular.com/max/cli/serve.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final, Literal, Self, TypeAlias

from pydantic import SecretStr

from vectorforge.config import LLMSettings
from vectorforge.deadline import Deadline
from vectorforge.errors import InvalidInputError
from vectorforge.llm.providers.openai import OpenAIProvider
from vectorforge.llm.types import LLMRequestConfig, Message, ProviderCall, check_messages
from vectorforge.vendors.accounts import COHERE_BASE_URL, GOOGLE_BASE_URL
from vectorforge.vendors.credentials import Credentials
from vectorforge.vendors.response import VendorStatusError

_INVALID_GOOGLE_KEY = re.compile(r"API_KEY_INVALID|API key (not valid|expired)")
"""Google's text, with status 400, for a key that was deleted or has expired. Source: e.g.
https://github.com/cequence-io/openai-scala-client/issues/109."""

STOP_TOKENS: Final = ("<|eot_id|>", "<|end_of_text|>")
"""Llama 3.3's tokens for the end of a turn and of a text."""
_SPECIAL_TOKEN = re.compile(r"<\|(?=\w+\|>)")

Mode: TypeAlias = Literal["chat", "completions"]


class CohereProvider(OpenAIProvider):
    """Command models; their native citations are not part of this API."""

    vendor: ClassVar[str] = "cohere"
    address: ClassVar[str] = COHERE_BASE_URL

    @classmethod
    def from_settings(cls, settings: LLMSettings, credentials: Credentials, **options: Any) -> Self:
        """Return the provider with the key in ``credentials``."""
        base_url, model = settings.cohere_base_url, settings.cohere_model
        return cls(credentials, base_url=base_url, default_model=model, **options)


class GoogleProvider(OpenAIProvider):
    """Gemini models."""

    vendor: ClassVar[str] = "google"
    address: ClassVar[str] = GOOGLE_BASE_URL

    @classmethod
    def from_settings(cls, settings: LLMSettings, credentials: Credentials, **options: Any) -> Self:
        """Return the provider with the key in ``credentials``."""
        base_url, model = settings.google_base_url, settings.google_model
        return cls(credentials, base_url=base_url, default_model=model, **options)

    def _is_refusal(self, exc: VendorStatusError) -> bool:
        return (exc.status == 400 and bool(_INVALID_GOOGLE_KEY.search(exc.text))) or super()._is_refusal(exc)


class OllamaProvider(OpenAIProvider):
    """Models on a server of your own; needs an address and no key."""

    vendor: ClassVar[str] = "ollama"

    @classmethod
    def from_settings(cls, settings: LLMSettings, credentials: Credentials, **options: Any) -> Self:
        """Return the provider at the address in the settings, with or without its ``/v1``."""
        base_url, model = _with_version(settings.ollama_base_url), settings.ollama_model
        # a key is always sent; the server ignores it
        return cls("ollama", base_url=base_url, default_model=model, **options)


class MaxServeProvider(OpenAIProvider):
    """Models on a MAX Serve of your own; needs an address and no key.

    In mode "chat" the server applies the model's own template to the messages. In mode "completions" they
    are sent as one text in Llama 3.3's format, with its stop tokens.

    Args:
        credentials: Always sent; the server ignores it, but a proxy in front of it may not.
        mode: Completion API to use.
        **options: See ``OpenAIProvider``.
    """

    vendor: ClassVar[str] = "max_serve"

    def __init__(
        self, credentials: SecretStr | str | Credentials = "max-serve", *, mode: Mode = "chat", **options: Any
    ) -> None:
        self._mode = mode
        super().__init__(credentials, **options)

    @classmethod
    def from_settings(cls, settings: LLMSettings, credentials: Credentials, **options: Any) -> Self:
        """Return the provider at the address in the settings, with or without its ``/v1``."""
        return cls(
            mode=settings.max_serve_mode,
            base_url=_with_version(settings.max_serve_base_url),
            default_model=settings.max_serve_model,
            **options,
        )

    async def call_max_serve(
        self,
        messages: Sequence[Message],
        config: LLMRequestConfig | None = None,
        *,
        deadline: Deadline | None = None,
    ) -> tuple[str, int, int]:
        """Return (answer, prompt tokens, completion tokens); arguments and errors as ``generate``."""
        response = await self.generate(messages, config, deadline=deadline)
        return response.content, response.prompt_tokens, response.completion_tokens

    @property
    def calls_tools(self) -> bool:
        """False in mode "completions", whose API has no tools."""
        return self._mode == "chat"

    @property
    def _path(self) -> str:
        return super()._path if self._mode == "chat" else "completions"

    def _request_body(self, call: ProviderCall, refused: frozenset[str], *, stream: bool) -> dict[str, Any]:
        if self._mode == "chat":
            return super()._request_body(call, refused, stream=stream)
        body = super()._request_body(call, refused - {"max_tokens"}, stream=stream)
        del body["messages"]
        for unsupported in ("response_format", "tools", "tool_choice", "parallel_tool_calls"):
            body.pop(unsupported, None)  # this API has none
        body["prompt"] = format_chat_prompt(call.messages)
        body["stop"] = [*STOP_TOKENS, *call.config.stop_sequences]
        return body

    def _text_and_reason(self, choice: Mapping[str, Any], part: str) -> tuple[str, str | None]:
        if self._mode == "chat":
            return super()._text_and_reason(choice, part)
        return choice.get("text") or "", choice.get("finish_reason")


def format_chat_prompt(messages: Sequence[Message]) -> str:
    """Return the conversation in Llama 3.3's format, up to the header of the model's turn.

    Format: https://www.llama.com/docs/model-cards-and-prompt-formats/llama3_3/. Contents are trimmed, as in
    Meta's reference code. A blank breaks up text that looks like a special token: Meta's tokenizer never
    reads contents as tokens, but a server that gets one text would, and a document could end its turn and
    speak as the system.

    Args:
        messages: Oldest first; at least one.

    Raises:
        InvalidInputError: There is no message, or one has an invalid role or no text.
    """
    check_messages(messages)
    for index, message in enumerate(messages):
        if message["role"] == "tool":
            name = f"messages[{index}].role"
            raise InvalidInputError(f"{name}: this prompt has no results of tools.", field=name)
    turns = [
        f"{_header(message['role'])}{_SPECIAL_TOKEN.sub('< |', message['content'].strip())}<|eot_id|>"
        for message in messages
    ]
    return f"<|begin_of_text|>{''.join(turns)}{_header('assistant')}"


def _header(role: str) -> str:
    return f"<|start_header_id|>{role}<|end_header_id|>\n\n"


def _with_version(base_url: str | None) -> str:
    address = (base_url or "").rstrip("/")
    return address if address.endswith("/v1") else f"{address}/v1"
