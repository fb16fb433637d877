"""The prompt format of Llama 3.3, for servers that take a text instead of messages.

MAX Serve (https://docs.modular.com/max/cli/serve), which speaks OpenAI's two completion APIs.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, Self

from pydantic import SecretStr

from vectorforge.config import LLMSettings
from vectorforge.deadline import Deadline
from vectorforge.llm.providers.openai import OpenAIProvider
from vectorforge.llm.request_shaping import check_messages
from vectorforge.llm.types import LLMRequestConfig, Message, ProviderCall
from vectorforge.vendors.credentials import Credentials

STOP_TOKENS: Final = ("<|eot_id|>", "<|end_of_text|>")
"""Where the model ends a turn, and a text."""

_SPECIAL_TOKEN = re.compile(r"<\|(?=\w+\|>)")


def format_chat_prompt(messages: Sequence[Message]) -> str:
    """The conversation as Llama 3.3 was trained to read it, up to the header of its own turn.

    Format: https://www.llama.com/docs/model-cards-and-prompt-formats/llama3_3/. Contents are trimmed, as in
    Meta's reference code. What looks like a special token within a content is broken up by a blank: Meta's
    tokenizer never reads contents as tokens, but a server that gets the whole as one text would, and a
    document could end its turn and speak as the system.

    Args:
        messages: Oldest first; at least one.

    Raises:
        InvalidInputError: There is no message, or one has an unknown role or no text.
    """
    check_messages(messages)
    turns = [
        f"{_header(message['role'])}{_SPECIAL_TOKEN.sub('< |', message['content'].strip())}<|eot_id|>"
        for message in messages
    ]
    return f"<|begin_of_text|>{''.join(turns)}{_header('assistant')}"


def _header(role: str) -> str:
    return f"<|start_header_id|>{role}<|end_header_id|>\n\n"


Mode = Literal["chat", "completions"]


class MaxServeProvider(OpenAIProvider):
    """Models on a MAX Serve of your own; needs an address and no key.

    In mode "chat" the server puts the messages into the model's own template. In mode "completions" they
    are sent as one text in Llama 3.3's format, with its stop tokens.
    """

    def __init__(
        self, credentials: SecretStr | str | Credentials = "max-serve", *, mode: Mode = "chat", **options: Any
    ) -> None:
        """Connects to nothing.

        Args:
            credentials: A key is always sent; the server ignores it unless a proxy before it does not.
            mode: Which of the server's APIs to use.
            **options: See ``OpenAIProvider``.
        """
        self._mode = mode
        super().__init__(credentials, **{"name": "max_serve", **options})

    @classmethod
    def from_settings(
        cls, settings: LLMSettings, credentials: SecretStr | Credentials, **options: Any
    ) -> Self:
        """The provider at the address in the settings, with or without its ``/v1``; it needs no key."""
        address = (settings.max_serve_base_url or "").rstrip("/")
        return cls(
            mode=settings.max_serve_mode,
            base_url=address if address.endswith("/v1") else f"{address}/v1",
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
        """(answer, prompt tokens, completion tokens); arguments and errors as ``generate``."""
        response = await self.generate(messages, config, deadline=deadline)
        return response.content, response.prompt_tokens, response.completion_tokens

    @property
    def _path(self) -> str:
        return super()._path if self._mode == "chat" else "completions"

    def _request_body(self, call: ProviderCall, refused: frozenset[str], *, stream: bool) -> dict[str, Any]:
        if self._mode == "chat":
            return super()._request_body(call, refused, stream=stream)
        body = super()._request_body(call, refused - {"max_tokens"}, stream=stream)
        del body["messages"]
        body.pop("response_format", None)  # this API has none
        body["prompt"] = format_chat_prompt(call.messages)
        body["stop"] = [*STOP_TOKENS, *call.config.stop_sequences]
        return body

    def _text_and_reason(self, choice: Mapping[str, Any], part: str) -> tuple[str, str | None]:
        if self._mode == "chat":
            return super()._text_and_reason(choice, part)
        return choice.get("text") or "", choice.get("finish_reason")
