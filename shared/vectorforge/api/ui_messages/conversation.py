"""The messages of ``useChat`` as a question and what was said before it."""

from collections.abc import Sequence

from vectorforge.api.schemas.rag import MAX_MESSAGES
from vectorforge.api.schemas.ui_chat import TextPart, UIMessage
from vectorforge.errors import InvalidInputError
from vectorforge.pipeline.types import HistoryMessage


def question_of(messages: Sequence[UIMessage]) -> str:
    """What the last message asks.

    Raises:
        InvalidInputError: It is not the user's, has no text, or has a file, which nobody here can read.
    """
    last, field = messages[-1], f"messages.{len(messages) - 1}"
    if last.role != "user":
        raise InvalidInputError("The last message must be the user's: it is the question.", field=field)
    if any(part.type == "file" for part in last.parts):
        raise InvalidInputError("Files cannot be read here; send text.", field=f"{field}.parts")
    question = _text(last)
    if not question.strip():
        raise InvalidInputError("The last message has no text.", field=f"{field}.parts")
    return question


def history_of(messages: Sequence[UIMessage]) -> tuple[HistoryMessage, ...]:
    """What was said before the question, oldest first: the last 100 messages that have text.

    ``useChat`` sends all of a chat, also answers that broke off before their first word.
    """
    earlier = [HistoryMessage(message.role, _text(message)) for message in messages[:-1]]
    return tuple(message for message in earlier if message.content.strip())[-MAX_MESSAGES:]


def _text(message: UIMessage) -> str:
    return "\n".join(part.text for part in message.parts if isinstance(part, TextPart))
