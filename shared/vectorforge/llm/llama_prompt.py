"""The prompt format of Llama 3.3, for servers that take a text instead of messages."""

import re
from collections.abc import Sequence
from typing import Final

from vectorforge.llm.request_checks import check_messages
from vectorforge.llm.types import Message

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
